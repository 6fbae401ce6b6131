"""A program for tests/cli/test_launch.py whose import fails."""

raise RuntimeError("this module cannot be imported")
