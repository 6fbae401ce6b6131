"""Deliveries that clients have and have not settled: each has a token, an owner and a time at which it goes back."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Modified
from enmasse.amqp.link import Link, Receiver
from enmasse.bridge.uplink import LinkUser

MOST_OF_CLIENT: Final = 1000
"""Locks of a user."""
LOCK: Final = 60
LONGEST_LOCK: Final = 3600
"""Seconds of a lock, unless the client asks for others, and at most."""


class LockedDelivery:
    """A delivery on its way to an outcome. `owner`: full name of the user; `address`: as its requests name it."""

    __slots__ = ("address", "delivery_id", "fetch", "owner", "payload", "seconds", "settled", "timer", "token")

    def __init__(self, fetch: Fetch, delivery_id: int, payload: bytes) -> None:
        self.fetch = fetch
        self.delivery_id = delivery_id
        self.payload = payload
        self.token = ""
        self.owner = self.address = ""
        self.seconds = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.settled: asyncio.Future[bool] | None = None
        """Done with True once the outcome is final, with False if the link was lost before."""


class Fetch(LinkUser):
    """The link of one request for messages. It stays until all of its deliveries have an outcome."""

    def __init__(self, locks: Locks, most: int) -> None:
        self.locks = locks
        self.link: Receiver | None = None
        self.got: dict[int, LockedDelivery] = {}
        self.error: AmqpError | None = None
        self.over = False
        """No further message comes."""
        self.changed = asyncio.Event()
        self._most = most

    def attached_by(self, link: Receiver) -> None:
        """Use this link."""
        self.link = link
        link.context = self
        link.on_delivery = self._on_delivery
        link.grant(self._most)

    def _on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        found = LockedDelivery(self, delivery_id, payload)
        self.got[delivery_id] = found
        if settled:
            found.settled = asyncio.get_running_loop().create_future()
            found.settled.set_result(True)
        self.over = self.over or len(self.got) >= self._most
        self.changed.set()

    def on_drained(self, link: Receiver) -> None:
        """As LinkUser."""
        self.over = True
        self.changed.set()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link is not self.link:
            return
        self.link = None
        self.error = error
        self.over = True
        self.changed.set()
        for each in list(self.got.values()):
            if each.settled is None or not each.settled.done():
                self.locks.lost(each)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """As LinkUser."""
        for delivery_id in delivery_ids:
            found = self.got.get(delivery_id)
            if found is not None and found.settled is not None and not found.settled.done():
                found.settled.set_result(True)
                self.forget(found)

    def failed(self, error: Exception) -> None:
        """As LinkUser: the link of one request ends."""
        if self.link is not None and not self.link.detached:
            self.link.detach()

    def drain(self) -> None:
        """Ask for the messages that are there; the rest of the credit is returned."""
        if self.link is not None and not self.over:
            self.link.drain_credit()

    def settle(self, delivery: LockedDelivery, state: Any = ACCEPTED) -> None:
        """State an outcome. `delivery.settled` is done when it is final."""
        link = self.link
        if delivery.settled is None:
            delivery.settled = asyncio.get_running_loop().create_future()
        if delivery.settled.done():
            self.forget(delivery)
            return
        if link is None:
            delivery.settled.set_result(False)
            return
        second = link.second
        link.session.settle(delivery.delivery_id, state)
        if not second:
            delivery.settled.set_result(True)
            self.forget(delivery)

    def forget(self, delivery: LockedDelivery) -> None:
        """A delivery has its outcome."""
        self.got.pop(delivery.delivery_id, None)
        if not self.got and self.over and self.link is not None and not self.link.detached:
            link, self.link = self.link, None
            link.detach()

    def give_back(self, state: Any) -> None:
        """Return all deliveries, and end the link."""
        self.over = True
        for each in list(self.got.values()):
            self.settle(each, state)
        if not self.got and self.link is not None and not self.link.detached:
            link, self.link = self.link, None
            link.detach()


class Locks:
    """All locks of a gateway, by token. `name`: of the gateway, with which tokens begin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tokens: dict[str, LockedDelivery] = {}
        self.of_owner: Counter[str] = Counter()
        """User → locks that it has, or may get by requests that are under way."""
        self.ended: Counter[str] = Counter()
        """Outcome, `expired` or `lost` → deliveries."""

    def reserve(self, owner: str, count: int) -> contextlib.ExitStack | None:
        """Keep room for locks of a user, until what is returned is closed; None: the user has too many."""
        if self.of_owner[owner] + count > MOST_OF_CLIENT:
            return None
        self._count(owner, count)
        room = contextlib.ExitStack()
        room.callback(self._count, owner, -count)
        return room

    def _count(self, owner: str, count: int) -> None:
        self.of_owner[owner] += count
        if not self.of_owner[owner]:
            del self.of_owner[owner]

    def lock(self, delivery: LockedDelivery, owner: str, address: str, seconds: float) -> str:
        """Lock a delivery for a user, return its token. The user has room for it."""
        delivery.owner, delivery.address, delivery.seconds = owner, address, seconds
        delivery.token = token = f"{self.name}.{secrets.token_urlsafe(16)}"
        self.tokens[token] = delivery
        self._count(owner, 1)
        self.renew(delivery)
        return token

    def renew(self, delivery: LockedDelivery) -> None:
        """Begin the time of a lock again."""
        if delivery.timer is not None:
            delivery.timer.cancel()
        delivery.timer = asyncio.get_running_loop().call_later(delivery.seconds, self._expired, delivery)

    def _expired(self, delivery: LockedDelivery) -> None:
        if self.take(delivery):
            self.ended["expired"] += 1
            delivery.fetch.settle(delivery, Modified(delivery_failed=True))

    def lost(self, delivery: LockedDelivery) -> None:
        """The link of a delivery is gone: the message is redelivered."""
        delivery.fetch.got.pop(delivery.delivery_id, None)
        if self.take(delivery):
            self.ended["lost"] += 1
        if delivery.settled is not None and not delivery.settled.done():
            delivery.settled.set_result(False)

    def take(self, delivery: LockedDelivery) -> bool:
        """End a lock: its delivery gets an outcome. Return False if it has ended before."""
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None
        if self.tokens.pop(delivery.token, None) is None:
            return False
        self._count(delivery.owner, -1)
        return True
