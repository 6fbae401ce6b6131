"""A client: its frames in their order, and what they mean. Frames wait while one of them is not done that later ones
depend on, or too much of the client waits; then the client is not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from enmasse import __version__
from enmasse.bridge.client_rates import too_large
from enmasse.bridge.lanes import Publisher
from enmasse.bridge.message_fields import DUPLICATE_ID
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.bridge.message_routes import unknown_address
from enmasse.first_bytes import STOMP, another
from enmasse.identity import senders
from enmasse.identity.login import Login
from enmasse.identity.owned import owned
from enmasse.identity.permissions import Rights
from enmasse.logs import log as logs
from enmasse.model.address_types import TYPES
from enmasse.model.names import DEFAULT_SPACE, is_temporary
from enmasse.model.permission_words import Operation
from enmasse.network.deadline import Deadline
from enmasse.wire_formats.stomp_frames import (
    BEAT,
    V10,
    V11,
    V12,
    VERSIONS,
    BadFrame,
    StompFrame,
    StompParser,
    encoded,
)
from services.stomp_gateway.stomp_destinations import NoDestination, StompDestination, destination
from services.stomp_gateway.stomp_errors import TAKEN, StompError, of_outcome
from services.stomp_gateway.stomp_mapping import to_amqp, to_stomp
from services.stomp_gateway.stomp_peers import StompPeer, StompWire
from services.stomp_gateway.stomp_shared import StompShared
from services.stomp_gateway.stomp_subscriptions import (
    AUTO,
    MODES,
    MOST,
    PREFETCH,
    StompDelivery,
    StompSubscription,
    outcome_of,
)
from services.stomp_gateway.stomp_transactions import LIFE, OPEN, Open, StompSpace

log = logs.get(part="stomp")

EARLY_BYTES: Final = 64 << 10
"""Bytes of a client that are taken before it has logged in."""
SUBSCRIPTIONS: Final = 200
"""Subscriptions of a connection."""
SELECTOR: Final = 8 << 10
"""Bytes of a selector, which has to fit into one frame of AMQP with the address and the name of the subscription."""
SOONEST: Final = 1000
"""Milliseconds between heart-beats, at least."""
SLACK: Final = 2.0
"""Factor by which heart-beats of a client may be late: clients send them from threads that do other work, and are
killed by machines that are busy long before they are gone."""
SLACK_SECONDS: Final = 5.0
FLOODED: Final = 1 << 20
"""Bytes that a client leaves unread at which messages to all are not for it."""
UNREAD_SECONDS: Final = 60.0
"""Seconds in which a client that leaves much unread has to take `UNREAD_TAKEN` bytes."""
UNREAD_TAKEN: Final = 64 << 10
OWED: Final = 64 << 10
"""Characters of receipts that wait for outcomes, beyond which a client is not read."""
KEY: Final = 255
_DURABLE: Final = ("durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName")
_PREFETCH: Final = ("prefetch-count", "activemq.prefetchSize")
_NAME: Final = 255
_DIGITS: Final = 20
_CONNECTING: Final = ("CONNECT", "STOMP")


class StompClient(Publisher):
    """`peer`: facts of its connection. `key` of its messages is the receipt that they ask for, or empty."""

    def __init__(self, clients: StompShared, wire: StompWire, peer: StompPeer) -> None:
        super().__init__()
        self.clients = clients
        self.peer = peer
        self.name = f"{peer.name}#{peer.number}"
        self.login: Login | None = None
        self.rights: Rights | None = None
        self.lanes: StompSpace
        self.version = V10
        self.client_id = ""
        self.opened = clients.now()
        self.subscriptions: dict[str, StompSubscription] = {}
        self.transactions: dict[str, Open] = {}
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.messages_in = self.messages_out = 0
        self.in_flight = 0
        self._owed = 0
        """Messages and acknowledgements without an outcome."""
        self._wire = wire
        self._parser = StompParser(clients.most)
        self._waits: set[str] = set()
        """Why frames wait."""
        self._reading = True
        self._running = False
        self._ended = False
        self._kept = 0
        self._number = 0
        self._deliveries: dict[str, StompSubscription] = {}
        self._temporaries: dict[str, StompSubscription] = {}
        self._leaving: Callable[[], None] | None = None
        self._sent_at = self._heard_at = self.opened
        self._beats: tuple[float, float] = (0.0, 0.0)  # seconds between ours, and most between two of the client
        self._beat_timer: Deadline | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._login_timer: Deadline | None = Deadline(clients.loop, clients.now() + clients.patience, self._late)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def space(self) -> str:
        """As client_rates.Metered."""
        return DEFAULT_SPACE if self.login is None else self.login.principal.space

    @property
    def user(self) -> str:
        """The full name of the user; empty before the login."""
        return "" if self.login is None else self.login.principal.full_name

    @property
    def host(self) -> str:
        """As acceptor.OfHost."""
        return self.peer.name.rpartition(":")[0]

    @property
    def quiet(self) -> bool:
        """Return whether nothing of it is under way."""
        return not (self._deliveries or self.transactions or self.in_flight)

    # bytes of the client

    def take(self, data: bytes) -> None:
        """Take bytes. Does not raise."""
        if self._ended:
            return
        self._heard_at = self.clients.now()
        self.bytes_in += len(data)
        if self.login is None and (reason := another(data, STOMP)) is not None and self.bytes_in == len(data):
            self.fail(StompError("another protocol", reason))
            return
        if self.login is None and self.bytes_in > EARLY_BYTES:
            self.fail(
                StompError("too much before the login", f"more than {EARLY_BYTES} bytes have come before CONNECTED")
            )
            return
        self._parser.feed(data)
        self._go_on()

    def _go_on(self) -> None:
        if self._running or self._ended:
            return
        self._running = True
        try:
            while not self._waits and not self._ended:
                frame = self._parser.next()
                if frame is None:
                    break
                self.frames_in += 1
                try:
                    self._handle(frame)
                except StompError as error:
                    error.receipt = error.receipt or frame.headers.get("receipt", "")
                    raise
        except StompError as error:
            self.fail(error)
        except BadFrame as error:
            self.fail(StompError("malformed frame", str(error)))
        except Exception as error:
            self.crash(error)
        finally:
            self._running = False
        self._count_kept()
        self._look_at_reading()

    def _look_at_reading(self) -> None:
        wanted = not self._waits and not self._ended
        if wanted is not self._reading:
            self._reading = wanted
            self._wire.reading(wanted)

    def _count_kept(self) -> None:
        kept = 0 if self._ended else self._parser.kept
        self.clients.kept += kept - self._kept
        self._kept = kept
        if kept > EARLY_BYTES and self.clients.kept > self.clients.memory:
            self.fail(StompError("try again later", "the gateway has too many messages at once"))

    def _wait(self, why: str) -> None:
        self._waits.add(why)

    def _done(self, why: str) -> None:
        self._waits.discard(why)
        if not self._waits:
            self._go_on()

    def _run(self, work: Any) -> None:
        task = self.clients.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, StompError):
            self.fail(error)
        elif isinstance(error, Exception):
            self.crash(error)

    # bytes to the client

    def write(self, data: bytes) -> None:
        """Write a frame."""
        if not self._ended:
            self.frames_out += 1
            self.bytes_out += len(data)
            self._sent_at = self.clients.now()
            self._wire.write(data)

    def _receipt(self, receipt: str) -> None:
        if receipt:
            self.write(encoded("RECEIPT", (("receipt-id", receipt),), version=self.version))

    def _owe(self, receipt: str) -> None:
        """Keep a receipt for an outcome."""
        self._owed += len(receipt)
        if self._owed > OWED:
            self._wait("receipts")

    def _owe_no_more(self, receipt: str) -> None:
        self._owed -= len(receipt)
        if self._owed <= OWED // 2 and "receipts" in self._waits:
            self._done("receipts")

    def fail(self, error: StompError) -> None:
        """Send ERROR, and close."""
        if self._ended:
            return
        self.clients.errors[error.message] = self.clients.errors.get(error.message, 0) + 1
        text = error.detail if self.login is None else self.lanes.topics.relative(error.detail)
        if not error.noted:
            self.clients.bridge.note_closed(
                error.message, text, peer=self.peer.name, client=self.client_id, login=self.login, space=self.peer.space
            )
        headers = [("message", error.message), ("content-type", "text/plain; charset=utf-8")]
        if error.receipt:
            headers.append(("receipt-id", error.receipt))
        if error.condition:
            headers.append(("condition", error.condition))
        if self.login is None:
            headers.append(("version", ",".join(VERSIONS)))
        self.write(encoded("ERROR", headers, f"{text}\n".encode("utf-8", "replace"), self.version))
        self._end()
        self._wire.close()

    def crash(self, error: Exception) -> None:
        """As StompReader."""
        log.error("stomp-gateway.connection.failed", peer=self.peer.name, exc_info=error)
        self.fail(StompError("internal error", "an unexpected error of the gateway, which is in its log"))

    def failed(self, error: Exception) -> None:
        """As Publisher."""
        self.crash(error)

    def lost(self) -> None:
        """The connection has ended."""
        self._end()

    def leave(self) -> None:
        """End in order: the gateway ends. What has come is done, receipts are sent."""
        if self.login is None:
            self._end()
            self._wire.close()
            return
        self._wait("leaving")
        self._look_at_reading()
        self._leave(lambda: self.fail(StompError("the gateway ends", "connect again", noted=True)))

    def _leave(self, leaving: Callable[[], None]) -> None:
        self._leaving = leaving
        self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        if self._leaving is not None and not self.in_flight:
            leaving, self._leaving = self._leaving, None
            self._close_subscriptions()
            leaving()

    def _close_subscriptions(self) -> None:
        for each in list(self.subscriptions.values()):
            each.close()
        self.subscriptions.clear()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.left = True
        for timer in (self._beat_timer, self._login_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._close_subscriptions()
        for work in self.transactions.values():
            work.end()
        self.transactions.clear()
        self._deliveries.clear()  # subscriptions refer to the client
        self._temporaries.clear()
        self._parser.clear()
        self._count_kept()
        self._wire.recognised()
        self.clients.leave(self)

    @property
    def ended(self) -> bool:
        """Return whether the client is gone, or about to go."""
        return self._ended

    def _late(self) -> None:
        self._login_timer = None
        if self.login is None:
            self.fail(StompError("too slow", f"no CONNECT, or no login, within {self.clients.patience:g} s"))

    # frames

    def _handle(self, frame: StompFrame) -> None:
        command = frame.command
        if self.login is None:
            if command not in _CONNECTING:
                raise StompError("not connected", f"the first frame is CONNECT or STOMP, not {command[:32]}")
            self._connect(frame)
            return
        if self.ended_by:
            raise StompError("access refused", self.ended_by)
        handler = _HANDLERS.get(command)
        if handler is None:
            raise StompError("unknown command", f"{command[:32]} is no command of a client")
        handler(self, frame)

    ended_by = ""
    """Why its login no longer holds."""

    # CONNECT

    def _connect(self, frame: StompFrame) -> None:
        headers = frame.headers
        accepted = [each.strip() for each in headers.get("accept-version", V10).split(",")]
        version = next((each for each in reversed(VERSIONS) if each in accepted), None)
        if version is None:
            raise StompError("unsupported version", f"supported are {', '.join(VERSIONS)}")
        ours, theirs = _beats(headers.get("heart-beat", "0,0"))
        client_id = headers.get("client-id", "")
        if len(client_id) > _NAME:
            raise StompError("bad header", f"client-id has at most {_NAME} characters")
        self._wait("login")
        self.client_id = client_id
        self._run(self._enter(headers, version, ours, theirs))

    async def _enter(self, headers: dict[str, str], version: str, ours: int, theirs: int) -> None:
        login, lanes = await self.clients.enter(self, headers)
        if self._ended:
            self.clients.leave(self)
            return
        self.lanes, self.login = lanes, login
        self.version = self._parser.version = version
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._wire.recognised()
        self._wire.trust()
        self.write(
            encoded(
                "CONNECTED",
                (
                    ("version", version),
                    ("server", f"EnMasse/{__version__}"),
                    ("session", self.name),
                    ("heart-beat", f"{ours},{theirs}"),
                ),
                version=version,
            )
        )
        self._beats = ours / 1000, (theirs / 1000 * SLACK + SLACK_SECONDS if theirs else 0.0)
        self._look_at_beats()
        self._done("login")

    def _look_at_beats(self) -> None:
        """Send a heart-beat after half of the time between two; end a client that has sent nothing for too long."""
        ours, theirs = self._beats
        now = self.clients.now()
        if theirs and self._reading and now - self._heard_at > theirs:
            text = f"nothing has come from the client for {theirs:g} s"
            self.fail(StompError("no heart-beat", text, noted=True))
            return
        if not self._reading:
            self._heard_at = now  # it is not read: nothing can come
        if ours and now - self._sent_at >= ours / 2 and not self._wire.blocked:
            self._sent_at = now
            self.bytes_out += 1
            self._wire.write(BEAT)
        if ours or theirs:
            step = min(each for each in (ours / 4, theirs / 4) if each)
            self._beat_timer = Deadline(self.clients.loop, now + step, self._look_at_beats)

    # SEND

    def _send(self, frame: StompFrame) -> None:
        headers = frame.headers
        where = self._destination(headers)
        receipt = headers.get("receipt", "")
        name = self._made(where) if where.temporary else where.name
        if where.wild:
            raise StompError(
                "bad destination", f"{headers['destination'][:100]!r}: messages go to one address, without wildcards"
            )
        if not is_temporary(name) and not self._allowed("send", name):
            text = f"no permission to send to {name[:100]!r}"
            raise StompError("access refused", text, condition="amqp:unauthorized-access", noted=True)
        way = self.lanes.publishing.way(name)
        if way is None:
            text = unknown_address(name, self.lanes.topics, "send", self.rights)
            self.not_taken(name, MessageOutcome.REJECTED, "amqp:not-found", text)
            raise StompError("no such address", text, condition="amqp:not-found", noted=True)
        clients = self.clients
        limits = clients.bridge.allowances.limits(self.space)
        if limits.max_message_size is not None and len(frame.body) > limits.max_message_size:
            raise StompError("too large", too_large(len(frame.body), clients.bridge.allowances, self.space))
        route = way.route
        key = headers.get(DUPLICATE_ID)
        duplicate = "" if key is None or not route.traits.stored else self._duplicate(key)
        reply_to = headers.get("reply-to")
        payload = to_amqp(headers, frame.body, route.to, None if reply_to is None else self._reply(reply_to), duplicate)
        self.messages_in += 1
        if (named := headers.get("transaction")) is not None:
            self._post(named, route.wire, payload, stored=route.traits.stored, name=name)
            clients.bridge.rates.count(self, len(frame.body))
            self._receipt(receipt)
            return
        self.in_flight += 1
        self._owe(receipt)
        way.lane.send(self, receipt, 1, payload)
        clients.bridge.rates.count(self, len(frame.body))

    def sent(self, key: str, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher."""
        self.in_flight -= 1
        self.clients.outcomes[outcome] = self.clients.outcomes.get(outcome, 0) + 1
        if self._ended:
            return
        if outcome not in TAKEN:
            self.fail(of_outcome(outcome, condition, text, key))
            return
        if key:
            self._receipt(key)
            self._owe_no_more(key)
        if self._leaving is not None:
            self._look_at_leaving()

    def not_taken(self, to: str, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher."""
        peer = self.peer.name
        self.clients.bridge.note_message(
            to, condition, text, peer=peer, user=self.user, client=self.client_id, lanes=self.lanes
        )

    def hold(self) -> None:
        """As Publisher."""
        super().hold()
        self._wait("lanes")

    def proceed(self) -> None:
        """As Publisher."""
        super().proceed()
        self._done("lanes")

    def throttle(self, throttled: bool) -> None:
        """As client_rates.Metered."""
        if throttled:
            self._wait("rate")
        else:
            self._done("rate")

    def _destination(self, headers: dict[str, str]) -> StompDestination:
        try:
            return destination(headers.get("destination", ""))
        except NoDestination as error:
            raise StompError("bad destination", str(error)) from None

    def _made(self, where: StompDestination) -> str:
        """Return the address that was made for a temporary destination."""
        found = self._temporaries.get(where.temporary)
        if found is None or found.made_address is None:
            raise StompError("no such address", f"/temp-queue/{where.temporary[:100]}: subscribe to it first")
        return found.made_address

    def _reply(self, text: str) -> str:
        try:
            where = destination(text)
        except NoDestination as error:
            raise StompError("bad destination", f"reply-to: {error}") from None
        if where.temporary:
            return self._made(where)
        if not is_temporary(where.name) and not self._allowed("recv", where.name):
            refusal = f"no permission to receive from {text[:100]!r}, the address of replies"
            raise StompError("access refused", refusal, noted=True)
        return where.name

    def _duplicate(self, key: str) -> str:
        if not key or len(key) > KEY:
            raise StompError("bad header", f"{DUPLICATE_ID} has 1 to {KEY} characters")
        assert self.login is not None
        return senders.id_for(self.login.principal, f"stomp.{key}")

    def _allowed(self, operation: Operation, name: str) -> bool:
        if self.rights is None or self.rights.covers(operation, name)[0]:
            return True
        self.clients.bridge.note_denied(
            operation, name, peer=self.peer.name, user=self.user, client=self.client_id, lanes=self.lanes
        )
        return False

    # SUBSCRIBE

    def _subscribe(self, frame: StompFrame) -> None:
        headers = frame.headers
        stated = headers.get("destination", "")
        where = self._destination(headers)
        id = headers.get("id")
        if id is None:
            if self.version != V10:
                raise StompError("bad header", "SUBSCRIBE needs an id")
            id = stated
        if id in self.subscriptions:
            raise StompError("bad header", f"the subscription {id[:100]!r} is there already: choose another id")
        if len(self.subscriptions) >= SUBSCRIPTIONS:
            raise StompError("too many subscriptions", f"a connection has at most {SUBSCRIPTIONS}")
        mode = headers.get("ack", AUTO)
        if mode not in MODES:
            raise StompError("bad header", f"ack: expected {', '.join(MODES)}, not {mode[:40]!r}")
        durable = self._durable(headers)
        selector = headers.get("selector")
        if selector is not None and len(selector.encode("utf-8", "replace")) > SELECTOR:
            raise StompError("bad header", f"selector: longer than {SELECTOR} bytes, the most that a subscription has")
        if where.temporary:
            traits, address, local = TYPES["anycast"], None, stated
        else:
            local = where.name
            if not self._allowed("recv", local):
                text = f"no permission to receive from {local[:100]!r}"
                raise StompError("access refused", text, condition="amqp:unauthorized-access", noted=True)
            owner = self.lanes.topics.owner_of_wire(local)
            if owner is None or (where.wild and not owner.traits.levels):
                text = unknown_address(local, self.lanes.topics, "recv", self.rights)
                raise StompError("no such address", text, condition="amqp:not-found")
            traits, address = owner.traits, str(owner.wire)
        self._wait("subscribe")
        self.subscriptions[id] = found = StompSubscription(
            self, id, stated, where.prefix, mode=mode, traits=traits, address=address, local=local,
            selector=selector, prefetch=_prefetch(headers), durable=durable,
            session=self.lanes.session, plain_session=self.lanes.plain_session, receipt=headers.get("receipt", ""),
        )  # fmt: skip
        if where.temporary:
            self._temporaries[where.temporary] = found
        found.attach()

    def _durable(self, headers: dict[str, str]) -> tuple[str, str] | None:
        name = next((headers[each] for each in _DURABLE if each in headers), None)
        if name is None:
            return None
        if not name or len(name) > _NAME:
            raise StompError("bad header", f"the name of a durable subscription has 1 to {_NAME} characters")
        if not self.client_id:
            raise StompError("bad header", "a durable subscription needs the header client-id in CONNECT")
        assert self.login is not None
        return name, owned(self.login.principal, self.client_id)

    def subscribed(self, subscription: StompSubscription) -> None:
        """As StompReader."""
        self._receipt(subscription.receipt)
        self._done("subscribe")

    def _unsubscribe(self, frame: StompFrame) -> None:
        headers = frame.headers
        id = headers.get("id") or headers.get("destination", "")
        found = self.subscriptions.pop(id, None)
        if found is None:
            raise StompError("no such subscription", f"there is no subscription {id[:100]!r}")
        for name in [name for name, each in self._temporaries.items() if each is found]:
            del self._temporaries[name]
        receipt = headers.get("receipt", "")
        forget = any(each in headers for each in _DURABLE)
        for number in list(found.unacknowledged):
            self._deliveries.pop(number, None)
        found.end(forget, lambda: self._receipt(receipt))

    # MESSAGE

    @property
    def blocked(self) -> bool:
        """As StompReader."""
        return self._wire.blocked

    @property
    def flooded(self) -> bool:
        """As StompReader."""
        return self._wire.blocked and self._wire.unsent > FLOODED

    def next_number(self) -> str:
        """As StompReader."""
        self._number += 1
        return str(self._number)

    def message(self, subscription: StompSubscription, payload: bytes, number: str) -> None:
        """As StompReader."""
        headers, body, to = to_stomp(payload, self.version)
        local = subscription.local
        if subscription.traits.levels and to is not None:
            local = self.lanes.topics.local(to)
        elif subscription.made_address is not None:
            local = subscription.stated
        own = [("destination", subscription.prefix + local), ("message-id", number), ("subscription", subscription.id)]
        if subscription.mode != AUTO:
            if self.version == V12:
                own.append(("ack", number))
            if number in subscription.unacknowledged:
                self._deliveries[number] = subscription
        self.messages_out += 1
        self.write(encoded("MESSAGE", own + headers, body, self.version))

    def set_blocked(self, blocked: bool) -> None:
        """The client leaves much unread, and is not read until it has taken that; or it has."""
        if self._ended:
            return
        if blocked:
            self._wait("unread")
            self._watch_unread()
            if not self._running:
                self._look_at_reading()
            return
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        for each in list(self.subscriptions.values()):
            each.unblocked()
        self._done("unread")

    def _watch_unread(self) -> None:
        taken = self.bytes_out - self._wire.unsent
        self._unread_timer = self.clients.loop.call_later(UNREAD_SECONDS, self._look_at_unread, taken)

    def _look_at_unread(self, before: int) -> None:
        """Cut a client that has taken next to nothing: it would not read an ERROR either."""
        if self.bytes_out - self._wire.unsent - before >= UNREAD_TAKEN:
            self._watch_unread()
            return
        log.debug("stomp-gateway.client.stalled", peer=self.peer.name, buffered=self._wire.unsent)
        self.clients.errors["stalled"] = self.clients.errors.get("stalled", 0) + 1
        self._end()
        self._wire.abort()

    # ACK, NACK

    def _acknowledge(self, frame: StompFrame) -> None:
        headers, command = frame.headers, frame.command
        if command == "NACK" and self.version == V10:
            raise StompError("unknown command", "STOMP 1.0 has no NACK")
        name = "id" if self.version == V12 else "message-id"
        number = headers.get(name)
        if number is None:
            raise StompError("bad header", f"{command} of STOMP {self.version} needs the header {name}")
        if self.version == V11 and "subscription" not in headers:
            raise StompError("bad header", f"{command} of STOMP 1.1 needs the header subscription")
        receipt = headers.get("receipt", "")
        subscription = self._deliveries.pop(number, None)
        if subscription is None or number not in subscription.unacknowledged:
            if not (number.isascii() and number.isdigit()) or len(number) > _DIGITS:
                raise StompError("bad header", f"{name}: expected what MESSAGE has there, not {number[:40]!r}")
            if subscription is None and int(number) > self._number:
                raise StompError("no such message", f"{command}: there is no message {number[:40]!r} to acknowledge")
            if receipt or "transaction" in headers:
                text = f"{command}: message {number[:40]} is acknowledged, or lost with a link and redelivered"
                raise StompError("not acknowledged", text)
            return
        state = outcome_of(command, headers.get("requeue"))
        found = subscription.take(number)
        for each in found:
            self._deliveries.pop(each.number, None)
        if (named := headers.get("transaction")) is not None:
            self._transaction(named).acknowledge(found, state)
            self._receipt(receipt)
            return
        waiting = len(found)
        lost = False

        def settled(final: bool) -> None:
            nonlocal waiting, lost
            waiting -= 1
            lost = lost or not final
            self.in_flight -= 1
            if waiting == 0 and receipt and not self._ended:
                if lost:
                    text = "the link was lost before the broker had the outcome: the message may be redelivered"
                    self.fail(StompError("not acknowledged", text, receipt=receipt))
                    return
                self._receipt(receipt)
                self._owe_no_more(receipt)
            if self._leaving is not None:
                self._look_at_leaving()

        self.in_flight += waiting
        self._owe(receipt)
        for each in found:
            subscription.settle(each, state, settled)

    # transactions

    def _begin(self, frame: StompFrame) -> None:
        name = self._named(frame)
        if name in self.transactions:
            raise StompError("bad header", f"the transaction {name[:100]!r} is open already")
        if len(self.transactions) >= OPEN:
            raise StompError("too many transactions", f"a connection has at most {OPEN} open ones")
        assert self.login is not None
        self.transactions[name] = Open(self.clients.transacted, self.login.principal, self._expired)
        self._receipt(frame.headers.get("receipt", ""))

    def _named(self, frame: StompFrame) -> str:
        name = frame.headers.get("transaction", "")
        if not name or len(name) > _NAME:
            raise StompError("bad header", f"{frame.command} needs the header transaction, of 1 to {_NAME} characters")
        return name

    def _transaction(self, name: str) -> Open:
        found = self.transactions.get(name)
        if found is None:
            raise StompError("no such transaction", f"there is no open transaction {name[:100]!r}")
        if found.expired:
            text = f"{name[:100]!r} was rolled back: it was not committed within {LIFE:g} s of BEGIN. Send it again"
            raise StompError("transaction aborted", text, condition="amqp:transaction:timeout")
        return found

    def _post(self, named: str, address: str, payload: bytes, *, stored: bool, name: str) -> None:
        work = self._transaction(named)
        if not stored:
            text = f"{name[:100]!r} stores nothing: a transaction takes the queues and topics of one broker"
            raise StompError("not possible in a transaction", text, condition="amqp:not-implemented")
        work.post(address, payload, name)

    def _commit(self, frame: StompFrame) -> None:
        name = self._named(frame)
        work = self._transaction(name)
        for each in work.names:
            if not self._allowed("send", each):  # any longer
                text = f"rolled back: no longer a permission to send to {each[:100]!r}"
                raise StompError("transaction aborted", text, condition="amqp:unauthorized-access")
        del self.transactions[name]
        work.close()
        receipt = frame.headers.get("receipt", "")
        self._wait("commit")
        self.clients.bridge.spawn(self._committed(work, receipt))

    async def _committed(self, work: Open, receipt: str) -> None:
        """A commit continues when its client has left."""
        self.in_flight += 1
        try:
            await self.lanes.commit(work)
        except StompError as error:
            error.receipt = receipt
            self.fail(error)
            return
        finally:
            work.end()
            self.in_flight -= 1
        self._receipt(receipt)
        self._done("commit")
        self._look_at_leaving()

    def _abort(self, frame: StompFrame) -> None:
        name = self._named(frame)
        work = self._transaction(name)
        del self.transactions[name]
        self._roll_back(work)
        self._receipt(frame.headers.get("receipt", ""))

    def _expired(self, work: Open) -> None:
        """Roll a transaction back that lasts too long. The client learns of it when it names it."""
        work.expired = True
        self._roll_back(work)

    def _roll_back(self, work: Open) -> None:
        back: dict[StompSubscription, list[StompDelivery]] = {}
        for delivery, _ in work.outcomes:
            back.setdefault(delivery.subscription, []).append(delivery)
        work.end()
        for subscription, deliveries in back.items():
            subscription.put_back(deliveries)
            for each in deliveries:
                if each.number in subscription.unacknowledged:
                    self._deliveries[each.number] = subscription

    # DISCONNECT

    def _disconnect(self, frame: StompFrame) -> None:
        receipt = frame.headers.get("receipt", "")
        self._wait("leaving")

        def leaving() -> None:
            self._receipt(receipt)
            self._end()
            self._wire.close()

        self._leave(leaving)


def _beats(text: str) -> tuple[int, int]:
    """Return the milliseconds between our heart-beats, and between those of the client; 0: without."""
    first, comma, second = text.partition(",")
    parts = first.strip(), second.strip()
    if not comma or not all(each.isascii() and each.isdigit() and len(each) <= 10 for each in parts):
        raise StompError("bad header", f"heart-beat: expected two whole numbers, not {text[:40]!r}")
    theirs, ours = int(parts[0]), int(parts[1])
    return (max(ours, SOONEST) if ours else 0), (max(theirs, SOONEST) if theirs else 0)


def _prefetch(headers: dict[str, str]) -> int:
    text = next((headers[each] for each in _PREFETCH if each in headers), None)
    if text is None:
        return PREFETCH
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not int(text):
        raise StompError("bad header", f"prefetch-count: expected a whole number from 1 on, not {text[:40]!r}")
    return min(int(text), MOST)


_HANDLERS: Final[dict[str, Callable[[StompClient, StompFrame], None]]] = {
    "SEND": StompClient._send,
    "SUBSCRIBE": StompClient._subscribe,
    "UNSUBSCRIBE": StompClient._unsubscribe,
    "ACK": StompClient._acknowledge,
    "NACK": StompClient._acknowledge,
    "BEGIN": StompClient._begin,
    "COMMIT": StompClient._commit,
    "ABORT": StompClient._abort,
    "DISCONNECT": StompClient._disconnect,
}
