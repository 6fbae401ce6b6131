"""The MQTT gateway: MQTT 3.1.1 and 5 clients on one side, the router on the other.

Two halves, which know each other by `interfaces` only:
- `protocol` is the state of one MQTT connection, without sockets and clocks (enmasse.mqtt is its codec);
  `network` gives such connections their sockets: TCP, TLS, WebSocket.
- `amqp` is the way to the router, to the subscription service and to the last-will service.
`app` joins them. Nothing that must survive the process is kept here. Imports enmasse and nothing of other services.
"""
