module enmasse.io/testbed/pause

go 1.26.0
