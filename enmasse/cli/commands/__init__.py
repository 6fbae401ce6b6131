"""Subcommands of `enmasse`, by what they act on. Each is a module that is imported only if it is called."""
