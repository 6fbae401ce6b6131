"""The sockets of MQTT clients: `listeners` accept, `wire` is TCP and TLS, `websocket` is aiohttp's server.

Imports `protocol`, enmasse.aio and aiohttp; knows no AMQP.
"""
