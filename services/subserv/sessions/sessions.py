"""MQTT sessions as stored, their packet ids, members of shared subscriptions, and the ends of sessions. Pure.

A change returns `Change`s; the caller stores them, and only then applies them in memory (`put`, `remove`,
`PacketTable.apply`). So memory is never ahead of the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from enmasse.identity.filter_limits import FilterLimits
from enmasse.identity.owned import owner
from enmasse.identity.shared_room import SharedRoom
from enmasse.model.sessions import Outgoing, PacketChange, Subscription
from enmasse.mqtt.topics import parse_share
from enmasse.stores import Change
from services.subserv import broker_names, records
from services.subserv.records import OutgoingRecord, SessionRecord
from services.subserv.sessions.qos2_owners import Message, Qos2Owners, Undo, goes_back, of_group
from services.subserv.subscription_placement import Subscriber
from services.subserv.suite_queues import SuiteIdentity


def undone(undo: list[Undo]) -> None:
    """Restore the former values."""
    for values, key, value in reversed(undo):
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


class PacketTable:
    """Packet ids of one session. `received`: pid → duplicate id; `sent`: pid → message, in their order."""

    __slots__ = ("_given", "_order", "received", "sent")

    def __init__(self, given: Qos2Owners) -> None:
        self.received: dict[int, str] = {}
        self.sent: dict[int, OutgoingRecord] = {}
        self._given = given
        self._order = 0

    def __len__(self) -> int:
        return len(self.received) + len(self.sent)

    def put_sent(self, client: str, record: OutgoingRecord) -> None:
        """Take over a stored record."""
        self._set(client, record.message.pid, record, [])
        message = _owned(record)
        if message is not None:
            self._given.owners[message] = client

    def _set(self, client: str, pid: int, record: OutgoingRecord | None, undo: list[Undo]) -> None:
        old = self.sent.pop(pid, None)
        undo.append((self.sent, pid, old))
        more = (record.held if record is not None else 0) - (old.held if old is not None else 0)
        if more:
            self._given.hold(client, more, undo)
        if record is not None:
            self.sent[pid] = record
            self._order = max(self._order, record.order)

    def messages(self) -> list[Outgoing]:
        """Return the messages under way to the client, in the order of their first sending."""
        return [record.message for record in sorted(self.sent.values(), key=lambda record: record.order)]

    def change(self, client: str, change: PacketChange, undo: list[Undo]) -> list[Change]:
        """Apply a change in memory; return the changes to store. `undo` gets the former values."""
        op, pid = change.op, change.pid
        if op in ("in", "in-"):
            undo.append((self.received, pid, self.received.pop(pid, None)))
            if op == "in":
                self.received[pid] = change.key or ""
                return [Change(records.PACKETS, records.received_key(client, pid), self.received[pid].encode())]
            return (
                [records.remove(records.PACKETS, records.received_key(client, pid))] if undo[-1][2] is not None else []
            )
        old = self.sent.get(pid)
        if op == "out":
            record = OutgoingRecord(self._order + 1, Outgoing(pid, 2, change.key, change.source), len(change.message))
        elif op == "rel":
            if old is None:
                record = OutgoingRecord(self._order + 1, Outgoing(pid, 2, change.key, change.source, "released"))
            else:
                record = OutgoingRecord(old.order, msgspec.structs.replace(old.message, state="released"))
        else:
            return self._forgotten(client, pid, old, op == "end", undo)
        changes = self._replaced(client, old, record, undo)
        if record.held:
            changes.append(Change(records.HELD, records.held_key(client, pid), change.message))
        return changes

    def _replaced(
        self, client: str, old: OutgoingRecord | None, record: OutgoingRecord, undo: list[Undo]
    ) -> list[Change]:
        pid = record.message.pid
        self._set(client, pid, record, undo)
        message, before = _owned(record), _owned(old) if old is not None else None
        if before is not None and before != message:
            undo.append((self._given.owners, before, self._given.owners.pop(before, None)))
        if message is not None:
            undo.append((self._given.owners, message, self._given.owners.get(message)))
            self._given.owners[message] = client
        changes = [records.put(records.PACKETS, records.sent_key(client, pid), record)]
        if old is not None and old.held:
            changes.append(records.remove(records.HELD, records.held_key(client, pid)))
        return changes

    def _forgotten(
        self, client: str, pid: int, old: OutgoingRecord | None, unsettled: bool, undo: list[Undo]
    ) -> list[Change]:
        """End the exchange; `unsettled`: the broker may still have the message."""
        if old is None:
            return []
        self._set(client, pid, None, undo)
        message, given = _owned(old), self._given
        changes = [records.remove(records.PACKETS, records.sent_key(client, pid))]
        if old.held:
            changes.append(records.remove(records.HELD, records.held_key(client, pid)))
        if message is not None:
            undo.append((given.owners, message, given.owners.pop(message, None)))
            if unsettled:
                undo.append((given.ended, message, given.ended.get(message)))
                given.ended[message] = True
                changes += given.end([message])
        return changes

    def left(self, client: str, message: Outgoing, undo: list[Undo]) -> list[Change]:
        """Take a message that a gateway leaves when it closes the client: under way, or completed and not settled.
        As `change`."""
        old = self.sent.get(message.pid)
        if message.state == "completed" and of_group(message.source, message.identity) is not None:
            return self._forgotten(client, message.pid, old, True, undo)
        return self._replaced(client, old, OutgoingRecord(self._order + 1, message), undo)

    def held(self) -> list[int]:
        """Packet ids of exchanges whose messages are held."""
        return sorted(pid for pid, record in self.sent.items() if record.held)

    def unconfirmed(self) -> dict[int, Message]:
        """Return by packet id the messages that go back to their queue if the session ends now."""
        return {
            pid: message
            for pid, record in self.sent.items()
            if record.held and record.message.state == "published"
            if (message := _owned(record)) is not None and goes_back(message)
        }

    def owned(self) -> list[Message]:
        """Return the messages of contended sources that are this session's."""
        return [message for message in map(_owned, self.sent.values()) if message is not None]


