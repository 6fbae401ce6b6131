"""Small files: written atomically and durably, read with bounds."""
