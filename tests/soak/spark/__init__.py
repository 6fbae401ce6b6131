"""A soak of the Spark source and sink: kills at random and at chosen moments, every message counted."""
