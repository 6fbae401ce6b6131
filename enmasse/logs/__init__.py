"""Log events: their catalogue, their form, their way to stderr."""
