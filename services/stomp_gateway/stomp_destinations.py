"""Destinations of clients as names of addresses: one table, with the forms of other brokers. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from enmasse.model.names import plain_name

LONGEST: Final = 1024
TEMPORARY: Final = ("/temp-queue/", "/temp-topic/")
"""A name behind these is the client's own: the gateway makes an address for it, which ends with the subscription."""
_PREFIXES: Final = ("/queue/", "/topic/", "/amq/queue/")
_EXCHANGE: Final = "/exchange/"
_NO_NAME: Final = re.compile(r"[\x00-\x20\x7f]|::")

TABLE: Final = (
    ("`jobs`, `events/room1`", "the address of this name", "Artemis without prefixes"),
    ("`/queue/jobs`", "`jobs`", "ActiveMQ, RabbitMQ"),
    ("`/topic/events/room1`", "`events/room1`", "ActiveMQ, RabbitMQ"),
    ("`/amq/queue/jobs`", "`jobs`", "RabbitMQ"),
    ("`/exchange/events/room1.temperature`", "`events/room1/temperature`", "RabbitMQ: the key has dots"),
    ("`/exchange/events/*.temperature`", "`events/+/temperature`", "RabbitMQ: `*` is one level, `#` all further ones"),
    ("`/temp-queue/answers`", "an address of its own, until UNSUBSCRIBE", "ActiveMQ, RabbitMQ: for replies"),
)


class NoDestination(ValueError):
    """The text names no address."""


class StompDestination(NamedTuple):
    """An address. `name`: as clients of AMQP know it, with wildcards `+` and `#`; `prefix`: what the client has written
    in front of it, as in what it gets; `temporary`: the client's own name of an address that is made for it."""

    name: str
    prefix: str = ""
    temporary: str = ""

    @property
    def wild(self) -> bool:
        """Return whether it has wildcards."""
        return any(level in ("+", "#", "*") for level in self.name.split("/"))


def table() -> str:
    """Return TABLE as in the documentation."""
    lines = ["| `destination` | address | as in |", "|---|---|---|"]
    lines += [f"| {written} | {address} | {where} |" for written, address, where in TABLE]
    return "\n".join(lines) + "\n"


def destination(text: str) -> StompDestination:
    """Return the address of a destination. Raises NoDestination."""
    if not text or len(text) > LONGEST:
        raise NoDestination(f"destination: expected the name of an address, 1 to {LONGEST} characters")
    for prefix in TEMPORARY:
        if text.startswith(prefix):
            return StompDestination("", temporary=_checked(text[len(prefix) :], text))
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            return StompDestination(_checked(text[len(prefix) :], text), prefix)
    if text.startswith(_EXCHANGE):
        exchange, slash, key = text[len(_EXCHANGE) :].partition("/")
        levels = ["+" if level == "*" else level for level in key.split(".")] if slash else []
        return StompDestination(_checked("/".join((exchange, *levels)), text), _EXCHANGE)
    return StompDestination(_checked(text, text))


def _checked(name: str, text: str) -> str:
    plain = plain_name(name)
    if not plain or plain.endswith("/") or "//" in plain or _NO_NAME.search(plain):
        raise NoDestination(f"destination {text[:100]!r}: no address has this name")
    return plain
