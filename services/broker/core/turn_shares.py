"""Shares of a turn: how long work for one client continues before others have theirs. The owner of the broker measures
the time; without an owner a share has no end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Spent = Callable[[], bool]
"""Whether the share is used up."""
Share = Callable[[], Spent]
"""Begins a share."""

LIGHT: Final = 64
"""Words of selectors (`Selector.weight`) that are evaluated for a message at once. More than that is done in turns of
its own, in shares, so that messages of others need not wait for it."""
LIGHT_SIZE: Final = 4096
"""Bytes of a message whose properties are decoded for selectors at once."""


def endless() -> Spent:
    """Begin a share that is never used up."""
    return lambda: False
