"""Subcommands that send and receive messages, over AMQP and MQTT."""
