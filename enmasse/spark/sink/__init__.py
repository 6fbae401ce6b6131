"""The sink: rows as messages."""
