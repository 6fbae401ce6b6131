"""MQTT clients come, subscribe and go: what gateways ask for (docs/contracts.md, "$mqtt/sessions").

Everything is durable before it is answered. Requests for one client are served in their order. The epoch fences: once a
client is opened again, nothing that its former gateway asks for has an effect.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from enmasse.identity.owned import owner
from enmasse.identity.principal import Principal
from enmasse.logs import log
from enmasse.model import sessions as wire
from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import FilterRefused
from enmasse.mqtt.topics import fault_of_filter
from enmasse.process import runner
from enmasse.stores import Change, Store
from services.subserv import records
from services.subserv.brokers.binding import Binder, Wanted
from services.subserv.brokers.brokers import Brokers
from services.subserv.permits import Permits
from services.subserv.records import SessionRecord
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.serial_work import SerialWork
from services.subserv.sessions.announced_addresses import Command, SessionSources
from services.subserv.sessions.packet_ids import Packets
from services.subserv.sessions.qos2_owners import Undo
from services.subserv.sessions.sessions import Session, Sessions, Share, undone
from services.subserv.subscription_placement import Desired

REMEMBERED = 60.0
"""Seconds after the end of a session in which the client's next connection learns that there may be a will."""
HANDOVER = 2.0
"""Seconds a gateway has to close a client that is opened elsewhere."""
MAX_SESSIONS = 200_000
"""Sessions of all users, who share the room (`SharedRoom`), as they do that of all subscriptions."""
MAX_SUBSCRIPTIONS = 20_000
"""Subscriptions of one session, at most."""
MAX_SUBSCRIPTIONS_ALL = 1_000_000
UNSPECIFIED, IMPLEMENTATION, FILTER_INVALID, QUOTA, NO_SHARED = 0x80, 0x83, 0x8F, 0x97, 0x9E
TAKEN_OVER = 0x8E
NOT_AUTHORIZED = 0x87
NO_SUBSCRIPTION = 0x11


class Refusal(Exception):
    """A request is not served: the body of the answer."""

    def __init__(self, condition: str, description: str, reason: int) -> None:
        super().__init__(description)
        self.failure = wire.Failure(condition=condition, description=description, reason=reason)


class _Plan(NamedTuple):
    """Result for one filter of a SUBSCRIBE: a refusal, or a subscription and the work for brokers."""

    asked: Subscription
    code: int
    reason: str
    wanted: Wanted | None


