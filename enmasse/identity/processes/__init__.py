"""Processes of the suite: their credentials, their roles, and what each role may do."""
