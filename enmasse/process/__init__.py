"""A Python program as a process of the suite: start, settings, signals, end."""
