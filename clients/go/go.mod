module fencegate

go 1.19
