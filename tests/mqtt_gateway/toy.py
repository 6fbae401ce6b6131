"""A backend in memory: queues of sessions, packet ids that survive a connection, retained messages.

It keeps what the real services keep, so that the MQTT half can be tried alone. `outcome` says what becomes of a
message: a reason code, UNKNOWN, or None for "not yet" (`ToySession.answer` gives it later). `slow`: what is to be
stored is stored when `store` is called, not at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count
from typing import Any

from enmasse.bridge.client_refused import Ask
from enmasse.model.sessions import Outgoing, StatisticsReply, Subscription
from enmasse.mqtt.packets import Properties, Publish, Subscribe, Unsubscribe, Will
from enmasse.mqtt.topics import matches, parse_share
from services.mqtt_gateway.address_use import AddressUse, Attached
from services.mqtt_gateway.interfaces import (
    Client,
    Deliveries,
    Delivery,
    Ending,
    Publications,
    Refused,
    Replies,
    Request,
)

_GONE: Any = None


class Stored:
    """What outlives a connection."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.filters: dict[str, Subscription] = {}
        self.queue: deque[Delivery] = deque()
        self.received: dict[int, str] = {}
        self.sent: dict[int, Outgoing] = {}
        self.expiry = 0


class ToyBackend:
    def __init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self.live: dict[str, ToySession] = {}
        self.sessions: list[ToySession] = []
        self.requests: list[Request] = []
        self.wills: dict[str, Will] = {}
        self.retained: dict[str, Publish] = {}
        self.seen: set[str] = set()
        self.routed: list[tuple[str, str, bytes]] = []
        """Client, topic, payload of every message, once."""
        self.settled: Counter[bytes] = Counter()
        self.endings: list[tuple[str, Ending, int | None]] = []
        self.outcome: Callable[[Publish], int | None] = lambda publish: 0
        self.refusal: Refused | None = None
        self.codes: Callable[[str, int], int] = lambda filter, qos: qos
        self.slow = False
        self.together: list[int] = []
        """Numbers of messages that came together."""
        self.to_store: deque[Callable[[], None]] = deque()
        self.numbers = count(1)
        self.tenant: Callable[[Request], str] = lambda request: ""

    # interfaces.Backend

    async def admit(self, request: Request, wanted: Callable[[], bool], ask: Ask) -> Request:
        return request

    async def open(self, request: Request, client: Client) -> ToySession:
        session = self.open_now(request, client)
        self.after_connack(session)
        return session

    def after_connack(self, session: ToySession) -> None:
        import asyncio

        asyncio.get_running_loop().call_soon(session.begin)

    async def statistics(
        self, since: float, counters: Mapping[str, int], *, group: str = "", leaving: bool = False
    ) -> StatisticsReply | None:
        return StatisticsReply(since=since, values=dict(counters))

    def state(self) -> tuple[bool, str]:
        return True, ""

    def uses(self) -> Iterator[AddressUse]:
        return iter(())

    def families(self) -> Iterator[Any]:
        return iter(())

    async def close(self) -> None:
        pass

    def open_now(self, request: Request, client: Client) -> ToySession:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        old = self.live.get(request.client_id)
        if old is not None:
            old.client.disconnect(0x8E)
        stored = self.stored.get(request.client_id)
        present = stored is not None and not request.clean
        if stored is None or not present:
            stored = self.stored[request.client_id] = Stored(request.client_id)
        stored.expiry = request.expiry
        if request.will is not None:
            self.wills[request.client_id] = request.will
        session = ToySession(self, stored, client, request, present)
        self.live[request.client_id] = session
        self.sessions.append(session)
        return session

    # what stands behind

    def store(self, steps: int = 1_000_000) -> None:
        while self.to_store and steps:
            steps -= 1
            self.to_store.popleft()()

    def later(self, what: Callable[[], None]) -> None:
        if self.slow:
            self.to_store.append(what)
        else:
            what()

    def route(self, publish: Publish, client_id: str) -> int:
        self.routed.append((client_id, publish.topic, publish.payload))
        if publish.retain:
            if publish.payload:
                self.retained[publish.topic] = publish
            else:
                self.retained.pop(publish.topic, None)
        receivers = 0
        for stored in list(self.stored.values()):
            found = self._matching(stored, publish.topic, client_id)
            if found:
                receivers += 1
                self.put(stored, publish, found, retain=publish.retain and any(s.retain_as_published for s in found))
        return receivers

    def _matching(self, stored: Stored, topic: str, client_id: str) -> list[Subscription]:
        found = []
        for one in stored.filters.values():
            share = parse_share(one.filter)
            plain = share.filter if share is not None else one.filter
            if matches(plain, topic) and not (one.no_local and client_id == stored.client_id):
                found.append(one)
        return found

    def put(self, stored: Stored, publish: Publish, found: Sequence[Subscription], *, retain: bool) -> None:
        identifiers = tuple(one.identifier for one in found if one.identifier)
        properties = publish.properties
        if identifiers:
            properties = Properties(subscription_ids=identifiers, user_properties=properties.user_properties)
        qos = min(publish.qos, max(one.qos for one in found))
        delivery = Delivery(publish.topic, publish.payload, qos, retain, properties)
        delivery.identity, delivery.source = f"{next(self.numbers):016x}", f"$sub/b1/{stored.client_id}"
        stored.queue.append(delivery)
        session = self.live.get(stored.client_id)
        if session is not None and session.started:
            session.pump()


