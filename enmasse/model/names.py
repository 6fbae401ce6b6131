"""Names: of addresses, legal and on the wire; of flavors and brokers, which become names of processes and files.

`AddressName` is what identifies an address inside EnMasse: the key in configuration, feeds, controllers' tables and
entity names, and what people type on the command line. `WireName` is what clients attach to, what a router matches and
what the queue on a broker is called. `wire_name` and `address_name` alone convert one to the other. Both are
plain strings while the program runs; mypy keeps them apart (docs/decisions/0015-platform.md).
"""

from __future__ import annotations

import re
from typing import Final, NewType

AddressName = NewType("AddressName", str)
WireName = NewType("WireName", str)

MANAGEMENT: Final = "$management"
"""Address of a router's management."""
MAX_ADDRESS = 512
"""Bytes of an address's name in UTF-8."""
_SIMPLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LEGAL_ADDRESS = re.compile(r"(?!!!)[A-Za-z0-9!-][A-Za-z0-9./_!-]*")
_FORBIDDEN = ("::", "*", "+", "#", "amqp:")
SPACE: Final = "!!"
"""Beginning of the names of addresses in an address space of their own, `!!SPACE/NAME`: clients may state none."""
_FORBIDDEN_START = ("$", "_", SPACE, "/", ".")


def address_error(name: str) -> str | None:
    """Return why `name` cannot be an address, None if it can."""
    if _LEGAL_ADDRESS.fullmatch(name) and len(name) <= MAX_ADDRESS:
        return None
    if not name:
        return "an address needs a name"
    for part in _FORBIDDEN_START:
        if name.startswith(part):
            return f"a name must not begin with {part!r}; rename the address"
    for part in _FORBIDDEN:
        if part in name:
            return f"a name must not contain {part!r}; rename the address"
    for character in name:
        if character.isspace() or not character.isprintable():
            return "a name must not contain white space or control characters; rename the address"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_ADDRESS:
        return f"a name may have {MAX_ADDRESS} bytes at most; shorten it"
    return None


def wire_name(name: AddressName) -> WireName:
    """Return the name of the address on AMQP connections, routers and brokers. There is one address space: it is the
    name."""
    return WireName(name)


def address_name(wire: WireName) -> AddressName:
    """The address whose name on the wire this is, if it is an address's at all: the inverse of `wire_name`."""
    return AddressName(wire)


RELAYS_TO_TOPICS: Final = "enmasse.relays-to-topics"
"""A capability that routers offer in `open` if their anonymous terminus reaches topics, as Qpid Dispatch's does not."""


_TEMPORARY: Final = re.compile(r"_topo/[^/]+/[^/]+/temp\.[^/]+")


def is_temporary(address: str) -> bool:
    """Return whether a router has made this address for a receiver: whoever got it in a message may reply there."""
    return _TEMPORARY.fullmatch(address) is not None


def session_prefix(broker: str) -> WireName:
    """Return the part before `/` of the wire names of all queues of sessions and durable subscriptions on a broker.

    Routers read `.` as `/`, so `.` is escaped: else what is on broker `a.b` would be below the prefix of broker `a`.
    """
    return WireName(f"$sub/{broker.replace('.', '%2E')}")


def router_form(name: str) -> str:
    """Return the name as routers compare it: they read `.` as `/`."""
    return name.replace(".", "/")


def simple_error(name: str, what: str) -> str | None:
    """Return why `name` cannot name a flavor or a broker, None if it can."""
    if _SIMPLE.fullmatch(name):
        return None
    return (
        f"a {what}'s name is made of letters, digits, '.', '_' and '-', 63 at most, and begins with a letter or digit"
    )
