"""Directories: passwords that a server of LDAP checks."""
