"""The AMQP engine on asyncio: sockets, TLS, the clock, and a small client.

`transport` gives connections sockets and the time, `acceptor` takes what knocks, `client` is for applications,
`feeds` follows the configuration service.
May import enmasse.amqp and what services share; knows no service.
"""
