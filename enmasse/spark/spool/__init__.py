"""The spool of the source: segments in files or in an object store, and who owns it."""
