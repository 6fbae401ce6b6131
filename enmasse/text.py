"""Words of messages for people."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 queue`, `2 queues`: a number and the noun that goes with it, whose plural ends in s."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def offset_option(offset: int) -> str:
    """What a proposed `enmasse` command needs to concern the suite with this port offset; empty for offset 0."""
    return f" --port-offset {offset}" if offset else ""
