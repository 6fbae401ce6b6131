"""Messages in brokers, by product: looked at and worked on by management."""
