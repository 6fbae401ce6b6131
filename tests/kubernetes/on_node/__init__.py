"""Tests on a real node, which needs root and namespaces of its own: `make test-node`."""
