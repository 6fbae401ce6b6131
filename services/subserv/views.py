"""Requests of the command line: subscriptions, sessions, retained messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from enmasse.control import ControlError
from enmasse.identity.mqtt_permissions import names_of_all
from enmasse.logs import log
from enmasse.model import sessions as wire
from enmasse.model.names import AddressName, space_of, split_name
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.topics import fault_of_filter, matches
from enmasse.network.fair_turns import InTurn
from services.subserv import broker_names
from services.subserv.brokers.broker_requests import Row
from services.subserv.retained.tree import Retained
from services.subserv.service import SubscriptionService
from services.subserv.sessions.sessions import Session, Share
from services.subserv.subscription_placement import Subscriber


class Unknown(Exception):
    """Raised if the requested thing does not exist; the text names it."""


class Views:
    """Bodies as in enmasse/model/sessions.py. Raises StoreError, ControlError."""

    def __init__(self, service: SubscriptionService) -> None:
        self._service = service

    async def subscriptions(self) -> wire.SubscriptionsReply:
        """Return all subscriptions, also durable ones of AMQP clients that brokers keep by themselves."""
        depths, durable = await self._listed()
        rows = [self._row(each, depths) for each in self._service.subscribers()]
        return wire.SubscriptionsReply(subscriptions=[*rows, *durable])

    async def subscription(self, request: wire.ById) -> wire.SubscriptionRow:
        """Return the subscription with this id. Raises Unknown."""
        found = (await self.subscriptions()).subscriptions
        row = next((row for row in found if row.id == request.id), None)
        if row is None:
            raise Unknown(f"there is no subscription {request.id[:200]!r}: `enmasse subscription list` shows them")
        return row

    async def delete(self, request: wire.ById) -> wire.Done:
        """Delete a subscription with its waiting messages. Raises Unknown if it does not exist, or ends with its
        members."""
        service = self._service
        subscriber = next((each for each in service.subscribers() if broker_names.plain(each.id) == request.id), None)
        if isinstance(subscriber, Session):
            return wire.Done(count=await service.clients.delete(subscriber.record.client, request.by))
        if isinstance(subscriber, Share):
            raise Unknown(
                f"{subscriber.name} ends with its last member: delete these sessions, or have them unsubscribe"
            )
        if subscriber is not None:
            return wire.Done(count=int(await service.amqp.close(service.amqp.by_id[subscriber.id].record.subscription)))
        broker_name, _, queue = request.id.partition("/")
        broker = service.brokers.get(broker_name)
        _, durable = await self._listed()
        if broker is None or all(row.id != request.id for row in durable):
            raise Unknown(f"there is no subscription {request.id[:200]!r}: `enmasse subscription list` shows them")
        await broker.conversation.delete_queue(queue)
        return wire.Done(count=1)

    async def _listed(self) -> tuple[dict[str, dict[str, int]], list[wire.SubscriptionRow]]:
        """Return id → broker → number of waiting messages, and the durable subscriptions of AMQP clients."""
        depths: dict[str, dict[str, int]] = {}
        durable: list[wire.SubscriptionRow] = []
        brokers = [broker for broker in self._service.brokers if broker.conversation.connected]
        listed = await asyncio.gather(*(broker.conversation.rows() for broker in brokers), return_exceptions=True)
        for broker, rows in zip(brokers, listed, strict=True):
            if isinstance(rows, BaseException):
                if not isinstance(rows, ControlError):
                    raise rows
                log.get(broker=broker.name).warning("subserv.listing.failed", reason=str(rows))
                continue
            for row in rows:
                id = broker_names.id_of(broker.name, row.name)
                if id is not None:
                    depths.setdefault(id, {})[broker.name] = int(row.messageCount)
                    if row.name in broker.conversation.unknown:
                        durable.append(_unknown_row(broker.name, id, row))
                elif row.is_durable_subscription:
                    durable.append(_durable_row(broker.name, row))
        return depths, durable

    def _row(self, subscriber: Subscriber, depths: dict[str, dict[str, int]]) -> wire.SubscriptionRow:
        where = depths.get(subscriber.id, {})
        depth, brokers = sum(where.values()), sorted(where)
        topics = self._service.desired.topics.of(subscriber.space)
        if isinstance(subscriber, Session):
            record = subscriber.record
            return wire.SubscriptionRow(
                id=broker_names.plain(subscriber.id),
                kind="mqtt",
                client=record.client,
                filters={each.filter: str(each.qos) for each in subscriber.subscriptions.values()},
                names=_names(topics, subscriber.subscriptions),
                depth=depth,
                since=_time(record.since),
                brokers=brokers,
                connected=record.connected,
            )
        if isinstance(subscriber, Share):
            return wire.SubscriptionRow(
                id=broker_names.plain(subscriber.id),
                kind="share",
                client=", ".join(sorted(subscriber.members)[:10]),
                filters={subscriber.name: ""},
                names=_names(topics, [subscriber.name]),
                depth=depth,
                brokers=brokers,
            )
        amqp = self._service.amqp.by_id[subscriber.id].record
        return wire.SubscriptionRow(
            id=broker_names.plain(subscriber.id),
            kind="amqp",
            client=amqp.subscription,
            filters={filter: tag or "" for filter, tag in amqp.filters.items()},
            names=[topics.full(name) for name in amqp.filters],
            depth=depth,
            since=_time(amqp.since),
            brokers=brokers,
        )

    def sessions(self) -> wire.SessionsReply:
        """Return all MQTT sessions."""
        return wire.SessionsReply(sessions=[_session_row(each) for each in self._service.sessions.by_client.values()])

    def disconnect(self, request: wire.ByClient) -> wire.Done:
        """Disconnect a client; its session stays as its expiry says. Raises Unknown if it is not connected."""
        count = self._service.clients.disconnect(request.client, request.reason, request.by)
        if not count:
            raise Unknown(
                f"no client {request.client[:200]!r} is connected: `enmasse mqtt clients --all` lists all clients"
            )
        return wire.Done(count=count)

    def retained(self, request: wire.ByFilter) -> wire.RetainedReply:
        """Return the retained messages that match, at most `limit` of them, and how many there are."""
        found = list(self._matching(request.filter, everywhere=request.everywhere))
        if request.everywhere:
            found = _in_turns(found)
        rows = [self._retained_row(entry) for entry in found[: request.limit]]
        return wire.RetainedReply(retained=rows, total=len(found))

    async def retained_message(self, request: wire.ByName) -> wire.RetainedMessage:
        """Return the retained message of a name on AMQP. Raises Unknown."""
        found = await self._service.retained.message(request.name)
        if found is None:
            raise Unknown(f"no message is retained for {request.name[:200]!r}")
        return wire.RetainedMessage(message=found)

    async def clear_retained(self, request: wire.ByFilter) -> wire.Done:
        """Remove the retained messages that match; return how many there were."""
        return wire.Done(count=await self._service.retained.clear(list(self._matching(request.filter))))

    def _matching(self, filter: str, *, everywhere: bool = False) -> Iterator[Retained]:
        """By topic, whether or not an address takes it now. Those of an address space begin with `!!SPACE/`, and no
        other filters cover them. `everywhere`: in each space, the topics as its clients know them."""
        space, plain = split_name(AddressName(filter))
        if (fault := fault_of_filter(plain)) is not None:
            raise Unknown(f"the filter {fault}")
        for entry in self._service.retained.index.match("#"):
            own = space_of(entry.name)
            if own != space and not everywhere:
                continue
            if plain == "#" or matches(plain, self._service.retained.topic(entry)):
                yield entry

    def _retained_row(self, entry: Retained) -> wire.RetainedRow:
        topics = self._service.desired.topics.of_name(entry.name)
        return wire.RetainedRow(
            topic=topics.full(self._service.retained.topic(entry)),
            name=entry.name,
            size=entry.size,
            qos=entry.qos,
            since=_time(entry.since / 1000),
            expires=_time(entry.expires / 1000) if entry.expires else "",
            broker=entry.broker,
            user="" if entry.author is None else entry.author.full_name,
            withheld=self._service.permits.refusal(entry, time.time_ns() // 1_000_000),
        )


def _in_turns(entries: Iterable[Retained]) -> list[Retained]:
    """Return the first of each address space, then the second ones, and so on."""
    turns: InTurn[Retained] = InTurn()
    for entry in entries:
        turns.add(space_of(entry.name), entry)
    return [turns.take() for _ in range(len(turns))]


def _names(topics: TopicMap, filters: Iterable[str]) -> list[str]:
    """Return the full names on AMQP of these filters."""
    return [topics.full(name) for name in names_of_all(topics, filters)]


def _session_row(session: Session) -> wire.SessionRow:
    record = session.record
    return wire.SessionRow(
        client=record.client,
        connected=record.connected,
        gateway=record.gateway,
        peer=record.peer,
        protocol=record.protocol,
        since=_time(record.since),
        expiry=record.expiry,
        subscriptions=len(session.subscriptions),
        in_flight=len(session.packets),
    )


def _durable_row(broker: str, row: Row) -> wire.SubscriptionRow:
    return wire.SubscriptionRow(
        id=f"{broker}/{row.name}",
        kind="durable",
        client=row.name,
        filters={row.address: ""},
        names=[row.address],
        depth=int(row.messageCount),
        brokers=[broker],
        connected=row.consumerCount != "0",
    )


def _unknown_row(broker: str, id: str, row: Row) -> wire.SubscriptionRow:
    return wire.SubscriptionRow(
        id=f"{broker}/{row.name}",
        kind="unknown",
        client=broker_names.plain(id),
        depth=int(row.messageCount),
        brokers=[broker],
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
