"""Words of messages for people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 queue`, `2 queues`. The plural ends in s unless one is given."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def offset_option(offset: int) -> str:
    """What a proposed `enmasse` command needs to concern the suite with this port offset; empty for offset 0."""
    return f" --port-offset {offset}" if offset else ""
