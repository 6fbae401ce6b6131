"""Proofs of a user's identity: passwords, certificates, requests to the authentication service."""
