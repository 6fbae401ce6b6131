"""The Helm charts. Data of the Python package, so that `enmasse deploy` has the chart of its own version."""
