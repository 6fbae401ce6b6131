"""Secrets of API tokens: 256 random bits behind a fixed beginning, by which scanners for leaked secrets know them."""

from __future__ import annotations

import hashlib
import re
import secrets

BEGINNING = "enm_"
_FORM = re.compile(r"enm_[A-Za-z0-9_-]{43}")


def made() -> str:
    """Return a new secret."""
    return BEGINNING + secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Return whether a text has the form of the secret of an API token."""
    return _FORM.fullmatch(text) is not None


def digest(secret: str) -> bytes:
    """Return what is stored of a secret: SHA-256, as 256 random bits cannot be guessed. A table of digests is asked in
    a time that tells no part of the secret."""
    return hashlib.sha256(secret.encode()).digest()
