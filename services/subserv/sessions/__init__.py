"""MQTT sessions, their clients and packet ids."""
