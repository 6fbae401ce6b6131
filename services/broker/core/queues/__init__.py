"""A queue: its messages, its consumers, and which message goes to which of them."""
