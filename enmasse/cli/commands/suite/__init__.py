"""Subcommands that start, stop, copy and look at a suite as a whole."""
