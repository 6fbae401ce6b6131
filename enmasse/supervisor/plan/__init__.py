"""Plan of a suite: its services with their settings, ports, secrets and folders."""
