"""Connections, bodies and options that the commands for messages share."""
