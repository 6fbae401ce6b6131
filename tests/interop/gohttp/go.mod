module enmasse/gohttp

go 1.18
