"""Queues and bindings of subscribers on the brokers."""
