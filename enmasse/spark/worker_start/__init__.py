"""A folder for PYTHONPATH of Spark's Python processes, whose `sitecustomize` makes them start quickly."""
