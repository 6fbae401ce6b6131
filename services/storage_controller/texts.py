"""What people read of an address that leaves a broker, is full, or cannot go. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from enmasse import process
from enmasse.model.addresses import Address
from enmasse.text import counted
from services.storage_controller.broker import ManagedBroker
from services.storage_controller.contents import Holding

Holders = list[tuple[ManagedBroker, Holding]]
"""Brokers, and what each of them holds of an address."""


def consumers(holdings: Holders) -> int | None:
    """Consumers of a topic. Those of a queue are behind routers, which count them: here there is a router's link."""
    return (
        sum(held.consumers for _, held in holdings if held.kind == "topic")
        if any(held.kind == "topic" for _, held in holdings)
        else None
    )


def leaving(want: Address, left: Holders) -> str:
    """For an address of which something lies where it does not belong any more."""
    if not left:
        return ""
    old = left[0][0].flavor
    what = f"given flavor {want.flavor} instead of {old}" if old != want.flavor else f"moved within flavor {old}"
    if any(held.messages for _, held in left):
        return f"{what}: {remains(left)}, which consumers get too; it leaves there when they have"
    return f"{what}: {remains(left)}"


def remains(left: Holders) -> str:
    messages = sum(held.messages for _, held in left)
    brokers = ", ".join(broker.name for broker, held in left if held.messages or not messages)
    if not messages:
        return f"is empty on broker {brokers} and goes as soon as no producer can reach it there"
    return f"still holds {counted(messages, 'message')} on broker {brokers}"


def discard(name: str, left: Holders, *, again: bool) -> str:
    """What people can do about messages; `again`: the file has the address, and is to keep it."""
    if not any(held.messages for _, held in left):
        return ""
    return f"; consume them, or discard them: {force(name)}{', then add it again' if again else ''}"


def listed(names: Iterable[str]) -> str:
    """The first five of them."""
    found = sorted(names)
    return ", ".join(found[:5]) + (", …" if len(found) > 5 else "")


def full(broker: str, policy: str, want: Address) -> str:
    """That the address takes no more, what becomes of the next message, and what to do."""
    if policy == "DISK":
        return f"full: the disk of broker {broker} has no room, durable messages are rejected; make room there"
    then = {
        "FAIL": "further messages are rejected",
        "BLOCK": "senders wait for credit",
        "DROP": "further messages are thrown away",
    }.get(policy, policy)
    limit = "its maxSize" if want.max_size is not None else f"STORAGE_CAPACITY or MEMORY of flavor {want.flavor}"
    return f"full: {then}; receive some, or raise {limit}"


def force(name: str) -> str:
    return process.command(f"address remove {shlex.quote(name)} --force")
