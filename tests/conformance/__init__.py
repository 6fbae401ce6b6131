"""A running suite seen through MQTT: the clauses that bind a server, crossings with AMQP, crashes, hostile clients."""
