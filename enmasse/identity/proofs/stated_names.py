"""Names that clients state in a login that fails: a name that no user has may be a password, and is not repeated."""

from __future__ import annotations

LONGEST = 1024
"""Bytes of a first message that are looked at."""


def user_in(mechanism: str, first: bytes | None) -> str:
    """Return the name that the first message of a SASL mechanism states; empty: none that is known here."""
    text = bytes(first or b"")[:LONGEST].decode(errors="replace")
    if mechanism == "PLAIN":
        parts = text.split("\0")
        return parts[1] if len(parts) == 3 else ""
    if mechanism.startswith("SCRAM-"):  # RFC 5802, 7: client-first-message
        found = next((part[2:] for part in text.split(",") if part.startswith("n=")), "")
        return found.replace("=2C", ",").replace("=3D", "=")
    return ""
