"""Types, composites and frames of AMQP 1.0 as bytes (parts 1 and 2)."""
