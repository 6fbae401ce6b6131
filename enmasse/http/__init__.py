"""HTTP of services for operators: health and metrics."""