def _owned(record: OutgoingRecord) -> Message | None:
    """Return the message if no other client may get it: it is held, or PUBREC was received."""
    message = record.message
    return of_group(message.source, message.identity) if record.held or message.state != "published" else None


class Session(Subscriber):
    """A client's session. `filters` are those of its own queues: neither shared nor of other addresses than topics."""

    __slots__ = ("announced", "packets", "record", "shares", "subscriptions", "user")

    def __init__(self, id: str, record: SessionRecord, given: Qos2Owners) -> None:
        super().__init__(id, record.created, space=owner(record.client).space)
        self.user = owner(record.client).principal.full_name
        self.record = record
        self.subscriptions: dict[str, Subscription] = {}
        """By filter; changed by `Sessions` only."""
        self.shares: set[str] = set()
        """Ids of the shared subscriptions of which it is a member."""
        self.packets = PacketTable(given)
        self.announced: list[str] | None = None
        """Addresses of the sources that its gateway knows of; None: none yet."""


class Share(Subscriber):
    """A shared subscription; it lives while it has members. `created`: 0 if it was read from the store."""

    __slots__ = ("members", "name")

    def __init__(self, id: str, filter: str, name: str, space: str) -> None:
        super().__init__(id, 0, (filter,), space=space)
        self.name = name
        """As clients subscribe to it: `$share/<group>/<filter>`."""
        self.members: set[str] = set()


