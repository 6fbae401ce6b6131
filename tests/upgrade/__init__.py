"""Data that a released version wrote, read by the version under test."""
