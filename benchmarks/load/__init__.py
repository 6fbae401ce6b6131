"""Load generators that are not the limit: `amqp` and `mqtt` make, acknowledge and count frames in bulk with numpy."""
