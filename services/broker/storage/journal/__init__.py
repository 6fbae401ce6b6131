"""The journal: records in segments, replayed and repaired at the start."""
