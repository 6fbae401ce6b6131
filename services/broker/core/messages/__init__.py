"""A stored message: its sections, the values that selectors see, its payload."""
