module fencegatetest

go 1.19

require (
	fencegate v0.0.0
	github.com/lib/pq v1.10.7
)

replace fencegate => ../../../clients/go

replace github.com/lib/pq => /usr/share/gocode/src/github.com/lib/pq
