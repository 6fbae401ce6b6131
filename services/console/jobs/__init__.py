"""Work on many messages, which continues after the answer to its request."""
