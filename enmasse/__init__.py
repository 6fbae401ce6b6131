"""Common parts of all services (docs/architecture.md): AMQP, the model, the reconciler, the supervisor, the command.

A module here may import those of the floors below it and nothing of `services`; pyproject.toml lists the
floors (import-linter). The modules without a folder are what each process needs: settings, log, health, metrics, start.
"""

__version__ = "0.3.0.dev0"
