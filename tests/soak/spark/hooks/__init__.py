"""A folder for PYTHONPATH of the soaked driver, whose `sitecustomize` kills its processes at chosen moments."""
