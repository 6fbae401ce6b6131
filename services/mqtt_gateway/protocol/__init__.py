"""One MQTT connection: its packets, packet ids, order and limits. `intake` takes bytes, `output` gives bytes; `inbound`
and `outbound` are the messages of the two directions, `subscribing` the filters, `connecting` the rules of CONNECT.

Imports enmasse.mqtt and `interfaces`; knows no sockets, no clock and no AMQP.
"""
