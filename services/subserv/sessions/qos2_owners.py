"""Messages of QoS 2 from contended sources: each belongs to one session. Pure.

A source is contended if several sessions may receive from it: a queue address, or the queue of a shared subscription.
Once a session has begun an exchange, its client gets the message, also after reconnecting (v5 MQTT-4.8.2-4). The broker
may deliver such a message once more until it has settled it: then the service refuses it to every other session.
If the session ends first, a message of a shared subscription is discarded (MQTT-4.8.2-5), and a message of a queue
address that its client has not confirmed by PUBREC is returned to the queue (`services.subserv.sessions.requeue`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from enmasse.model.sessions import is_address, is_contended
from enmasse.stores import Change
from services.subserv import records

MOST_OF_SESSION = 8 * 1024 * 1024
"""Bytes of messages that are held for one session; what is beyond stays with the broker until PUBREC."""
MOST = 1024 * 1024 * 1024
"""Bytes of held messages of all sessions, at most."""
MOST_ENDED = 100_000
"""Messages that sessions have had, and the broker may have still: beyond, the oldest are forgotten."""

Message = tuple[str, str]
"""Source and identity."""
Undo = tuple[dict[Any, Any], Any, Any]
"""A dict, a key of it, and the value it had; None: none."""
_ALL = ""
"""In place of a client, which is never empty."""


class Qos2Owners:
    """`owners`: the client whose session has begun an exchange. `ended`: messages whose exchange has ended, and which
    the broker may still have, oldest first."""

    def __init__(self) -> None:
        self.owners: dict[Message, str] = {}
        self.ended: dict[Message, bool] = {}
        self.returning: dict[Message, None] = {}
        """Messages that go back to their queue; each is stored in `records.RETURNED`."""
        self._bytes: dict[str, int] = {}
        """Bytes of held messages, by client."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all held messages."""
        return self._bytes.get(_ALL, 0)

    def has_room(self, client: str, size: int) -> bool:
        """Return whether a message may be held for this client."""
        held = self._bytes
        return held.get(client, 0) + size <= MOST_OF_SESSION and held.get(_ALL, 0) + size <= MOST

    def hold(self, client: str, more: int, undo: list[Undo]) -> None:
        """Count `more` bytes as held for a client (negative: fewer)."""
        for key in (client, _ALL):
            old = self._bytes.get(key)
            undo.append((self._bytes, key, old))
            self._bytes[key] = (old or 0) + more
            if not self._bytes[key]:
                del self._bytes[key]

    def is_taken(self, client: str, source: str, identity: str | None) -> bool:
        """Return whether another session has, or any session had, this message."""
        if identity is None:
            return False
        message = source, identity
        return message in self.ended or self.owners.get(message, client) != client

    def end(self, messages: Iterable[Message]) -> list[Change]:
        """Return the changes that store the end of these exchanges."""
        return [Change(records.ENDED, records.ended_key(*message), b"1") for message in messages]

    def over(self, client: str, messages: Iterable[Message]) -> None:
        """Note the messages of a session that has ended: they are completed, and that is stored."""
        self.hold(client, -self._bytes.get(client, 0), [])
        for message in messages:
            self.owners.pop(message, None)
            self.ended[message] = True

    def to_return(self) -> dict[str, list[Message]]:
        """Return the messages that go back to their queues, by queue."""
        return _by_source(self.returning)

    def returned(self, messages: Iterable[Message]) -> None:
        """Remove messages that their queues have accepted."""
        for message in messages:
            self.returning.pop(message, None)

    def forget(self, messages: Iterable[Message]) -> None:
        """Forget messages that the broker cannot deliver again; the store has forgotten them."""
        for message in messages:
            self.ended.pop(message, None)

    def too_many(self) -> list[Message]:
        """Return the oldest ended exchanges beyond the limit."""
        beyond = len(self.ended) - MOST_ENDED
        return list(islice(self.ended, beyond)) if beyond > 0 else []

    def waiting(self) -> dict[str, list[Message]]:
        """Return the messages whose exchange has ended, by source."""
        return _by_source(self.ended)


def _by_source(messages: Iterable[Message]) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(message[0], []).append(message)
    return found


def goes_back(message: Message) -> bool:
    """Return whether a message returns to its queue if its session ends before PUBREC: it is from a queue address."""
    return is_address(message[0])


def of_group(source: str, identity: str | None) -> Message | None:
    """Return the message of a contended source; None: the source is the session's own, or there is no identity."""
    return (source, identity) if identity is not None and is_contended(source) else None
