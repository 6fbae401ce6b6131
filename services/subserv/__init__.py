"""subserv: sessions of MQTT clients, subscriptions of AMQP clients (`$subctrl`), retained messages.

`broker_names`, `records`, `subscription_placement`, `sessions/sessions`, `sessions/announced_addresses`,
`retained/tree`, `retained/message_forms` are the domain: no AMQP connection, no clock, no store.
`brokers/conversation` gives a broker its queues and diverts, `brokers/retained_feed` takes its retained messages,
`brokers/binding` makes a subscription of both. `sessions/` (`clients`, `qos2_owners`, `packets`), `amqp` and
`retained/retained_messages` are what may be asked for, durable before it is answered. `service` puts them together,
`brokers/slices` cuts long work. `sessions/gateways` and `control` are its AMQP side, `views` what the CLI shows.

Imports enmasse.control, reconcile, stores, model, mqtt.topics, and the codec of enmasse.amqp.
"""
