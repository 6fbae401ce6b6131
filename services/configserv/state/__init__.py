"""State that survives configserv: what applied last, and what is forced."""
