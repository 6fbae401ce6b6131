"""The router's ports and connections: listeners, connectors, TLS.

It imports `routing` and the asyncio skin of `enmasse.amqp`; it knows no management.
"""
