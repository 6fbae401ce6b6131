"""Etags of entries of the configuration, by which a change states the entry it is based on."""

from __future__ import annotations

import hashlib

import msgspec


def etag(entry: msgspec.Struct) -> str:
    """Return the etag of an entry in canonical form: equal for entries that mean the same. Of a user `granted` gives
    the entry, so that etags reveal no hash."""
    return hashlib.sha256(msgspec.json.encode(entry, order="deterministic")).hexdigest()[:32]
