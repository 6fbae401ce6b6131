"""A stored message: its sections, its properties, its payload."""
