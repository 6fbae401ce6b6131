"""Messages in brokers, by product: looked at and worked on by management, and live state of those that offer none."""
