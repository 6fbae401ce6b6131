"""The domain of the router: addresses, links, streams, link routes, auto-links, the anonymous relay, policy.

It takes typed configuration and raises ValueError. It knows no management, no sockets, no TLS, no clock and no files.
It imports `enmasse.amqp` only.
"""
