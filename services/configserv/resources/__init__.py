"""Custom resources of Kubernetes as sources of the configuration, and their status (docs/custom-resources.md)."""
