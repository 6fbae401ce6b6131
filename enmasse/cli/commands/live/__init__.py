"""Subcommands that show and end what is connected or kept now."""
