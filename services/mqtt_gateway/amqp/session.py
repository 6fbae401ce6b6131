"""AMQP half of one MQTT connection: `interfaces.Session`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from msgspec import structs

from enmasse.amqp.codec.errors import AmqpError
from enmasse.bridge.lanes import Entry, Publisher
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.bridge.publishing import Way
from enmasse.identity import authors, senders
from enmasse.identity.login import Login
from enmasse.identity.mqtt_permissions import denied, may_keep, may_subscribe, name_of, names_of, without_permission
from enmasse.identity.permissions import Rights
from enmasse.identity.refused import OPERATOR
from enmasse.logs import log as logs
from enmasse.model import sessions as wire
from enmasse.model.sessions import Outgoing
from enmasse.model.topic_map import MAX_LEVELS, TopicMap
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NONE, Publish, Subscribe, Unsubscribe
from services.mqtt_gateway.address_use import MOST_ADDRESSES, Attached, Carried
from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.amqp.filters import SessionFilters
from services.mqtt_gateway.amqp.gateway_state import Shared
from services.mqtt_gateway.amqp.mapping import TopicRoute, sealed
from services.mqtt_gateway.amqp.outcome_reasons import reason_of_outcome
from services.mqtt_gateway.amqp.session_service import PacketIdOutcome, PacketIds, RequestFailed
from services.mqtt_gateway.amqp.sources import SessionSource, held
from services.mqtt_gateway.amqp.topic_access import NotAllowed, may_have_replies, ways
from services.mqtt_gateway.interfaces import (
    BRIDGE_STATE,
    Client,
    Deliveries,
    Ending,
    Publications,
    Replies,
    Request,
    is_system,
)

log = logs.get(part="sessions")

SUBSCRIBING: Final = 40.0
"""Seconds until a SUBSCRIBE or UNSUBSCRIBE is given up; a busy broker may have 30 of them."""
ACCEPTED: Final = MessageOutcome.ACCEPTED
ATTACHING: Final = 2.0
"""Seconds that SUBACK waits for links to addresses."""


def without_address(topic: str) -> str:
    """Return why no address takes a topic."""
    if is_system(topic):
        return f"{topic[:100]!r}: only the gateways write topics below $SYS/"
    if topic.count("/") >= MAX_LEVELS:
        return f"the topic {topic[:100]!r} … has more than {MAX_LEVELS} levels; shorten it"
    return f"no address takes the topic {topic[:100]!r}: publish to an address, or mark a topic address mqttDefault"


class _Once:
    """A message of QoS 2 from the client. `key`: its duplicate id; `stored`: with the packet id."""

    __slots__ = ("key", "publish", "stored")

    def __init__(self, publish: Publish, key: str, *, stored: bool = False) -> None:
        self.publish = publish
        self.key = key
        self.stored = stored


class MqttSession(Publisher):
    """Made by the backend's `open`. `settlements` has the messages to the client. `closed` is called when it ends, with
    the session, the ending, the new expiry and the messages under way to the client. `login`: who the client is;
    `will_to`: the name on AMQP of its will's topic, empty without one.

    Subscriptions of a resumed session that are no longer allowed are left out, and ended."""

    noted: tuple[int, str] = (reasons.SUCCESS, "")

    def __init__(
        self,
        shared: Shared,
        request: Request,
        client: Client,
        reply: wire.OpenReply,
        closed: Callable[[MqttSession, Ending, int | None, list[Outgoing]], None],
        login: Login,
        will_to: str,
    ) -> None:
        super().__init__()
        self.publications: Publications | None = None
        """Part of the connection that gets outcomes; None: there is no connection."""
        self.client_id = request.client_id
        self._peer = request.peer
        self.login = login
        self.tenant = login.principal.space if shared.access.users.hosts else ""
        self.will_to = will_to
        self.rights: Rights | None = None
        """Permissions of the client; None: everything is allowed."""
        self._shared = shared
        self._way: Callable[[str], Way[TopicRoute] | None] = shared.publishing.way
        self.set_rights(shared.access.rights(login))
        self.epoch = reply.epoch
        self.present = reply.present
        self.incoming: Sequence[int] = [packet_id for packet_id, _ in reply.received]
        self.outgoing: Sequence[Outgoing] = [structs.replace(each, message=b"") for each in reply.sent]
        self.window = request.window
        self.max_message: int | None = None
        self.v5 = request.version == 5
        self.has_will = request.will is not None
        self.deleted = False
        """Whether the session was deleted by an administrator; then its client is disconnected."""
        self.will_delay = 0 if request.will is None else request.will.properties.will_delay or 0
        self.client: Client | None = client
        allowed = reply.subscriptions
        if self.rights is not None:
            allowed = [each for each in allowed if may_keep(self.rights, shared.topics, each.filter)]
        self._ended = {each.filter for each in reply.subscriptions} - {each.filter for each in allowed}
        self.interest = SessionFilters(request.client_id, shared.topics, allowed, shared.use)
        self.filters: Mapping[str, wire.Subscription] = self.interest.subscriptions
        self._closed = closed
        self._replies: Replies | None = None
        self._packet_ids = PacketIds(shared.control, self.client_id, self.epoch)
        self.settlements = Exchanges(self._packet_ids, reply.sent)
        self._duplicates: dict[int, str] = dict(reply.received)
        self._once: deque[_Once] = deque()  # messages of QoS 2: from the first that has to wait
        self._again = set() if self.v5 else set(self._duplicates)  # of an earlier connection, not sent here yet
        self._awaited: int | None = None  # one of these, which has no outcome yet
        self._given = reply.sources
        self._sent: dict[str, Carried] = {}
        self._held = [each for each in reply.sent if each.state == "published" and each.message]
        qos = {each.qos for each in reply.sent} | {each.qos for each in reply.subscriptions}
        self._final = 2 in qos  # of the queues' links
        self._queues: dict[str, SessionSource] = {}
        self._addresses: dict[str, SessionSource] = {}

    def start(self, publications: Publications, deliveries: Deliveries, replies: Replies) -> None:
        """As interfaces.Session."""
        self.publications, self._replies = publications, replies
        self.settlements.start(deliveries)
        if self._held:
            self._shared.later(0, self._deliver_held)
        self.set_sources(self._given)
        self.set_addresses()
        if self._ended:
            self._shared.spawn(self._end_subscriptions(sorted(self._ended)))

    # permissions

    def set_rights(self, rights: Rights | None) -> None:
        """Put other permissions in force."""
        self.rights = rights
        self._way = ways(self._shared.publishing.way, lambda: self._shared.publishing.topics, rights)

    def may_read_system(self, filter: str) -> bool:
        """As interfaces.Session: `recv` on a pattern such as `$SYS/#`; `#` does not cover it."""
        return self.rights is None or self.rights.covers("recv", filter).allowed

    def drop_will(self, reason: str) -> None:
        """Note that the will is not published, because the client may no longer send it."""
        self.has_will = False
        topic, text = self._shared.topics.topic_of(self.will_to), f"the will was dropped: {reason}"
        self.note_refused("will", reasons.NOT_AUTHORIZED, text, topic, [self.will_to])

    def not_allowed(self) -> list[str]:
        """Return the filters of subscriptions that are not allowed."""
        rights, topics = self.rights, self._shared.topics
        if rights is None:
            return []
        return [filter for filter in self.interest.subscriptions if not may_keep(rights, topics, filter)]

    def not_to(self, filter: str) -> str:
        """Return the text for the client about a filter that is not allowed."""
        return without_permission(self._shared.topics, "receive from", filter)

    async def _end_subscriptions(self, filters: list[str]) -> None:
        """End subscriptions of the stored session, which count no longer here. If that fails, they are found again
        when the session is resumed."""
        for filter in filters:
            self._shared.access.refused["subscribe"] += 1
            log.info("gateway.subscription.ended", client=self.client_id, filter=filter[:200], space=self._shared.space)
        body = wire.Unsubscribe(client=self.client_id, epoch=self.epoch, filters=filters)
        try:
            reply = await self._shared.control.request("unsubscribe", body, wire.UnsubscribeReply, SUBSCRIBING)
        except RequestFailed as failed:
            log.info(
                "gateway.subscription.end-postponed",
                client=self.client_id,
                reason=failed.text,
                space=self._shared.space,
            )
            return
        if self.client is not None:
            self.set_sources(reply.sources)

    def _deliver_held(self) -> None:
        """Deliver the messages under way to the client that the subscription service holds, not a queue."""
        messages, self._held = self._held, []
        sources = {source.address: source for source in (*self._queues.values(), *self._addresses.values())}
        for each in messages:
            if self.client is None:
                return
            try:
                delivery = held(self._shared, each, sources.get(each.source), self.v5)
            except AmqpError:
                self._shared.rejected += 1
                self._packet_ids.change("end", each.pid, None, "", None)
                continue
            self.settlements.hold(delivery, each.pid)

    # messages from the client

    def publish(self, publish: Publish) -> None:
        """As interfaces.Session."""
        shared = self._shared
        qos = publish.qos
        try:
            way = self._way(publish.topic)
        except NotAllowed:
            self._forbid(publish, "send to", publish.topic)
            return
        rights, response = self.rights, publish.properties.response_topic
        if rights is not None and response is not None and not may_have_replies(rights, shared.topics, response):
            self._forbid(publish, "receive from the response topic", response)
            return
        if way is None:
            if qos == 2 or not publish.topic.startswith(BRIDGE_STATE):
                self._refuse(publish, reasons.TOPIC_NAME_INVALID, without_address(publish.topic))
            elif qos:
                self._answer(publish.packet_id, qos, reasons.SUCCESS, "")  # ignored, as the bridge's will is
            return
        route = way.route
        sealed = None
        if publish.retain:
            if not route.traits.levels:
                reason = reasons.IMPLEMENTATION_SPECIFIC_ERROR if qos else reasons.RETAIN_NOT_SUPPORTED
                self._refuse(publish, reason, f"{route.name} is no topic address: it retains nothing")
                return
            sealed = self._sealed(publish, route)
        sent = self._sent.get(route.name) or self._first_to(route)
        sent.messages += 1
        sent.bytes += len(publish.payload)
        if qos == 2:
            self._publish_once(publish)
            return
        if publish.properties is NONE and sealed is None and not self.interest.wants_no_local:
            payload = route.plain(qos, publish.retain, publish.payload)
        else:
            payload = route.full(publish, shared.topics, shared.wall(), self._publisher(), further=sealed)
        way.lane.send(self, publish.packet_id, qos, payload)

    @property
    def takes_runs(self) -> bool:
        """As interfaces.Session: with No Local each message names its publisher."""
        return not self.interest.wants_no_local

    def publish_run(self, run: Sequence[Publish]) -> bool:
        """As interfaces.Session."""
        first = run[0]
        try:
            way = self._way(first.topic)
        except NotAllowed:
            return False
        if way is None:
            return False
        route = way.route
        payloads = [publish.payload for publish in run]
        sent = self._sent.get(route.name) or self._first_to(route)
        sent.messages += len(payloads)
        sent.bytes += sum(map(len, payloads))
        plain = [route.plain(first.qos, False, payload) for payload in payloads]
        way.lane.send_run(self, [publish.packet_id for publish in run], first.qos, plain)
        return True

    def _first_to(self, route: TopicRoute) -> Carried:
        """Return the sum of the messages to an address that the client has not sent to before."""
        if route.type is None or len(self._sent) >= MOST_ADDRESSES:
            return Carried()
        self._shared.use.sends(route.name)
        return self._sent.setdefault(route.name, Carried())

    def attached(self) -> Iterator[Attached]:
        """As interfaces.Session."""
        use = self._shared.use
        for filter, carried in self.interest.carried.items():
            yield use.subscription(filter, carried, self.filters[filter].qos)
        for name, carried in self._sent.items():
            yield use.sender(name, carried)

    def _note_publish(self, reason: int, text: str, topic: str) -> None:
        self.note_refused("publish", reason, text, topic, [name_of(self._shared.topics, topic)])

    def _note_subscribe(self, reason: int, text: str, filter: str) -> None:
        self.note_refused("subscribe", reason, text, filter, names_of(self._shared.topics, filter))

    def note_refused(self, what: str, reason: int, text: str, topic: str = "", names: Sequence[str] = ()) -> None:
        """Note that the client was refused something. `names`: those of the topic or filter on AMQP."""
        self.noted = (reason, text)
        self._shared.refusals.note(
            what,
            condition=reasons.name(reason),
            reason=text,
            peer=self._peer,
            user=self.login.principal.full_name,
            client=self.client_id,
            address=topic,
            names=[self._shared.topics.full(name) for name in names],
            space=self._shared.space,
        )

    def note_closed(self, by: str) -> str:
        """Note that an operator has the client disconnected. Return the text for the client."""
        self._shared.refusals.closed(
            by, peer=self._peer, user=self.login.principal.full_name, client=self.client_id, space=self._shared.space
        )
        text = f"closed by {OPERATOR}"
        self.noted = (reasons.ADMINISTRATIVE_ACTION, text)
        return text

    def _refuse(self, publish: Publish, reason: int, text: str) -> None:
        self._note_publish(reason, text, publish.topic)
        if publish.qos:
            self._answer(publish.packet_id, publish.qos, reason, text)
        elif publish.retain and reason == reasons.RETAIN_NOT_SUPPORTED and self.client is not None:
            self.client.disconnect(reason, text)

    def _forbid(self, publish: Publish, what: str, topic: str) -> None:
        access, packet_id, qos, topics = self._shared.access, publish.packet_id, publish.qos, self._shared.topics
        access.refused["publish"] += 1
        text = without_permission(topics, what, topic)
        self._note_publish(reasons.NOT_AUTHORIZED, denied(what, topic, [name_of(topics, topic)]), publish.topic)
        self.noted = (reasons.NOT_AUTHORIZED, text)
        if self._shared.drops_unauthorized and not self.v5:
            access.dropped += 1
            if qos:
                self._answer(packet_id, qos, reasons.SUCCESS, "")
        elif qos:
            self._answer(packet_id, qos, reasons.NOT_AUTHORIZED, text)
        elif self.client is not None:
            self.client.disconnect(reasons.NOT_AUTHORIZED, text)

    def _sealed(self, publish: Publish, route: TopicRoute) -> Mapping[Any, Any] | None:
        """Return the annotation that states the user of a retained message; None without users."""
        if self.rights is None:
            return None
        return sealed(self._shared.control.seal, authors.of_login(self.login), route.to, publish.payload)

    def _publisher(self) -> str | None:
        return self.client_id if self.interest.wants_no_local else None

    def _publish_once(self, publish: Publish) -> None:
        """Stored under a duplicate id, then sent with it. The same message under the same packet id is sent again with
        the same one, whether or not the client says that it is a repetition (v5 MQTT-4.3.3-10); if it is another
        message, the client has forgotten its state."""
        packet_id = publish.packet_id
        mark = _mark(publish)
        known = self._duplicates.get(packet_id)
        if known is not None and known.endswith(mark):
            self._once.append(_Once(publish, known, stored=True))
            self._send_waiting()
            return
        self._again.discard(packet_id)
        key = self._duplicates[packet_id] = senders.new_id(self.login.principal) + mark
        entry = _Once(publish, key)
        self._once.append(entry)
        self._packet_ids.change("in", packet_id, key, "", lambda verdict: self._begun_once(entry, verdict))

    def _begun_once(self, entry: _Once, verdict: PacketIdOutcome) -> None:
        """The packet id is stored, or cannot be. Messages are sent in their order, whichever are stored first."""
        waiting = self._once
        if entry not in waiting:
            return  # withdrawn
        if verdict is PacketIdOutcome.REFUSED:
            waiting.remove(entry)
            packet_id = entry.publish.packet_id
            self._duplicates.pop(packet_id, None)
            self._answer(packet_id, 2, reasons.QUOTA_EXCEEDED, "there is no space to store the message")
        else:
            entry.stored = True
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send messages of QoS 2 in their order, as far as packet ids are stored. What a client of 3.1.1 sends again
        may be refused again, so it goes one by one: none behind a refused message may be stored before it."""
        waiting = self._once
        while waiting and waiting[0].stored and self._awaited is None:
            first = waiting.popleft()
            packet_id = first.publish.packet_id
            if packet_id in self._again:
                self._again.discard(packet_id)
                self._awaited = packet_id
            self._send_once(first.publish, first.key)

    def _send_once(self, publish: Publish, key: str) -> None:
        way = self._shared.publishing.way(publish.topic)
        if way is None:
            self._refuse(publish, reasons.TOPIC_NAME_INVALID, without_address(publish.topic))
            return
        sealed = self._sealed(publish, way.route) if publish.retain else None
        shared = self._shared
        payload = way.route.full(publish, shared.topics, shared.wall(), self._publisher(), key, further=sealed)
        way.lane.send(self, publish.packet_id, 2, payload)

    def sent(self, key: int, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher: `key` is the packet id."""
        if outcome is ACCEPTED and qos == 1:  # most are, and go no further way
            publications = self.publications
            if publications is not None:
                publications.published(key, reasons.SUCCESS, "")
            return
        self._answer(key, qos, reason_of_outcome(outcome, condition), text)

    def accepted(self, entries: Sequence[Entry]) -> None:
        """As Publisher: most are of QoS 1, and go no further way."""
        publications = self.publications
        if publications is not None and len(entries) > 1 and all(entry.qos == 1 for entry in entries):
            publications.accepted([entry.key for entry in entries])
        else:
            super().accepted(entries)

    def not_taken(self, to: str, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher."""
        reason = reason_of_outcome(outcome, condition)
        reason = reasons.SERVER_UNAVAILABLE if reason < 0 else reason
        self._note_publish(reason, text, self._shared.topics.topic_of(to))

    def _answer(self, packet_id: int, qos: int, reason: int, text: str) -> None:
        """Answer a message by a reason code, or UNKNOWN. MQTT 5: the id of a message of QoS 2 that was refused is free.
        A client of 3.1.1, which cannot be refused a message, is disconnected, and so is one whose message has no
        outcome. It sends all messages again that are not acknowledged, so later ones that have not left yet do not
        leave: they would be before this one."""
        publications = self.publications
        if publications is None:
            return
        if reason < 0 or (reason >= 0x80 and not self.v5):
            self._once.clear()
            self._shared.publishing.withdraw(self)
        elif qos == 2 and reason >= 0x80:
            self._forget(packet_id)
        publications.published(packet_id, reason, text)
        if qos == 2 and packet_id == self._awaited:
            self._awaited = None
            self._send_waiting()

    def _forget(self, packet_id: int) -> None:
        if self._duplicates.pop(packet_id, None) is not None:
            self._packet_ids.change("in-", packet_id, None, "", None)

    def release(self, packet_id: int) -> None:
        """As interfaces.Session."""
        self._duplicates.pop(packet_id, None)
        self._packet_ids.change("in-", packet_id, None, "", lambda _: self._released(packet_id))

    def _released(self, packet_id: int) -> None:
        if self.publications is not None:
            self.publications.released(packet_id)

    def hold(self) -> None:
        """As Publisher."""
        self.held = True
        if self.publications is not None:
            self.publications.hold()

    def proceed(self) -> None:
        """As Publisher."""
        self.held = False
        if self.publications is not None:
            self.publications.proceed()

    def failed(self, error: Exception) -> None:
        """End this client's connection after an unexpected error of its own; does not raise, so that other clients go
        on."""
        log.error("gateway.client.failed", client=self.client_id, space=self._shared.space, exc_info=error)
        try:
            if self.client is not None:
                self.client.disconnect(reasons.UNSPECIFIED_ERROR, "an unexpected error of the gateway")
        except Exception as further:
            log.error("gateway.client.failed", client=self.client_id, space=self._shared.space, exc_info=further)
            with contextlib.suppress(Exception):
                self.close(Ending.LOST, None, ())

    # subscriptions

    def subscribe(self, subscribe: Subscribe) -> None:
        """As interfaces.Session."""
        self._shared.spawn(self._subscribe(subscribe))

    async def _subscribe(self, subscribe: Subscribe) -> None:
        ids = subscribe.properties.subscription_ids
        asked = [
            wire.Subscription(
                filter=each.filter,
                qos=each.qos,  # type: ignore[arg-type]  # the codec has checked it
                no_local=each.no_local,
                retain_as_published=each.retain_as_published,
                retain_handling=each.retain_handling,  # type: ignore[arg-type]  # the codec has checked it
                identifier=ids[0] if ids else 0,
            )
            for each in subscribe.subscriptions
        ]
        refused = self._refused(asked)
        wanted = [each for each in asked if each.filter not in refused]
        if not wanted:
            if self._replies is not None:
                self._replies.subscribed(
                    subscribe.packet_id, [reasons.NOT_AUTHORIZED] * len(asked), self.not_to(next(iter(refused)))
                )
            return
        if any(each.qos == 2 for each in wanted):
            await self._make_final()
        before = [self.interest.subscriptions.get(each.filter) for each in wanted]
        for each in wanted:
            self._ended.discard(each.filter)
            self.interest.add(each)  # retained messages may come before the answer
        body = wire.Subscribe(client=self.client_id, epoch=self.epoch, subscriptions=wanted)
        codes: Sequence[int]
        texts: Sequence[str]
        try:
            reply = await self._shared.control.request("subscribe", body, wire.SubscribeReply, SUBSCRIBING)
            codes, texts = reply.codes, reply.reasons or [""] * len(reply.codes)
            sources: Sequence[wire.Source] | None = reply.sources
        except RequestFailed as failed:
            codes, sources = [_suback(failed.reason)] * len(wanted), None
            texts = [failed.text] * len(wanted)
        told = {filter: self.not_to(filter) for filter in refused}
        for each, code, text, old in zip(wanted, codes, texts, before, strict=False):
            if code >= 0x80:
                told[each.filter] = self._shared.topics.relative(text)
                self._note_subscribe(code, told[each.filter], each.filter)
                if old is None:
                    self.interest.remove(each.filter)
                else:
                    self.interest.add(old)
            elif code != each.qos:
                self.interest.add(_with_qos(each, code))
        if self.client is None:
            return
        if sources is not None:
            self.set_sources(sources)
        await self._attached(self.set_addresses())
        if refused:
            given = iter(codes)
            codes = [reasons.NOT_AUTHORIZED if each.filter in refused else next(given, 0x80) for each in asked]
        if self._replies is not None:
            first = next((told[each.filter] for each in asked if each.filter in told), "")
            self._replies.subscribed(subscribe.packet_id, codes, first)

    def _refused(self, asked: Sequence[wire.Subscription]) -> dict[str, None]:
        """Return the filters that the client has no permission for."""
        rights, topics = self.rights, self._shared.topics
        if rights is None:
            return {}
        found = dict.fromkeys(each.filter for each in asked if not may_subscribe(rights, topics, each.filter))
        self._shared.access.refused["subscribe"] += len(found)
        for filter in found:
            text = denied("receive from", filter, names_of(topics, filter))
            self._note_subscribe(reasons.NOT_AUTHORIZED, text, filter)
        return found

    async def _make_final(self) -> None:
        """The first subscription of QoS 2: before it counts, the links of the queues are such as that needs."""
        self._final = True
        await self._attached([each for each in self._queues.values() if not each.make_final()])

    async def _attached(self, sources: Sequence[SessionSource]) -> None:
        """Wait for links: after SUBACK a client gets what is published, also at addresses that store nothing."""
        ready = [asyncio.Event() for _ in sources]
        for source, event in zip(sources, ready, strict=True):
            source.on_ready = event.set
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ATTACHING):
                for event in ready:
                    await event.wait()
        for source in sources:
            source.on_ready = None

    def unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        """As interfaces.Session."""
        self._shared.spawn(self._unsubscribe(unsubscribe))

    async def _unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        filters = list(unsubscribe.filters)
        body = wire.Unsubscribe(client=self.client_id, epoch=self.epoch, filters=filters)
        codes: Sequence[int]
        text = ""
        try:
            reply = await self._shared.control.request("unsubscribe", body, wire.UnsubscribeReply, SUBSCRIBING)
            codes, text = reply.codes, self._shared.topics.relative(reply.reason)
            if self.client is not None:
                self.set_sources(reply.sources)
        except RequestFailed as failed:
            codes, text = [_suback(failed.reason)] * len(filters), self._shared.topics.relative(failed.text)
        for filter, code in zip(filters, codes, strict=False):
            if code < 0x80:
                self.interest.remove(filter)
        if self._replies is None:
            return
        self.set_addresses()
        self._replies.unsubscribed(unsubscribe.packet_id, codes, text)

    def set_sources(self, sources: Sequence[wire.Source]) -> None:
        """The queues to receive from, from now on."""
        ended = self._ended
        wanted = {each.address: each for each in sources if each.filter not in ended}
        for address in [address for address in self._queues if address not in wanted]:
            self._queues.pop(address).leave()
        for address, each in wanted.items():
            if address not in self._queues:
                source = self._queues[address] = self._source(address, filter=each.filter, final=self._final)
                source.attach()

    def _source(self, address: str, **more: Any) -> SessionSource:
        return SessionSource(
            self._shared,
            self.settlements,
            self.interest,
            address,
            window=self.window,
            v5=self.v5,
            failed=self.failed,
            **more,
        )

    def set_addresses(self) -> list[SessionSource]:
        """The addresses that are no topics to receive from, by the subscriptions and the addresses there are. Returns
        what is new."""
        new: list[SessionSource] = []
        wanted = self.interest.addresses() if self.interest.subscriptions else {}
        for address in [address for address in self._addresses if address not in wanted]:
            self._addresses.pop(address).leave()
        for address, (target, filter) in wanted.items():
            if address not in self._addresses:
                once = target.traits.entity == "queue" and self.interest.most(address) == 2
                source = self._addresses[address] = self._source(
                    target.pattern,
                    filter=filter,
                    topic_address=self._shared.topics.local(address),
                    identified=once,
                    final=once,
                    selective=once,
                    multicast=target.traits.broadcast,
                )
                source.attach()
                new.append(source)
        return new

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured."""
        self.interest.set_topics(topics)
        self.set_addresses()

    def attach(self) -> None:
        """There is a new connection."""
        for source in [*self._queues.values(), *self._addresses.values()]:
            source.attach()

    @property
    def links(self) -> int:
        """Number of links that the session receives from."""
        return len(self._queues) + len(self._addresses)

    # the connection

    def close(self, ending: Ending, expiry: int | None, sent: Sequence[Outgoing]) -> None:
        """As interfaces.Session."""
        if self.client is None:
            return
        self.client = self.publications = self._replies = None
        self.left = True
        for source in [*self._queues.values(), *self._addresses.values()]:
            source.close()
        self._queues.clear()
        self._addresses.clear()
        self.interest.close()
        for name in self._sent:
            self._shared.use.sends_no_more(name)
        self._sent.clear()
        completed = self.settlements.completed()
        self.settlements.close()
        self._closed(self, ending, expiry, [*sent, *completed])


def _mark(publish: Publish) -> str:
    """By which a repetition of this message is recognised."""
    return (
        "."
        + blake2b(
            publish.payload, digest_size=6, salt=blake2b(publish.topic.encode(), digest_size=8).digest()
        ).hexdigest()
    )


def _suback(reason: int) -> int:
    """A reason code that SUBACK and UNSUBACK may carry."""
    return reason if reason in reasons.UNSUBACK and reason >= 0x80 else reasons.UNSPECIFIED_ERROR


def _with_qos(subscription: wire.Subscription, qos: int) -> wire.Subscription:
    return structs.replace(subscription, qos=qos)
