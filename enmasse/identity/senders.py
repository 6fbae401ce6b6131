"""Senders: whose message it is, as routers state it to brokers, which remember the ids of messages for each sender
(docs/contracts.md, "Router ↔ broker").

A sender is SIZE bytes; none: the anonymous user, or no router states it. The bytes of a user are the same at every
router and after every restart. Services send for users: an id of theirs says for whom, in front of a colon.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.processes.roles import GATEWAYS, Role

SIZE: Final = 13
SERVICE: Final = b"s".ljust(SIZE, b"\0")
"""A gateway, the subscription service, the last-will service."""
OPERATOR: Final = b"o".ljust(SIZE, b"\0")
"""Operators, and the console."""
_SERVICES: Final = frozenset((*GATEWAYS, Role.SUBSERV, Role.LWT))
_OPERATORS: Final = frozenset((Role.CONSOLE, Role.OPERATOR))
_SEPARATOR: Final = b":"


@lru_cache(maxsize=4096)
def _of_user(space: str, name: str) -> bytes:
    return b"u" + blake2b(f"{space}\0{name}".encode("utf-8", "surrogatepass"), digest_size=SIZE - 1).digest()


def of_user(principal: Principal) -> bytes:
    """Return the sender that a user is."""
    return b"" if principal.name == ANONYMOUS else _of_user(principal.space, principal.name)


def of_role(role: str) -> bytes:
    """Return the sender that a process of this role is."""
    return SERVICE if role in _SERVICES else OPERATOR if role in _OPERATORS else b""


def new_id(principal: Principal) -> str:
    """Return a new duplicate id of a message that a service sends for a user. It cannot be guessed: a
    client that could would use it up before."""
    return id_for(principal, secrets.token_hex(16))


def id_for(principal: Principal, unique: str) -> str:
    """Return the duplicate id that a service makes of a text for a user."""
    return f"{of_user(principal)[1:].hex()}:{unique}"


def keyed(key: bytes, text: str) -> str:
    """Return a text that is the same for the same text, and cannot be foreseen without the key."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=key).hexdigest()


def shown(id: str) -> str:
    """Return a message-id for a message with a duplicate id: it tells nothing of that."""
    return blake2b(id.encode(), digest_size=16).hexdigest()


def of_operator(user: bytes) -> bytes:
    """Return the sender of a message of an operator, or of the console, which states its caller's name as user-id."""
    return b"o" + blake2b(user, digest_size=SIZE - 1).digest() if user else OPERATOR


def in_service_id(id: bytes) -> tuple[bytes, bytes]:
    """Return the sender that an id of a service stands for, and the rest of the id. Ids of earlier versions name no
    user: then the sender is the services'."""
    user, separator, rest = id.partition(_SEPARATOR)
    if not separator or len(user) not in (0, 2 * SIZE - 2):
        return SERVICE, id
    try:
        return b"s" + bytes.fromhex(user.decode("ascii")).ljust(SIZE - 1, b"\0"), rest
    except ValueError:
        return SERVICE, id
