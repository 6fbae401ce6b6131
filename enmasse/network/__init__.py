"""Sockets and TLS without a protocol: accepting, retries, certificates."""
