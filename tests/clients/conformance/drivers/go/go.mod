module conformance

go 1.19

require fencegate v0.0.0

replace fencegate => ../../../../../clients/go
