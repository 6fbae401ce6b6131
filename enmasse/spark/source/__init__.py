"""The streaming source, and the batch that browses: reading of ranges, limits, lag, metrics."""
