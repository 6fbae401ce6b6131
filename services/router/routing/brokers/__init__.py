"""Links to brokers: auto-links, link routes, the relay of anonymous senders."""
