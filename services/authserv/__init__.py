"""The authentication service: see README.md."""
