"""The beginning of a connection: protocol headers and SASL (parts 2.2 and 5.3)."""
