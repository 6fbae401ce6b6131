"""Brokers as the controller knows them: what they contain, and their traffic."""
