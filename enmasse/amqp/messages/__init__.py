"""Messages of AMQP 1.0 (part 3): made, scanned, decoded section by section."""
