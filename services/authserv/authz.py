"""The property `address-authz` of the delegation contract: permissions for routers that enforce them themselves
(docs/contracts.md, "authserv"). Pure.

Qpid Dispatch compares a key with an address as text; a last character `*` stands for any text. Permissions that cannot
be expressed so are narrowed: nothing is allowed that `Rights` would refuse, but for the names of the suite under `*`.
"""

from __future__ import annotations

from typing import Final

from enmasse.amqp.codec.types import Array
from enmasse.identity.permissions import Rights, expanded
from enmasse.identity.processes.roles import Access
from enmasse.model.permission_words import OPERATIONS, Operation

AUTHZ: Final = "ADDRESS-AUTHZ"
"""The capability with which a router asks for the property."""
NOTHING: Final[dict[str, Array]] = {}
"""Allows nothing; without the property a router would allow everything."""


_ALL: Final = "#"


def address_authz(rights: Rights, user: str, *, spaces: bool = False) -> dict[str, Array]:
    """Return key → array of operations, for the Open of Qpid Dispatch. Left out: patterns with `*` for one word, and
    those of which a part is denied, names with a comma, at which Dispatch would split them, and `#` while there are
    other address `spaces` than the default one: Dispatch would allow their addresses with it."""
    found: dict[str, list[Operation]] = {}
    for rule in rights.rules:
        permission = rule.permission
        if permission.effect != "allow":
            continue
        for pattern in permission.addresses:
            name = expanded(pattern, user)
            for key in () if spaces and name == _ALL else _keys(name):
                operations = found.setdefault(key, [])
                operations += [
                    operation
                    for operation in OPERATIONS
                    if operation in permission.operations
                    and operation not in operations
                    and rights.covers(operation, name).allowed
                ]
    return _arrays(found)


def of_process(access: Access) -> dict[str, Array]:
    """Return the same for a process of the suite. `#` also allows what begins with `$`: Dispatch cannot except it."""
    found: dict[str, list[Operation]] = {}
    granted: list[tuple[Operation, tuple[str, ...]]] = [("send", access.send), ("recv", access.recv)]
    for operation, patterns in granted:
        for key in (key for pattern in patterns for key in _keys(pattern)):
            found.setdefault(key, []).append(operation)
    return _arrays(found)


def allows_every_address(access: Access) -> bool:
    """Return whether all that `of_process` states is that every address is allowed."""
    return "#" in access.send and "#" in access.recv


def _arrays(found: dict[str, list[Operation]]) -> dict[str, Array]:
    return {key: Array(str, operations) for key, operations in found.items() if operations and "," not in key}


def _keys(pattern: str) -> list[str]:
    if pattern == _ALL:
        return ["*"]
    if pattern.endswith(("/#", ".#")):
        return [pattern[:-2], f"{pattern[:-2]}/*", f"{pattern[:-2]}.*"]
    return [] if pattern.endswith("*") else [pattern]
