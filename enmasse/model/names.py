"""Names: of addresses, legal and on the wire; of flavors and brokers, which become names of processes and files.

`AddressName` is what identifies an address inside EnMasse: the key in configuration, feeds, controllers' tables and
entity names. It has the address space in front, `!!SPACE/NAME`; in the default space it is NAME. `LocalName` is NAME:
what clients and people state, each in its space. `full_name` and `split_name` alone convert one to the other.
`WireName` is what a router matches and what the queue on a broker is called; `wire_name` and `address_name` alone
convert it. All are plain strings while the program runs; mypy keeps them apart (docs/decisions/0015-platform.md, 0051).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType
from urllib.parse import quote

LocalName = NewType("LocalName", str)
AddressName = NewType("AddressName", str)
WireName = NewType("WireName", str)

MANAGEMENT: Final = "$management"
"""Address of a router's management."""
MAX_ADDRESS = 512
"""Bytes of an address's name in UTF-8."""
_SIMPLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LEGAL_ADDRESS = re.compile(r"(?!!!)[A-Za-z0-9!-][A-Za-z0-9./_!-]*")
_FORBIDDEN = ("::", "*", "+", "#", "amqp:")
DEFAULT_SPACE: Final = "default"
"""The address space of all that names none."""
SPACE: Final = "!!"
"""Beginning of the full names of all address spaces but the default one. No client may state it, nor any file."""
_SPACE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
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


class InSpace(NamedTuple):
    """A name and its address space."""

    space: str
    local: LocalName


def space_error(name: str) -> str | None:
    """Return why `name` cannot be the name of an address space, None if it can. The default space has its name by
    itself."""
    if name == DEFAULT_SPACE:
        return f"{name!r} is the address space that is always there: its files have no folder; choose another name"
    if _SPACE_NAME.fullmatch(name):
        return None
    return (
        "the name of an address space is made of small letters, digits and '-', 63 at most, and begins and ends with a "
        "letter or digit"
    )


def user_in_space(user: str, space: str) -> str:
    """Return the name by which a client says that it is this user of an address space."""
    return user if user.endswith(f"@{space}") else f"{user}@{space}"


def space_prefix(space: str) -> str:
    """Return the beginning of the full names of an address space; empty: the default one's have none."""
    return "" if space == DEFAULT_SPACE else f"{SPACE}{space}/"


def full_name(space: str, local: LocalName) -> AddressName:
    """Return the name by which an address of a space is known inside."""
    return AddressName(space_prefix(space) + local)


def in_space(space: str, text: str) -> str:
    """Return a text of the suite in which full names of this space, and names of what its clients own
    (enmasse/identity/owned.py), are as in the default space; escaped ones too, as in names of queues."""
    if space == DEFAULT_SPACE:
        return text
    for inside, local in ((f"{SPACE}{space}/", ""), (f"~@{space}/", ""), (f"@{space}/", "/")):
        text = text.replace(inside, local).replace(quote(inside, safe=""), local.replace("/", "%2F"))
    return text


def space_of(full: str) -> str:
    """Return the address space of a full name."""
    return split_name(AddressName(full)).space


def split_name(name: AddressName) -> InSpace:
    """Return the address space of an address, and its name there: the inverse of `full_name`."""
    if not name.startswith(SPACE):
        return InSpace(DEFAULT_SPACE, LocalName(name))
    space, _, local = name.removeprefix(SPACE).partition("/")
    return InSpace(space, LocalName(local))


def by_space(names: Iterable[AddressName]) -> dict[str, list[LocalName]]:
    """Return space → names there, in their order."""
    found: dict[str, list[LocalName]] = {}
    for name in names:
        space, local = split_name(name)
        found.setdefault(space, []).append(local)
    return found


def wire_name(name: AddressName) -> WireName:
    """Return the name of the address on routers and brokers: its full name."""
    return WireName(name)


def address_name(wire: WireName) -> AddressName:
    """The address whose name on the wire this is, if it is an address's at all: the inverse of `wire_name`."""
    return AddressName(wire)


def plain_name(address: str) -> str:
    """Return an address without scheme and host, as routers read it, and without separators in front, so that nothing
    hides how the name begins: `amqp:/name`, `amqp://host/name` and `/name` are `name`."""
    while True:
        shorter = address.lstrip("./")
        if shorter.startswith(("amqp:", "amqps:")):
            shorter = shorter.partition(":")[2]
            if shorter.startswith("//"):
                shorter = shorter[2:].partition("/")[2]
        if shorter == address:
            return address
        address = shorter


def states_space(address: str) -> bool:
    """Return whether an address names an address space, in whatever form, or a queue in one (`address::queue`)."""
    if SPACE not in address:
        return False
    return any(plain_name(part).startswith(SPACE) for part in plain_name(address).split("::"))


HTTP_GATEWAYS: Final = "$http"
"""`$http/NAME`: node at which an HTTP gateway is asked by others about locks of clients."""
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
