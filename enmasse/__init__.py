"""EnMasse: what every service stands on (docs/architecture.md)."""

__version__ = "0.1.0"
