"""The broker without sockets, files and clocks: addresses, queues, subscriptions, policies."""
