"""Address spaces of tenants, and what they may use: the files of the administrator."""
