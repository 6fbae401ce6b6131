"""Addresses with their bindings and diverts, and the queues to which a name leads."""
