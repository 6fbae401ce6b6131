"""Output of commands for people: tables, and messages as lines."""
