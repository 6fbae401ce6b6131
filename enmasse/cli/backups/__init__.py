"""Backups: copies that processes make of their folders, and the part of one address space in them."""
