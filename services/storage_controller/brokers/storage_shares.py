"""Uses and shares of one broker in the storage of address spaces (docs/contracts.md, "Storage of address spaces")."""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """Storage of a space at a broker, in bytes. `wanted`: of the smallest message that did not fit; `present`: the
    broker has, or had, addresses of the space."""

    used: int
    wanted: int
    share: int
    present: bool


class Given(NamedTuple):
    """Share of a broker, in bytes. `limit`: of all brokers; `refused`: size from which a message that does not fit has
    no room at any broker; 0: there may be some."""

    share: int
    limit: int
    refused: int


Shares = dict[str, Given]
"""Space → share of one broker."""
