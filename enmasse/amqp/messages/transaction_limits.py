"""Limits of transactions: what clients have open costs memory of a broker, or of a gateway, until it ends."""

from __future__ import annotations

from typing import Final

SECONDS: Final = 60
"""In which a transaction at a broker is to end."""
OPEN: Final = 100
"""Open transactions of one link to a coordinator."""
OPERATIONS: Final = 10_000
"""Messages and acknowledgements of one transaction."""
BYTES: Final = 16 << 20
"""Bytes of the messages that one transaction sends."""
BYTES_OF_SPACE: Final = 64 << 20
"""Bytes of the messages that the open transactions of one address space send. A user has at most as many as are left,
so half."""


def used(what: str, own: int, used: int, most: int) -> str:
    """Return the reason for which a user is refused."""
    return (
        f"the user has {own} {what}, its address space {used} of {most}, and a user gets at most as many as are left: "
        "discharge some, or wait"
    )
