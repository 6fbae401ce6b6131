"""Subcommands that read and change addresses, flavors, users and contexts."""
