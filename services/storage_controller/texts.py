"""Texts for users about an address that leaves a broker, is full, or cannot be removed. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from enmasse.model.addresses import Address
from enmasse.model.names import DEFAULT_SPACE, AddressName, split_name
from enmasse.process import runner
from enmasse.text import counted
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import Holding

Holders = list[tuple[ManagedBroker, Holding]]
"""Brokers with their holdings of one address."""


def consumers(holdings: Holders) -> int | None:
    """Return the number of a topic's consumers; None if no broker holds it as a topic: routers count those."""
    return (
        sum(held.consumers for _, held in holdings if held.kind == "topic")
        if any(held.kind == "topic" for _, held in holdings)
        else None
    )


def leaving(want: Address, left: Holders) -> str:
    """Describe an address that is held by brokers on which it no longer belongs."""
    if not left:
        return ""
    old = left[0][0].flavor
    what = f"given flavor {want.flavor} instead of {old}" if old != want.flavor else f"moved within flavor {old}"
    if any(held.messages for _, held in left):
        return f"{what}: {remains(left)}, which consumers get too; it leaves there when they have"
    return f"{what}: {remains(left)}"


def remains(left: Holders) -> str:
    """Describe what brokers still hold of an address."""
    messages = sum(held.messages for _, held in left)
    brokers = ", ".join(broker.name for broker, held in left if held.messages or not messages)
    if not messages:
        return f"is empty on broker {brokers} and goes as soon as no producer can reach it there"
    return f"still holds {counted(messages, 'message')} on broker {brokers}"


def discard(name: AddressName, left: Holders, *, again: bool) -> str:
    """Return what users can do about remaining messages; `again`: the address stays in the file."""
    if not any(held.messages for _, held in left):
        return ""
    return f"; consume them, or discard them: {force(name)}{', then add it again' if again else ''}"


def listed(names: Iterable[str]) -> str:
    """Return the first five names, sorted and joined."""
    found = sorted(names)
    return ", ".join(found[:5]) + (", …" if len(found) > 5 else "")


def full(broker: str, policy: str, want: Address) -> str:
    """State that the address is full, or that its broker stores nothing; what happens to the next message, and what
    to do."""
    if policy == "DISK":
        return f"full: the disk of broker {broker} has no room, durable messages are rejected; make room there"
    if policy == "STORE":
        return (
            f"broker {broker} stores nothing: its data directory was deleted or replaced, or cannot be read; durable "
            f"messages are rejected, those held can be consumed; do what {runner.command('status')} says of the broker"
        )
    then = {
        "FAIL": "further messages are rejected",
        "BLOCK": "senders wait for credit",
        "DROP": "further messages are discarded",
    }.get(policy, policy)
    limit = "its maxSize" if want.max_size is not None else f"STORAGE_CAPACITY or MEMORY of flavor {want.flavor}"
    return f"full: {then}; receive some, or raise {limit}"


def force(name: AddressName) -> str:
    """Return the command that removes an address with its messages, from its address space."""
    space, local = split_name(name)
    where = "" if space == DEFAULT_SPACE else f" --space {space}"
    return runner.command(f"address remove {shlex.quote(local)} --force{where}")