class Clients:
    """The sessions' operations. They raise Refusal, and StoreError if nothing could be stored."""

    def __init__(
        self,
        sessions: Sessions,
        store: Store,
        packets: Packets,
        desired: Desired,
        brokers: Brokers,
        binder: Binder,
        command: Command,
        gateways: Callable[[], Iterable[str]],
        turns: SerialWork,
        sources: SessionSources,
        retained: RetainedMessages,
        permits: Permits,
    ) -> None:
        self.sessions = sessions
        self._store = store
        self._packets = packets
        self._desired = desired
        self._brokers = brokers
        self._binder = binder
        self._command = command
        self._gateways = gateways
        self._turns = turns
        self._sources = sources
        self._retained = retained
        self._permits = permits
        self._new: set[str] = set()
        """Clients whose first session is being stored."""
        self._handing_over: dict[str, asyncio.Future[wire.Close]] = {}
        self._abandoned: dict[str, int] = {}
        """Client → epoch that no gateway holds: what opened it could not be stored."""
        self._ended_with_will: dict[str, float] = {}
        """Client → when its session ended, if its connection had a will, which may not be published yet."""
        self._untold: dict[str, wire.SessionDeleted] = {}
        """Client → its deleted session, until a gateway can be informed that the delay of its will has ended."""

    # open, close

    async def open(self, request: wire.Open) -> wire.OpenReply:
        """Open a session for a client that connects, and take it over from another gateway if it is connected there.
        Raises Refusal if there are too many sessions, or the client's space was removed, StoreError."""
        async with self._turns.of(request.client):
            if self._permits.ending.has(owner(request.client).space):
                raise Refusal("amqp:unauthorized-access", "the address space of the client was removed", NOT_AUTHORIZED)
            if request.client in self.sessions.by_client:
                return await self._open(request)
            self._check_room(owner(request.client).principal)
            self._new.add(request.client)
            try:
                return await self._open(request)
            finally:
                self._new.discard(request.client)

    def _check_room(self, principal: Principal) -> None:
        """Raise Refusal if there is no room for another session of this user, or of its space."""
        sessions, user, space = self.sessions, principal.full_name, principal.space
        text = ""
        if sessions.room.is_full(user, MAX_SESSIONS):
            text = f"user {user} has {sessions.room.of(user)} of {sessions.room.used} sessions: end some"
            text += ", others need the room that is left"
        elif (limit := self._permits.plans.limits(space).sessions) is not None:
            coming = (owner(each).principal.space for each in self._new if each not in sessions.by_client)
            used = sessions.room.of_space(space) + sum(each == space for each in coming)
            text = self._permits.plans.full(space, limit, used, "MQTT sessions")
        if text:
            raise Refusal("amqp:resource-limit-exceeded", text, QUOTA)

    async def _open(self, request: wire.Open) -> wire.OpenReply:
        """As `open`, of a client that there is room for. Raises StoreError."""
        sessions = self.sessions
        old = sessions.by_client.get(request.client)
        closed, over = None, False
        if old is not None and old.record.connected:
            closed = await self._take_over(old)
            await self._packets.settled()  # what the former gateway has sent before it closed the client
            expiry = old.record.expiry if closed is None or closed.expiry is None else closed.expiry
            over = expiry == 0  # it ends with the connection that is taken over (v3.1.1 3.1.2.4, v5 3.1.2.11.2)
        now = time.time()
        if old is not None and old.record.ends is not None and old.record.ends <= now:
            await self._end(old)
            old = None
        ended_with_will = self._ended_with_will.pop(request.client, None) is not None
        previous_will = ended_with_will or (old is not None and old.record.will)
        present = old is not None and not request.clean and not over
        epoch = sessions.identity.next()
        fresh = SessionRecord(
            client=request.client,
            created=old.created if old is not None and present else epoch,
            epoch=epoch,
            protocol=request.protocol,
            expiry=request.expiry,
            connected=True,
            gateway=request.gateway,
            peer=request.peer,
            will=request.will,
            since=now,
            round=old.record.round if old is not None and present else 0,
            groups=request.groups,
        )
        changes = [records.put(records.SESSIONS, request.client, fresh), sessions.identity.used(epoch)]
        undo: list[Undo] = []
        if old is not None:
            # No change of the former epoch's is taken from now on, and none is on its way to the store.
            old.record = msgspec.structs.replace(old.record, epoch=epoch)
        sent: list[wire.Outgoing] = []
        try:
            if old is not None:
                await self._packets.settled()
                if not present:
                    changes = [*sessions.end(old), *await self._packets.returned(old), *changes]
                elif closed is not None:
                    changes += _left(old, closed.sent, undo)
            if present and old is not None:
                sent = await self._packets.sent(old)
            await self._store.write(changes)
        except BaseException:
            undone(undo)
            if old is not None and old.record.connected:
                self._abandoned[request.client] = epoch
            raise
        ended = old if old is not None and not present else None
        session = sessions.put(fresh)
        if ended is not None:
            self._remove_queues(ended)
        sources = self._sources.tell(session)
        return wire.OpenReply(
            epoch=epoch,
            present=present,
            subscriptions=list(session.subscriptions.values()),
            sources=sources,
            received=list(session.packets.received.items()),
            sent=sent,
            previous_will="pending" if previous_will else "",
        )

    async def _take_over(self, session: Session) -> wire.Close | None:
        """Ask the gateway that has the client to close it; return its `close` if it came in time."""
        record = session.record
        future: asyncio.Future[wire.Close] = asyncio.get_running_loop().create_future()
        self._handing_over[record.client] = future
        try:
            command = wire.Takeover(client=record.client, epoch=record.epoch)
            if not self._command(record.gateway, "takeover", command):
                return None
            async with asyncio.timeout(HANDOVER):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._handing_over[record.client]

    async def hand_over(self, request: wire.Handover) -> wire.HandoverReply:
        """Have a client closed that is connected at another gateway than this one, which has no room for it until then.
        Raises StoreError."""
        async with self._turns.of(request.client):
            session = self.sessions.by_client.get(request.client)
            if session is None or not session.record.connected or session.record.gateway == request.gateway:
                return wire.HandoverReply()
            epoch = session.record.epoch
            closed = await self._take_over(session)
            await self._disconnect(session, *((None, ()) if closed is None else (closed.expiry, closed.sent)))
            return wire.HandoverReply(epoch=epoch)

    async def close(self, request: wire.Close) -> wire.CloseReply:
        """Handle the end of a client's connection. Raises Refusal if the epoch is not the newest, StoreError."""
        self._check(request.client, request.epoch)
        taking = self._handing_over.get(request.client)
        if taking is not None:
            if not taking.done():
                taking.set_result(request)
            return wire.CloseReply()
        async with self._turns.of(request.client):
            session = self._check(request.client, request.epoch)
            await self._disconnect(session, request.expiry, request.sent)
        return wire.CloseReply()

    async def lose(self, client: str, epoch: int) -> None:
        """Disconnect a client whose gateway is lost or does not know it. Raises StoreError."""
        async with self._turns.of(client):
            session = self.sessions.by_client.get(client)
            if session is not None and session.record.connected and session.record.epoch == epoch:
                await self._disconnect(session, None, ())

    async def _disconnect(self, session: Session, expiry: int | None, sent: Iterable[wire.Outgoing]) -> None:
        record = session.record
        expiry = record.expiry if expiry is None else expiry
        await self._packets.settled()
        if expiry == 0:
            await self._end(session)
            return
        now = time.time()
        closed = msgspec.structs.replace(
            record, connected=False, expiry=expiry, since=now, ends=records.end_of(expiry, now)
        )
        undo: list[Undo] = []
        try:
            kept = _left(session, sent, undo)
            await self._store.write([records.put(records.SESSIONS, record.client, closed), *kept])
        except BaseException:
            undone(undo)
            raise
        self.sessions.put(closed)

    async def _end(self, session: Session) -> None:
        record = session.record
        # No gateway has epoch 0: what goes back to its queue is not confirmed meanwhile.
        session.record = msgspec.structs.replace(record, epoch=0)
        try:
            await self._packets.settled()
            returned = await self._packets.returned(session)
            await self._store.write([*self.sessions.end(session), *returned])
        except BaseException:
            session.record = record
            raise
        self.sessions.remove(session)
        if record.will:
            self._ended_with_will[record.client] = time.time()
        self._remove_queues(session)

    def _remove_queues(self, session: Session) -> None:
        """Let the brokers delete the session's entities."""
        self._touch(session, session.subscriptions)

    def _leave(self, shares: Iterable[str]) -> None:
        for id in shares:
            if id not in self.sessions.shares:
                for broker in self._brokers:
                    broker.conversation.subscriber_ended(id)

    async def end_over(self, now: float) -> None:
        """End expired sessions, and disconnect those that no gateway holds. Raises StoreError."""
        for client, epoch in list(self._abandoned.items()):
            await self.lose(client, epoch)
            if self._abandoned.get(client) == epoch:
                del self._abandoned[client]
        for client, since in list(self._ended_with_will.items()):
            if abs(now - since) > REMEMBERED:
                del self._ended_with_will[client]
        over = self.sessions.over(now)
        results = await asyncio.gather(*(self._end_if_over(s.record.client, now) for s in over), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        for session, result in zip(over, results, strict=True):
            if isinstance(result, Exception) and self.sessions.by_client.get(session.record.client) is session:
                self.sessions.put(session.record)  # tried again next time
        if failed:
            raise failed[0]

    async def _end_if_over(self, client: str, now: float) -> None:
        async with self._turns.of(client):
            session = self.sessions.by_client.get(client)
            if session is not None and session.record.ends is not None and session.record.ends <= now:
                await self._end(session)

    async def delete(self, client: str, by: str = "") -> int:
        """Disconnect the client and end its session. `by`: the operator."""
        async with self._turns.of(client):
            session = self.sessions.by_client.get(client)
            if session is None:
                return 0
            record = session.record
            if record.will:
                deleted = wire.SessionDeleted(client=client, epoch=record.epoch)
                # The first one has the client, or had it last.
                if not any(
                    self._command(each, "session_deleted", deleted) for each in (record.gateway, *self._gateways())
                ):
                    self._untold[client] = deleted
            if record.connected:
                self.disconnect(client, 0x98, by)
            await self._end(session)
            return 1

    def disconnect(self, client: str, reason: int, by: str = "") -> int:
        """Have the gateway disconnect a client. Return 0 if it is not connected. `by`: the operator."""
        session = self.sessions.by_client.get(client)
        if session is None or not session.record.connected:
            return 0
        command = wire.Disconnect(client=client, epoch=session.record.epoch, reason=reason, by=by)
        return int(self._command(session.record.gateway, "disconnect", command))

    # hello, packets

    def hello(self, request: wire.Hello) -> wire.HelloReply:
        """Disconnect the sessions that the gateway no longer holds."""
        sessions = self.sessions
        held = dict(request.sessions)
        stale, kept = [], []
        for client, epoch in request.sessions:
            session = sessions.by_client.get(client)
            if session is None or session.record.epoch != epoch or not session.record.connected:
                stale.append(client)
        for session in sessions.of(request.gateway):
            if held.get(session.record.client) != session.record.epoch:
                runner.spawn(self.lose(session.record.client, session.record.epoch), "disconnect")
            else:
                kept.append(session.id)
        runner.spawn(self._sources.tell_in_portions(kept), "sources")
        for client, deleted in list(self._untold.items()):
            if self._command(request.gateway, "session_deleted", deleted):
                del self._untold[client]
        return wire.HelloReply(stale=stale, seal=base64.b64encode(self._retained.key).decode())

    async def gateway_gone(self, gateway: str) -> None:
        """Disconnect all clients of a gateway. Raises StoreError."""
        await asyncio.gather(*(self.lose(s.record.client, s.record.epoch) for s in list(self.sessions.of(gateway))))

    async def packets(self, request: wire.Packets) -> wire.PacketsReply:
        """Change packet ids of any clients of a gateway, in their order. Raises StoreError."""
        return await self._packets.change(request.changes)

    # subscribe, unsubscribe

    async def subscribe(self, request: wire.Subscribe) -> wire.SubscribeReply:
        """Subscribe: each filter has a code, and a reason if it was refused. Returns once brokers and store have them.
        Raises Refusal if the epoch is not the newest, StoreError; then the subscriptions are as before."""
        async with self._turns.of(request.client):
            session = self._check(request.client, request.epoch)
            before = session.record
            plans = [self._plan(session, each) for each in self._within_limits(session, request.subscriptions)]
            new = {plan.asked.filter: plan.asked for plan in plans if plan.code < UNSPECIFIED}
            old = {filter: session.subscriptions.get(filter) for filter in new}
            number = f"{session.id}:{before.created}:{before.round}"
            self.sessions.subscribe(session, new.values())  # in memory; stored when the brokers have them
            try:
                newest = max((self.sessions.shares[id].created for id in session.shares), default=0)
                await self.sessions.identity.make_durable(self._store, newest)
                failed = await self._binder.bind([plan.wanted for plan in plans if plan.wanted is not None], number)
                self._take_back(session, {filter: old[filter] for filter in failed})
                record = msgspec.structs.replace(before, round=before.round + 1)
                kept = [each for filter, each in new.items() if filter not in failed]
                await self._store.write(
                    [
                        records.put(records.SESSIONS, request.client, record),
                        *(records.put(records.FILTERS, records.filter_key(request.client, e.filter), e) for e in kept),
                    ]
                )
            except BaseException:
                self._take_back(session, old)
                raise
            self.sessions.put(record)
            codes = []
            reasons = [plan.reason or failed.get(plan.asked.filter, "") for plan in plans]
            for plan in plans:
                code = IMPLEMENTATION if plan.asked.filter in failed and plan.code < UNSPECIFIED else plan.code
                codes.append(UNSPECIFIED if code >= UNSPECIFIED and before.protocol == 4 else code)
            return wire.SubscribeReply(codes=codes, sources=self._sources.tell(session), reasons=reasons)

    async def unsubscribe(self, request: wire.Unsubscribe) -> wire.UnsubscribeReply:
        """Unsubscribe. A broker that cannot be asked now removes its bindings later; the reply has the reason. Raises
        Refusal if the epoch is not the newest, StoreError."""
        async with self._turns.of(request.client):
            session = self._check(request.client, request.epoch)
            codes = [0 if filter in session.subscriptions else NO_SUBSCRIPTION for filter in request.filters]
            gone = [filter for filter in dict.fromkeys(request.filters) if filter in session.subscriptions]
            if gone:
                await self._end_subscriptions(session, gone)
                failed = await self._binder.applied(session.id)
                if failed:  # done as soon as the broker can be asked; the client is answered now
                    return wire.UnsubscribeReply(codes=codes, sources=self._sources.tell(session), reason=failed)
            return wire.UnsubscribeReply(codes=codes, sources=self._sources.tell(session))

    async def end_forbidden(self, client: str, forbidden: Callable[[Session], list[str]]) -> None:
        """End the subscriptions that the user may no longer have; a client that is connected is disconnected, because
        its gateway does so too, unless it has missed the change. Raises StoreError."""
        async with self._turns.of(client):
            session = self.sessions.by_client.get(client)
            gone = [] if session is None else forbidden(session)
            if session is None or not gone:
                return
            await self._end_subscriptions(session, gone)
            log.get(client=client, space=owner(client).space).info(
                "subserv.subscriptions.forbidden", filters=[each[:200] for each in gone[:20]]
            )
            self.disconnect(client, NOT_AUTHORIZED)

    async def _end_subscriptions(self, session: Session, gone: Iterable[str]) -> None:
        """End these subscriptions. Brokers are notified, and not waited for. Raises StoreError."""
        keys = [records.filter_key(session.record.client, filter) for filter in gone]
        await self._store.write([records.remove(records.FILTERS, key) for key in keys])
        self.sessions.unsubscribe(session, gone)
        self._touch(session, gone)

    def _within_limits(self, session: Session, asked: Iterable[Subscription]) -> Iterable[tuple[Subscription, str]]:
        """Yield each subscription with the reason why it exceeds a limit; empty: it is within all."""
        known, new, everybodys = session.subscriptions, set[str](), self.sessions.subscriptions
        room = self.sessions.wildcards.room(session.record.client)
        for each in asked:
            reason = ""
            if each.filter not in known and each.filter not in new:
                if len(known) + len(new) >= MAX_SUBSCRIPTIONS:
                    reason = f"a session may have {MAX_SUBSCRIPTIONS} subscriptions: unsubscribe from some"
                elif everybodys.is_full(session.user, MAX_SUBSCRIPTIONS_ALL, len(new)):
                    reason = f"user {session.user} has {everybodys.of(session.user)} subscriptions: unsubscribe from "
                    reason += "some, others need the room that is left"
                elif not (reason := room.refusal(each.filter)):
                    new.add(each.filter)
            yield each, reason

    def _plan(self, session: Session, asked: tuple[Subscription, str]) -> _Plan:
        each, too_many = asked
        if too_many:
            return _Plan(each, QUOTA, too_many, None)
        share = None
        try:
            share = self.sessions.share_of(session.record.client, each.filter)
            filter = each.filter if share is None else next(iter(share.filters))
            if (fault := fault_of_filter(filter)) is not None:
                raise FilterRefused(f"the filter {fault}")
            targets = self._desired.targets(filter, space=session.space)
        except ValueError as error:
            return _Plan(each, FILTER_INVALID, str(error), None)
        if share is not None and any(target.traits.broadcast for target in targets):
            return _Plan(
                each, NO_SHARED, "every receiver of a multicast address gets each message: do not share it", None
            )
        is_new = each.filter not in session.subscriptions
        retained = share is None and (each.retain_handling == 0 or (each.retain_handling == 1 and is_new))
        if all(not target.traits.levels for target in targets) or not (is_new or retained):
            return _Plan(each, each.qos, "", None)
        id = session.id if share is None else share.id
        return _Plan(each, each.qos, "", Wanted(each.filter, filter, id, retained, space=session.space))

    def _take_back(self, session: Session, old: Mapping[str, Subscription | None]) -> None:
        """Restore the former subscriptions."""
        if old:
            self.sessions.unsubscribe(session, [filter for filter, each in old.items() if each is None])
            self.sessions.subscribe(session, [each for each in old.values() if each is not None])
            self._touch(session, old)

    def _touch(self, session: Session, filters: Iterable[str]) -> None:
        """Note that the targets of these filters may have changed."""
        shares = {share.id for filter in filters if (share := self._share(session, filter)) is not None}
        self._leave(shares)
        self._brokers.touch((session.id, *shares))

    def _share(self, session: Session, filter: str) -> Share | None:
        try:
            return self.sessions.share_of(session.record.client, filter)
        except ValueError:
            return None

    def _check(self, client: str, epoch: int) -> Session:
        session = self.sessions.by_client.get(client)
        if session is None or session.record.epoch != epoch or not session.record.connected:
            raise Refusal(wire.STALE, f"client {client[:100]!r} is connected elsewhere, or has no session", TAKEN_OVER)
        return session


def _left(session: Session, sent: Iterable[wire.Outgoing], undo: list[Undo]) -> list[Change]:
    """Return the changes for the messages that a gateway was sending to the client; as `PacketTable.change`."""
    return [each for message in sent for each in session.packets.left(session.record.client, message, undo)]
