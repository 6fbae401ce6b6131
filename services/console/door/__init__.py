"""Checks of each request before it reaches the API: limits, Host and Origin, login, rights."""
