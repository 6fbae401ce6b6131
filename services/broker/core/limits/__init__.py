"""Settings of addresses, and how much is held."""
