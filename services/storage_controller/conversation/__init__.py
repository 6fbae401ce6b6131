"""The conversation with a broker: its contents are listed, the difference is applied, unused levels are removed."""
