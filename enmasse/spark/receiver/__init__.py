"""Receiver processes: from an address into the spool."""