class Sessions:
    """All sessions by client, and the shared subscriptions by id."""

    def __init__(self) -> None:
        self.by_client: dict[str, Session] = {}
        self.by_id: dict[str, Session] = {}
        self.shares: dict[str, Share] = {}
        self.given = Qos2Owners()
        self.loaded = False
        """Everything stored has been read: what comes is new."""
        self.connected = 0
        self.room = SharedRoom()
        """Number of sessions."""
        self.subscriptions = SharedRoom()
        """Number of their subscriptions."""
        self.wildcards = FilterLimits()
        """Limits of all filters, those over `$subctrl` included."""
        self.identity = SuiteIdentity()
        self._ends: list[tuple[float, str]] = []

    def share_of(self, client: str, filter: str) -> Share | None:
        """Return a new shared subscription of the client's user, without members; None: the filter is an ordinary one.
        Raises ValueError."""
        parts = parse_share(filter)
        if parts is None:
            return None
        user = owner(client).principal
        id = broker_names.share_id(parts.group, parts.filter, user)
        return Share(self.identity.share(id), parts.filter, filter, user.space)

    def put(self, record: SessionRecord) -> Session:
        """Take over this record as the state of its session. Return the session; a new one if the record's `created`
        is new."""
        session = self.by_client.get(record.client)
        if session is not None and session.created != record.created:
            self.remove(session)
            session = None
        if session is None:
            id = self.identity.local(broker_names.session_id(record.client), record.created)
            session = Session(id, record, self.given)
            self.by_client[record.client] = self.by_id[session.id] = session
            self.room.add(session.user)
        else:
            self.connected -= session.record.connected
            session.record = record
        self.connected += record.connected
        if record.ends is not None:
            heapq.heappush(self._ends, (record.ends, record.client))
            if len(self._ends) > 2 * len(self.by_client) + 1000:  # many that were opened again
                ends = ((each.record.ends, client) for client, each in self.by_client.items())
                self._ends = [(at, client) for at, client in ends if at is not None]
                heapq.heapify(self._ends)
        return session

    def remove(self, session: Session) -> None:
        """Remove a session that has ended."""
        record = session.record
        self.by_client.pop(record.client, None)
        self.by_id.pop(session.id, None)
        self.connected -= record.connected
        self.room.add(session.user, -1)
        self.subscriptions.add(session.user, -len(session.subscriptions))
        self.wildcards.remove(record.client, session.subscriptions)
        self._leave(session, list(session.shares))
        self.given.returning.update(dict.fromkeys(session.packets.unconfirmed().values()))
        self.given.over(record.client, session.packets.owned())

    def subscribe(self, session: Session, subscriptions: Iterable[Subscription]) -> None:
        """Add these subscriptions, in place of those of the same filter."""
        own = []
        for each in subscriptions:
            if each.filter not in session.subscriptions:
                self.subscriptions.add(session.user)
                self.wildcards.add(session.record.client, [each.filter])
                share = self.share_of(session.record.client, each.filter)
                if share is None:
                    own.append(each.filter)
                else:
                    self._join(session, share)
            session.subscriptions[each.filter] = each
        if own:
            session.filters = session.filters.union(own)

    def unsubscribe(self, session: Session, filters: Iterable[str]) -> list[Subscription]:
        """Remove subscriptions; return the removed ones."""
        gone = [each for filter in filters if (each := session.subscriptions.pop(filter, None)) is not None]
        self.subscriptions.add(session.user, -len(gone))
        client = session.record.client
        self.wildcards.remove(client, [each.filter for each in gone])
        shares = [share.id for share in (self.share_of(client, each.filter) for each in gone) if share is not None]
        self._leave(session, shares)
        if len(shares) < len(gone):
            session.filters = session.filters.difference(each.filter for each in gone)
        return gone

    def _join(self, session: Session, share: Share) -> None:
        known = self.shares.setdefault(share.id, share)
        if known is share and self.loaded:
            share.created = self.identity.next()
        known.members.add(session.record.client)
        session.shares.add(share.id)

    def _leave(self, session: Session, shares: Iterable[str]) -> None:
        for id in shares:
            session.shares.discard(id)
            share = self.shares[id]
            share.members.discard(session.record.client)
            if not share.members:
                del self.shares[id]

    def end(self, session: Session) -> list[Change]:
        """Return the changes that delete the session from the store."""
        client = session.record.client
        packets = session.packets
        return [
            records.remove(records.SESSIONS, client),
            *(records.remove(records.FILTERS, records.filter_key(client, filter)) for filter in session.subscriptions),
            *records.packets_gone(client, packets.received, packets.sent),
            *(records.remove(records.HELD, records.held_key(client, pid)) for pid in packets.held()),
            *self.given.end(packets.owned()),
        ]

    def over(self, now: float) -> list[Session]:
        """Return the sessions that have expired by now, once."""
        found = []
        while self._ends and self._ends[0][0] <= now:
            ends, client = heapq.heappop(self._ends)
            session = self.by_client.get(client)
            if session is not None and session.record.ends == ends:
                found.append(session)
        return found

    def of(self, gateway: str) -> Iterator[Session]:
        """Return the connected sessions of a gateway."""
        for session in self.by_client.values():
            if session.record.connected and session.record.gateway == gateway:
                yield session

    def subscriber(self, id: str) -> Subscriber | None:
        """Return the session or share with this id, or None."""
        return self.by_id.get(id) or self.shares.get(id)

    def subscribers(self) -> Iterator[Subscriber]:
        """Yield all sessions, then all shares."""
        yield from self.by_client.values()
        yield from self.shares.values()

    def shares_of(self, session: Session) -> list[Share]:
        """The shared subscriptions of which a session is a member."""
        return [self.shares[id] for id in sorted(session.shares)]
