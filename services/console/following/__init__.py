"""Live state of the suite, followed from its processes and from the configuration service."""
