"""The subscription service: its rooms put together, what it follows, what it does as time goes by."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from enmasse.control import ControlConnection
from enmasse.control.feeds import follow
from enmasse.control.local_usage import UsageReporter
from enmasse.control.reports import report_beside
from enmasse.identity.authors import Author
from enmasse.identity.mqtt_permissions import may_keep
from enmasse.identity.owned import owner, owner_of_subscription
from enmasse.identity.principal import ANONYMOUS
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.roles import Role
from enmasse.logs import log
from enmasse.metrics import by_space, counter, gauge, of_space, single
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE, SPACE, WireName, address_name, space_of
from enmasse.model.sessions import Subscription, is_address
from enmasse.mqtt.topics import parse_share
from enmasse.storage.decoding import unpack
from enmasse.stores import Store, StoreError
from enmasse.text import counted
from services.subserv import broker_names, records
from services.subserv.amqp import AmqpSubscriptions
from services.subserv.brokers.binding import Binder
from services.subserv.brokers.broker_requests import ERRORS
from services.subserv.brokers.brokers import Brokers
from services.subserv.brokers.conversation import QueueOwner, Want
from services.subserv.brokers.slices import portions
from services.subserv.permits import Permits
from services.subserv.preparing import Preparing
from services.subserv.records import AmqpRecord, OutgoingRecord, SessionRecord
from services.subserv.removed_spaces import RemovedSpaces
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.retained_order import RetainedOrder
from services.subserv.serial_work import SerialWork
from services.subserv.sessions.announced_addresses import SessionSources
from services.subserv.sessions.clients import Clients
from services.subserv.sessions.gateways import GatewayLinks
from services.subserv.sessions.packet_ids import Packets
from services.subserv.sessions.qos2_owners import Message
from services.subserv.sessions.requeue import Requeue
from services.subserv.sessions.sessions import Session, Sessions
from services.subserv.subscription_placement import Desired, Subscriber
from services.subserv.suite_queues import Life

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TICK = 0.5
"""Seconds between two looks at what has expired."""
REVIEW = 2.0
"""Seconds from a change of permissions or addresses to a look at all subscriptions."""
AGAIN = 30.0
"""Seconds until another look, while a broker is away."""
FORGET = 5.0
"""Seconds between two looks at what brokers have settled."""
SETTLE = 0.5
"""Seconds between two looks at all subscribers after changes of addresses."""


class SubscriptionService:
    """The service without its connections to the router and the configuration service."""

    def __init__(self, store: Store, credential: AnyCredential | None = None) -> None:
        """`credential`: credential by which this process connects to brokers; None: anonymously."""
        self.store = store
        self.desired = Desired()
        self.sessions = Sessions()
        self.permits = Permits()
        self.retained = RetainedMessages(store, self.permits.plans, lambda name: self.desired.topics.of_name(name))
        self.brokers = Brokers(self, self.retained.take, self._on_unasked, credential)
        self.retained.order = self.order = RetainedOrder(store, self.desired, self.brokers)
        self.binder = Binder(self.desired, self.brokers, self.retained, self.permits)
        self.preparing = Preparing(self, self.desired, self.brokers)
        self.packets = Packets(self.sessions, store)
        self.returning = Requeue(self.sessions.given, store, self._is_queue, self.retained.duplicate_id)
        self.gateways = GatewayLinks()
        self.amqp = AmqpSubscriptions(
            store, self.sessions.identity, self.desired, self.brokers, self.binder, self.sessions.wildcards
        )
        turns = SerialWork()
        self.session_sources = SessionSources(self.sessions, self.desired, self.brokers, self.gateways.command, turns)
        self.clients = Clients(
            self.sessions,
            store,
            self.packets,
            self.desired,
            self.brokers,
            self.binder,
            self.gateways.command,
            lambda: tuple(self.gateways.by_gateway),
            turns,
            self.session_sources,
            self.retained,
            self.permits,
        )
        self.removed_spaces = RemovedSpaces(
            self.permits, self.sessions, self.clients, self.amqp, self.retained, self._read_feeds, self._went_wrong
        )
        self.usage = UsageReporter(
            Role.SUBSERV, self.permits.plans.all_limits, self._uses, lambda: self.removed_spaces.ended
        )
        self.loaded = False
        self.unreadable = ""
        """Why the last attempt to read the store failed; empty while one is under way."""
        self.failures = 0
        """Unexpected errors, apart from those that packets, gateways and the brokers' feeds count."""
        self.configured = False
        """The configuration service is connected."""
        self._changed = asyncio.Event()
        self._to_review = asyncio.Event()
        """Permissions or addresses have changed."""
        self._looked: set[str] = set()
        """Brokers whose queues have been looked through for those of removed users since permissions have changed."""
        self._look_again: asyncio.TimerHandle | None = None

    async def load(self) -> None:
        """Read what is in the store. Raises StoreError; ValueError if a newer release wrote it."""
        await self._load_identity()
        async for _, value in self.store.scan(records.SESSIONS):
            self.sessions.put(unpack(value, SessionRecord))
        subscriptions: dict[str, list[Subscription]] = {}
        async for key, value in self.store.scan(records.FILTERS):
            found = unpack(value, Subscription)
            subscriptions.setdefault(records.client_of_filter(key), []).append(found)
        for client, each in self.sessions.by_client.items():
            self.sessions.subscribe(each, subscriptions.pop(client, ()))
        async for key, value in self.store.scan(records.PACKETS):
            kind, pid, client = records.packet_key(key)
            session = self.sessions.by_client.get(client)
            if session is not None and kind == "in":
                session.packets.received[pid] = value.decode()
            elif session is not None:
                session.packets.put_sent(client, unpack(value, OutgoingRecord))
        async for key, _ in self.store.scan(records.ENDED):
            self.sessions.given.ended[records.ended_message(key)] = True
        async for key, _ in self.store.scan(records.RETURNED):
            self.sessions.given.returning[records.ended_message(key)] = None
        async for _, value in self.store.scan(records.AMQP):
            self.amqp.put(unpack(value, AmqpRecord))
        await self.retained.load()
        await self.order.load()
        await self.store.write(self.sessions.identity.changes())
        self.sessions.loaded = True
        self.gateways.serve(self.clients, self._counts, self._counts_in_spaces, self.preparing.bind_default)
        self.loaded = True

    async def _load_identity(self) -> None:
        lives, number, shares, start = await self.store.get_many(
            records.STATE, ["lives", "number", "earlier-shares", "start"]
        )
        ranges = unpack(lives or b"\x90", list[Life])
        earlier = unpack(shares or b"\x90", list[str])
        if start is not None:  # an earlier version: its numbers were counted from the number of the start
            ranges = [(0, (int(start) + 1) << 32)]
            async for key, _ in self.store.scan(records.FILTERS):
                filter = key[len(key.partition(" ")[0]) + 1 + len(records.client_of_filter(key)) :]
                if (parts := parse_share(filter)) is not None:
                    earlier.append(broker_names.share_id(parts.group, parts.filter))
        now = time.time_ns() // 1000
        self.sessions.identity.begin(self.store.identity, ranges, int(number or b"0"), earlier, now)

    # what brokers are to have (services.subserv.brokers.conversation.Owner)

    @property
    def complete(self) -> bool:
        """True if the desired state is complete: everything else may be deleted."""
        return self.loaded and self.desired.sources.complete

    def subscriber(self, id: str) -> Subscriber | None:
        """Return the session, share or AMQP subscription with this id, or None."""
        return self.sessions.subscriber(id) or self.amqp.by_id.get(id)

    def subscribers(self) -> Iterator[Subscriber]:
        """Yield all sessions, shares and AMQP subscriptions."""
        yield from self.sessions.subscribers()
        yield from self.amqp.by_id.values()

    def want(self, broker: str, id: str, *, held: bool) -> Want | None:
        """Return the desired state of a subscriber on a broker; None: there is no such subscriber."""
        found = self.subscriber(id)
        return Want(found.created, self.desired.patterns(broker, found, held=held)) if found is not None else None

    @property
    def suite(self) -> str:
        """The suite's id."""
        return self.sessions.identity.suite

    def is_known(self, created: int) -> bool:
        """Return True if this store has given the number out."""
        return self.sessions.identity.is_known(created)

    @property
    def has_earlier(self) -> bool:
        """True if there were queues without the suite's id in their names."""
        return self.sessions.identity.has_earlier

    def claim(self, broker: str, id: str, created: int | None) -> QueueOwner:
        """Return the owner of a queue with this id and number; `created` None: a divert without a queue."""
        found = self.brokers.get(broker)
        by_hand = found is not None and found.by_hand
        suite, exists = broker_names.suite_of(id), self.subscriber(id) is not None
        known = created is None or self.is_known(created)
        if exists or (known and (suite == self.suite or (not suite and self.has_earlier and not by_hand))):
            return QueueOwner.OURS
        return QueueOwner.OTHERS if by_hand and suite != self.suite else QueueOwner.UNKNOWN

    def ids(self) -> Iterable[str]:
        """Return the ids of all subscribers."""
        return [each.id for each in self.subscribers()]

    def placement_changed(self, ids: Iterable[str]) -> None:
        """Note that the brokers that hold queues of these subscribers have changed."""
        self.session_sources.placement_changed(ids)

    # the configuration service

    async def follow(self, connection: ControlConnection) -> None:
        """Follow the feeds over a connection to the configuration service; run by keep_connected."""
        receivers = (
            follow(connection, "addresses/changes", feeds.completed(self._on_addresses), feeds.AddressChanges),
            follow(connection, "placements/changes", feeds.completed(self._on_placements), feeds.PlacementChanges),
            follow(connection, "permissions/changes", self._on_permissions, feeds.PermissionChanges),
        )
        self.configured = True
        try:
            await report_beside(receivers, [each.run(connection) for each in (self.preparing.reporter, self.usage)])
        finally:
            self.configured = False

    def _uses(self) -> dict[str, Mapping[str, int]]:
        """Return the limits that this service keeps: name → space → what it uses."""
        return {"sessions": self.sessions.room.of_spaces, "retained": self.retained.index.room.of_spaces}

    def _on_permissions(self, body: feeds.PermissionChanges) -> None:
        self.permits.take(body)
        self._looked = set()
        self._to_review.set()
        self.removed_spaces.look()

    async def _read_feeds(self) -> bool:
        """Read all that brokers have of retained messages; return False if that is not possible now."""
        return self.complete and await self.order.read_all()

    def _on_addresses(self, body: feeds.Addresses) -> None:
        was_complete = self.complete
        self.desired.set_addresses(body)
        self._on_change(was_complete)

    def _on_placements(self, body: feeds.Placements) -> None:
        was_complete = self.complete
        self.desired.set_placements(body)
        carried = {space_of(name) for name, places in body.addresses.items() if places and name.startswith(SPACE)}
        if any(map(self.permits.terminating, self.permits.carried - carried)):
            self._looked = set()  # what the space kept ends now
        self.permits.carried = carried
        self.brokers.follow(body)
        self.preparing.follow(body)
        self._on_change(was_complete)

    def _on_unasked(self, brokers: Iterable[str]) -> None:
        self.desired.set_unasked(brokers)
        self._changed.set()

    def _on_change(self, was_complete: bool) -> None:
        if self.complete and not was_complete:
            for broker in self.brokers:
                broker.conversation.read_again()  # what may be deleted is known only now
        self._changed.set()
        self._to_review.set()

    # as time goes by

    async def run(self) -> None:
        """Run the service until cancelled."""
        await asyncio.gather(
            self._follow_changes(),
            self._review(),
            self._expire(),
            self._forget(),
            self._review_order(),
            self.removed_spaces.run(),
        )

    async def _follow_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                ids = [each.id for each in self.subscribers()]
                async for some in portions(ids):
                    self.session_sources.placement_changed(some)
                    self.brokers.touch(some)
            except Exception as error:
                self._went_wrong("follow a change of addresses", error)
                self._changed.set()
            await asyncio.sleep(SETTLE)

    async def _review(self) -> None:
        """End stored subscriptions whose user is gone, or may no longer receive what they match; never on a partial
        view. The wait lets newer permissions arrive, by which a gateway may have let a client in."""
        while True:
            await self._to_review.wait()
            await asyncio.sleep(REVIEW)
            self._to_review.clear()
            if not self.complete or not self.permits.known.is_set():
                continue
            try:
                await self.removed_spaces.end()
                if self.permits.anonymous:
                    continue
                async for some in portions(list(self.sessions.by_client)):
                    for client in some:
                        if self._forbidden(self.sessions.by_client.get(client)):
                            await self.clients.end_forbidden(client, self._forbidden)
                await self.amqp.end_forbidden(self.permits.rights, self._keeps_all)
                await self._end_of_removed_users()
            except Exception as error:
                self._went_wrong("end subscriptions that are no longer allowed", error)
                self._to_review.set()

    async def _end_of_removed_users(self) -> None:
        """End the durable subscriptions of AMQP clients whose user is gone; those on a broker that is away later.
        Raises ControlError, ValueError."""
        looked, away = self._looked, False
        for broker in list(self.brokers):
            if broker.by_hand or broker.is_unasked or broker.name in looked:
                continue
            if not broker.conversation.connected:
                away = True
                continue
            for row in await broker.conversation.rows():
                whose = owner_of_subscription(row.name)
                if row.is_durable_subscription and self.permits.removed(whose.principal):
                    log.get(client=row.name, space=whose.space).info(
                        "subserv.subscriptions.forbidden", filters=[row.address[:200]]
                    )
                    await broker.conversation.delete_queue(row.name)
            looked.add(broker.name)
        if self._look_again is not None:
            self._look_again.cancel()
        if away:
            self._look_again = asyncio.get_running_loop().call_later(AGAIN, self._to_review.set)

    def _keeps_all(self, space: str) -> bool:
        """Return whether nothing of a space is ended for want of its user."""
        return self.permits.is_empty(space) or self.permits.terminating(space)

    def _forbidden(self, session: Session | None) -> list[str]:
        """Return the filters that the session's user may not receive. Sessions of the anonymous user wait for its
        entry: they may be of the time without users."""
        if session is None:
            return []
        whose = owner(session.record.client)
        if self.permits.is_open(whose.space) or self._keeps_all(whose.space):
            return []
        rights = self.permits.rights(Author(whose.user, session.record.groups, whose.space))
        if rights is None:
            return [] if whose.user == ANONYMOUS else list(session.subscriptions)
        topics = self.desired.topics.of(whose.space)
        return [filter for filter in session.subscriptions if not may_keep(rights, topics, filter)]

    async def _forget(self) -> None:
        """Forget messages of contended sources that brokers can no longer deliver: their queue was empty, twice.

        At the first look the broker may have removed a message in memory only, at the second it has on disk.
        """
        given = self.sessions.given
        empty: dict[str, list[Message]] = {}
        while True:
            await asyncio.sleep(FORGET)
            gone = given.too_many()
            before, empty = empty, {}
            for source, messages in given.waiting().items():
                with contextlib.suppress(*ERRORS):
                    if self.complete and not await self._depth(source):
                        gone += before.get(source, ())
                        empty[source] = messages
            try:
                await self.packets.forget(gone)
            except Exception as error:
                self._went_wrong("delete settled messages", error)

    async def _depth(self, source: str) -> int:
        if not is_address(source):
            return await self.brokers.depth(source)
        carriers = self.desired.carriers(address_name(WireName(source)))
        return sum([await self.brokers.depth_of_address(broker, source) for broker in carriers])

    def _is_queue(self, address: str) -> bool:
        """Return whether this address is a queue, or may be one: the addresses are not known yet."""
        owner = self.desired.topics.of_name(address).owner_of_wire(address)
        return not self.complete or (owner is not None and owner.traits.entity == "queue")

    async def _review_order(self) -> None:
        while True:
            try:
                await self.order.review()
            except Exception as error:
                self._went_wrong("forget deletions of retained messages", error)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                await self.retained.expire()
                await self.clients.end_over(time.time())
            except Exception as error:
                self._went_wrong("expire sessions and retained messages", error)

    def _went_wrong(self, task: str, error: Exception) -> None:
        """Handle a failure of work that is tried again; errors other than the store's are counted."""
        if isinstance(error, StoreError):
            log.get().warning("subserv.upkeep.postponed", task=task, reason=str(error))
        else:
            self.failures += 1
            log.get().error("subserv.upkeep.failed", task=task, exc_info=error)

    def close(self) -> None:
        """End the conversations with all brokers."""
        self.preparing.close()
        self.brokers.close()

    # health

    def healthy(self, routed: bool) -> tuple[bool, str]:
        """Return whether everything works, and if not, what is awaited. `routed`: the router passes requests on."""
        if not self.store.state.ready:
            return False, f"store: {self.store.state.detail}"
        if not self.loaded:
            return False, f"reading the store: {self.unreadable}" if self.unreadable else "reading the store"
        if unknown := self.unknown():
            return False, unknown
        if not self.desired.sources.complete:
            return False, "no connection to the configuration service yet"
        if not routed:
            return False, "no connection to the router"
        brokers = [broker for broker in self.brokers if broker.is_awaited]
        # The others wait for those that the suite runs; with those that people manage the suite comes up anyway.
        if new := sorted(b.name for b in brokers if not b.conversation.was_connected and not b.by_hand):
            return False, f"no connection to broker {', '.join(new)} yet"
        if not self.configured:
            return True, "the configuration service cannot be reached: changes wait"
        if away := sorted(broker.name for broker in brokers if not broker.conversation.connected):
            return True, f"not connected to broker {', '.join(away)}: its subscriptions can be neither made nor ended"
        parts = [
            counted(len(self.sessions.by_client), "session"),
            counted(self.retained.index.count, "retained message"),
        ]
        if failures := sum(broker.conversation.feed.failures for broker in self.brokers):
            parts.append(f"retained messages were left out by {counted(failures, 'error')}: see the log")
        if failures := self.failures + self.packets.failures + self.gateways.failures:
            parts.append(f"requests were refused because of {counted(failures, 'unexpected error')}: see the log")
        return True, ", ".join(parts)

    def unknown(self) -> str:
        """Return which brokers have queues that this store has forgotten, and what to do; empty: none has."""
        found = {b.name: len(b.conversation.unknown) for b in self.brokers if b.conversation.unknown}
        if not found:
            return ""
        where = ", ".join(f"{name}: {count}" for name, count in sorted(found.items()))
        return (
            f"brokers have queues of sessions that the store does not know ({where}); they are kept. The store is "
            "empty or older than the brokers: stop the suite and restore the store's backup. Or accept the loss: "
            "`enmasse subscription list` shows them as unknown, `enmasse subscription remove ID` deletes one"
        )

    def counts(self) -> dict[str, int]:
        """Return the counts for the suite's status."""
        return {
            "sessions": len(self.sessions.by_client),
            "connected": self.sessions.connected,
            "subscriptions": self.sessions.subscriptions.used + len(self.amqp.by_id),
            "retained": self.retained.index.count,
        }

    def _counts(self) -> dict[str, int]:
        """Return numbers for the topics below `$SYS/`."""
        sessions = self.sessions
        return {
            "sessions": len(sessions.by_client),
            "subscriptions": sessions.subscriptions.used,
            "retained": self.retained.index.count,
        }

    def _counts_in_spaces(self) -> dict[str, dict[str, int]]:
        """Return the same numbers of the address spaces that have some, without the default one."""
        found: dict[str, dict[str, int]] = {}
        for name, room in (
            ("sessions", self.sessions.room),
            ("subscriptions", self.sessions.subscriptions),
            ("retained", self.retained.index.room),
        ):
            for space, number in room.of_spaces.items():
                found.setdefault(space, {})[name] = number
        return found

    def metrics(self) -> Iterator[Metric]:
        """docs/metrics.md."""
        index = self.retained.index
        sessions = Counter(
            (each.space, "connected" if each.record.connected else "offline")
            for each in self.sessions.by_client.values()
        )
        spaces = sorted({DEFAULT_SPACE, *(space for space, _ in sessions)})
        pending = sum(broker.conversation.pending for broker in self.brokers)
        states = [
            ({"state": state, **of_space(space)}, sessions[space, state])
            for space in spaces
            for state in ("connected", "offline")
        ]
        yield gauge("subserv_sessions", "MQTT sessions by state.", states)
        used = self.sessions.subscriptions
        yield gauge("subserv_subscriptions", "Subscriptions of MQTT sessions.", by_space(used.used, used.of_spaces))
        yield gauge("subserv_shared_subscriptions", "Shared subscriptions.", single(len(self.sessions.shares)))
        yield gauge("subserv_amqp_subscriptions", "Subscriptions over $subctrl.", single(len(self.amqp.by_id)))
        yield gauge("subserv_held_bytes", "Messages held for shared subscriptions.", single(self.sessions.given.bytes))
        yield gauge(
            "subserv_ended_messages",
            "Messages of shared subscriptions that a session has had, and a broker may have still.",
            single(len(self.sessions.given.ended)),
        )
        yield gauge("subserv_gateways", "Gateways that are attached.", single(len(self.gateways.by_gateway)))
        yield gauge("subserv_retained_messages", "Retained messages.", by_space(index.count, index.room.of_spaces))
        yield gauge(
            "subserv_retained_bytes",
            "Bytes of the retained messages.",
            by_space(index.bytes.used, index.bytes.of_spaces),
        )
        yield counter(
            "subserv_retained_refused_total", "Messages that were not retained.", single(self.retained.refused)
        )
        yield counter(
            "subserv_retained_withheld_total",
            "Copies of retained messages that were not given to a subscriber, because their user may not send there.",
            single(self.binder.withheld),
        )
        yield gauge("subserv_pending", "Queues that a broker could not be given yet.", single(pending))
        yield gauge("subserv_store_ready", "1 while the store can be used.", single(self.store.state.ready))
        yield gauge("subserv_store_waiting", "Writes that are not stored yet.", single(self.store.waiting))
        yield counter("subserv_store_commits_total", "Transactions of the store.", single(self.store.commits))
