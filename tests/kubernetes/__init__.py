"""A real Kubernetes for tests: how its programs are built, started and spoken to; tests of the suite in it are beside.

`make test-kubernetes` runs them; `make test` does not. May import `enmasse` and `tests`; nothing outside imports it.
"""
