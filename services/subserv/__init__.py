"""subserv: sessions of MQTT clients, subscriptions of AMQP clients (`$subctrl`), retained messages.

`names`, `records`, `desired`, `sessions`, `given`, `retained`, `copies` are the domain: no AMQP connection, no clock,
no store.
`conversation` gives a broker its queues and diverts, `feed` takes its retained messages, `binding` makes a
subscription of both. `clients`, `sources`, `packets`, `amqp`, `retaining` are what may be asked for, durable before it
is answered. `service` puts them together, `portions` cuts long work. `gateways` and `control` are its AMQP side,
`views` what the CLI shows.

Imports enmasse.control, reconcile, stores, model, mqtt.topics, and the codec of enmasse.amqp.
"""