class ToySession:
    def __init__(self, backend: ToyBackend, stored: Stored, client: Client, request: Request, present: bool) -> None:
        self.backend = backend
        self.stored = stored
        self.client = client
        self.request = request
        self.present = present
        self.tenant = backend.tenant(request)
        self.has_will = request.will is not None
        self.incoming = list(stored.received)
        self.outgoing = list(stored.sent.values())
        stored.sent = {each.pid: each for each in self.outgoing if each.qos == 2}
        self.filters = stored.filters
        self.max_message = None
        self.noted = (0, "")
        self.unsettled: dict[str, Delivery] = {}
        self.started = False
        self.closed = False
        self.asked: dict[int, Publish] = {}
        self.early = {each.identity for each in self.outgoing if each.state == "released"}

    def may_read_system(self, filter: str) -> bool:
        return True

    def begin(self) -> None:
        """After CONNACK."""
        self.started = True
        self.pump()

    def pump(self) -> None:
        queue = self.stored.queue
        while queue and len(self.unsettled) < self.request.window and not self.closed:
            delivery = queue.popleft()
            assert delivery.identity is not None
            if delivery.identity in self.early:
                self.backend.settled[delivery.payload] += 1
                continue
            self.unsettled[delivery.identity] = delivery
            self.deliveries.deliver(copy(delivery))

    def answer(self, packet_id: int, reason: int, text: str = "") -> None:
        """The outcome of a message for which `outcome` has said None."""
        self._done(self.asked.pop(packet_id), reason, text)

    # interfaces.Session and interfaces.Settlements

    @property
    def settlements(self) -> ToySession:
        return self

    def attached(self) -> Iterator[Attached]:
        return iter(())

    def start(self, publications: Publications, deliveries: Deliveries, replies: Replies) -> None:
        self.publications, self.deliveries, self.replies = publications, deliveries, replies

    def publish(self, publish: Publish) -> None:
        assert not self.closed
        backend = self.backend
        reason = backend.outcome(publish)
        if publish.qos == 2:
            known = self.stored.received.get(publish.packet_id)
            duplicate = known if known is not None and publish.dup else f"dup{next(backend.numbers)}"
            self.stored.received[publish.packet_id] = duplicate
        if reason is None:
            self.asked[publish.packet_id] = publish
        else:
            self._done(publish, reason, "")

    @property
    def takes_runs(self) -> bool:
        return self.backend.slow

    def publish_run(self, run: Sequence[Publish]) -> bool:
        assert self.takes_runs
        if any(self.backend.outcome(publish) != 0 for publish in run):
            return False
        self.backend.together.append(len(run))
        for publish in run:
            self.publish(publish)
        return True

    def _done(self, publish: Publish, reason: int, text: str) -> None:
        backend = self.backend
        if publish.qos == 2:
            duplicate = self.stored.received[publish.packet_id]
            if 0 <= reason < 0x80:
                if duplicate not in backend.seen:
                    backend.seen.add(duplicate)
                    backend.route(publish, self.stored.client_id)
            elif reason >= 0x80:
                del self.stored.received[publish.packet_id]
        elif 0 <= reason < 0x80:
            backend.route(publish, self.stored.client_id)
        if publish.qos:
            backend.later(lambda: None if self.closed else self.publications.published(publish.packet_id, reason, text))

    def release(self, packet_id: int) -> None:
        assert not self.closed

        def stored() -> None:
            if not self.closed:
                self.stored.received.pop(packet_id, None)
                self.publications.released(packet_id)

        self.backend.later(stored)

    def settle(self, delivery: Delivery) -> None:
        assert not self.closed
        assert delivery.identity is not None
        kept = self.unsettled.pop(delivery.identity, None)
        if kept is not None:
            self.backend.settled[kept.payload] += 1
            self.pump()

    def settle_all(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            self.settle(each)

    def assign(self, delivery: Delivery, packet_id: int) -> None:
        assert not self.closed
        assert packet_id not in self.stored.sent

        def stored() -> None:
            if not self.closed:
                self.stored.sent[packet_id] = Outgoing(packet_id, 2, delivery.identity, delivery.source)
                self.deliveries.assigned(packet_id)

        self.backend.later(stored)

    def received(self, delivery: Delivery, packet_id: int) -> None:
        assert not self.closed

        def stored() -> None:
            if not self.closed:
                self.stored.sent[packet_id] = Outgoing(packet_id, 2, delivery.identity, delivery.source, "released")
                self.settle(delivery)
                if not self.closed:
                    self.deliveries.received(packet_id)

        self.backend.later(stored)

    def complete(self, packet_id: int, delivery: Delivery | None) -> None:
        assert not self.closed

        def stored() -> None:
            if not self.closed:
                if delivery is not None:
                    self.settle(delivery)
                self.stored.sent.pop(packet_id, None)
                self.deliveries.completed(packet_id)

        self.backend.later(stored)

    def subscribe(self, subscribe: Subscribe) -> None:
        identifiers = subscribe.properties.subscription_ids
        codes = []
        for one in subscribe.subscriptions:
            code = self.backend.codes(one.filter, one.qos)
            codes.append(code)
            if code < 0x80:
                self.filters[one.filter] = Subscription(
                    filter=one.filter,
                    qos=code,  # type: ignore[arg-type]  # below 0x80 it is a QoS
                    no_local=one.no_local,
                    retain_as_published=one.retain_as_published,
                    retain_handling=one.retain_handling,  # type: ignore[arg-type]  # the codec has checked it
                    identifier=identifiers[0] if identifiers else 0,
                )
        self.replies.subscribed(subscribe.packet_id, codes)
        for one, code in zip(subscribe.subscriptions, codes, strict=True):
            for topic, message in self.backend.retained.items():
                if code < 0x80 and matches(one.filter, topic):
                    self.backend.put(self.stored, message, [self.filters[one.filter]], retain=True)

    def unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        codes = [0 if self.filters.pop(each, None) is not None else 0x11 for each in unsubscribe.filters]
        self.replies.unsubscribed(unsubscribe.packet_id, codes)

    def close(self, ending: Ending, expiry: int | None, sent: Sequence[Outgoing]) -> None:
        assert not self.closed
        self.closed = True
        self.publications = self.deliveries = self.replies = _GONE
        backend, stored = self.backend, self.stored
        backend.endings.append((stored.client_id, ending, expiry))
        for delivery in reversed(list(self.unsettled.values())):
            delivery.again = True
            stored.queue.appendleft(delivery)
        for each in sent:
            stored.sent[each.pid] = each
        if backend.live.get(stored.client_id) is self:
            del backend.live[stored.client_id]
        if ending is Ending.CLEAN:
            backend.wills.pop(stored.client_id, None)
        if expiry is not None:
            stored.expiry = expiry
        if not stored.expiry and backend.stored.get(stored.client_id) is stored:
            del backend.stored[stored.client_id]
