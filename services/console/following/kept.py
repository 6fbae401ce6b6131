"""Rows of sessions, subscriptions, retained messages and wills, which services keep for clients of all spaces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing

import msgspec

from enmasse.api.types import Retained, Session, Subscription, Will
from enmasse.control import ControlConnection, ControlError
from enmasse.control.jsonmessage import body
from enmasse.identity.owned import owner, space_of_subscription
from enmasse.identity.principal import ANONYMOUS, named
from enmasse.model import sessions as wire
from enmasse.model.names import DEFAULT_SPACE, LocalName, full_name, space_of, space_prefix
from services.console.door.access import EVERYTHING
from services.console.errors import RequestError
from services.console.following.polled import Polled
from services.console.following.subscribers import Subscribers

MOST = 10_000
"""Retained messages that are listed: the first ones of each address space."""
SECONDS = 20.0
AWAY = "the last-will service does not answer; try again"
WINDOW = 10


class KeptForClients:
    """Rows that the subscription service and the last-will service are asked for. `router()`: the connection for the
    second; it raises RequestError without one. Rows say names as clients know them; retained messages have full names
    of topics as keys."""

    def __init__(self, service: Subscribers, router: Callable[[], Awaitable[ControlConnection]]) -> None:
        self.sessions: Polled[Session] = Polled(self._all_sessions)
        self.subscriptions: Polled[Subscription] = Polled(self._all_subscriptions)
        self.retained: Polled[Retained] = Polled(self._all_retained)
        self.wills: Polled[Will] = Polled(self._all_wills)
        self._service = service
        self._router = router
        self._spaces_of_subscriptions: dict[str, str] = {}
        self._waiting: dict[str, int] = {}
        """MQTT client → messages that are stored for its session."""
        self._spaces_of_wills: dict[str, str] = {}

    def space_of_subscription(self, id: str) -> str:
        """Return the address space of a subscription."""
        return self._spaces_of_subscriptions.get(id, DEFAULT_SPACE)

    def space_of_will(self, id: str) -> str:
        """Return the address space of a will."""
        return self._spaces_of_wills.get(id, DEFAULT_SPACE)

    async def renew_sessions(self) -> None:
        """Ask for sessions and their subscriptions in any case, because one was deleted. Raises RequestError."""
        await self.subscriptions.renew()
        await self.sessions.renew()

    async def _all_sessions(self) -> dict[str, Session]:
        found, _ = await asyncio.gather(
            self._service.ask("sessions", None, wire.SessionsReply), self.subscriptions.fresh()
        )
        return {row.client: session(row, self._waiting.get(row.client, 0)) for row in found.sessions}

    async def _all_subscriptions(self) -> dict[str, Subscription]:
        found = await self._service.ask("subscriptions", None, wire.SubscriptionsReply)
        self._spaces_of_subscriptions = {row.id: space_of_row(row) for row in found.subscriptions}
        self._waiting = {row.client: row.depth for row in found.subscriptions if row.kind == "mqtt"}
        return {row.id: subscription(row) for row in found.subscriptions}

    async def _all_retained(self) -> dict[str, Retained]:
        found = await self._service.ask("retained", wire.ByFilter(limit=MOST, everywhere=True), wire.RetainedReply)
        return by_topic(found.retained)

    async def _all_wills(self) -> dict[str, Will]:
        connection = await self._router()
        found: dict[str, Will] = {}
        spaces: dict[str, str] = {}
        try:
            with closing(connection.receiver(wire.WILLS, window=WINDOW)) as receiver:
                async with asyncio.timeout(SECONDS):
                    async for delivery in receiver:
                        for row in msgspec.json.decode(body(delivery), type=wire.Wills).wills:
                            spaces[row.id] = space_of_client(row.client) if row.mqtt else space_of(row.topic)
                            found[row.id] = _will(row, spaces[row.id])
        except ControlError as error:
            if error.condition != "detached" or not connection.is_open:
                raise RequestError("console.service.unavailable", AWAY) from None
        except (TimeoutError, msgspec.DecodeError):
            raise RequestError("console.service.unavailable", AWAY) from None
        self._spaces_of_wills = spaces
        return found


def space_of_client(client: str) -> str:
    """Return the address space of a client, by the name under which it owns things."""
    return owner(client).space


def space_of_row(row: wire.SubscriptionRow) -> str:
    """Return the address space of a subscription."""
    return space_of_subscription(row.kind, row.client, row.names)


def session(row: wire.SessionRow, waiting: int) -> Session:
    """Return the row of an MQTT session. `waiting`: messages that are stored for it."""
    return Session(
        id=row.client, client=owner(row.client).client, user=_user(row.client), connected=row.connected,
        gateway=row.gateway, peer=row.peer, protocol=row.protocol, since=row.since, expiry=row.expiry,
        subscriptions=row.subscriptions, in_flight=row.in_flight, waiting=waiting,
    )  # fmt: skip


def subscription(row: wire.SubscriptionRow) -> Subscription:
    """Return the row of a subscription."""
    owned = row.kind in ("mqtt", "amqp")
    prefix = space_prefix(space_of_row(row))
    return Subscription(
        id=row.id, kind=row.kind, client=owner(row.client).client if owned else row.client,
        user=_user(row.client) if owned else None,
        filters={filter.removeprefix(prefix): granted for filter, granted in row.filters.items()}, depth=row.depth,
        since=row.since or None, brokers=row.brokers, connected=row.connected,
        names=[name.removeprefix(prefix) for name in row.names],
    )  # fmt: skip


def by_topic(rows: Iterable[wire.RetainedRow]) -> dict[str, Retained]:
    """Return the rows by full topic. Several names on AMQP may have one topic, which is cleared for all of them."""
    found: dict[str, Retained] = {}
    for row in rows:
        prefix = space_prefix(space_of(row.name))
        topic = row.topic.removeprefix(prefix)
        key = full_name(space_of(row.name), LocalName(topic))
        first = found.get(key)
        names = [*(first.names if first is not None else ()), row.name.removeprefix(prefix) or EVERYTHING]
        found[key] = msgspec.structs.replace(first or _retained(row, topic), names=names)
    return found


def _retained(row: wire.RetainedRow, topic: str) -> Retained:
    return Retained(
        topic=topic, size=row.size, qos=row.qos, since=row.since, expires=row.expires or None, broker=row.broker,
        user=named(row.user).name or None, withheld=row.withheld,
    )  # fmt: skip


def _will(row: wire.WillRow, space: str) -> Will:
    return Will(
        id=row.id, client=owner(row.client).client if row.mqtt else row.client,
        user=_user(row.client) if row.mqtt else None, topic=row.topic.removeprefix(space_prefix(space)), qos=row.qos,
        retain=row.retain, delay=row.delay, size=row.size, state=row.state, due=row.due,
    )  # fmt: skip


def _user(client: str) -> str | None:
    found = owner(client).user
    return None if found == ANONYMOUS else found
