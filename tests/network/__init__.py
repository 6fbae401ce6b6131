"""Tests on nodes of a network that is cut and slowed (tests/kit/network.py)."""
