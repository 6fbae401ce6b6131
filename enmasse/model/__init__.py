"""Addresses, flavors and hand-made brokers: the two (three) JSON files, validated, in one canonical form."""
