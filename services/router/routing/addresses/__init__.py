"""Addresses of the router: producers, destinations, the choice between them."""
