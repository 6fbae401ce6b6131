"""The AMQP engine and the MQTT codec on asyncio: sockets, TLS, the clock, and a small client of each.

`transport` gives connections sockets and the time, `client` is for applications, `feeds` follows the configuration
service.
`mqtt` is a client of MQTT 3.1.1 and 5 on enmasse.mqtt, `mqtt_wire` the connection below it, `mqtt_inflight` what it has
published and is not complete.
May import enmasse.amqp, enmasse.mqtt and what services share; knows no service.
"""
