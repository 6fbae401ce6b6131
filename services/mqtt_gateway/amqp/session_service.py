"""The conversation with the subscription service: `$mqtt/sessions` (docs/contracts.md, enmasse/model/sessions.py).

Requests have a time limit and fail with the links. Changes of packet ids are repeated until they are stored: all of one
turn of the loop are one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from enmasse.amqp.codec.encoder import encode_string
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.sections import Properties, Sections, encode_properties
from enmasse.amqp.session import Session as AmqpSession
from enmasse.bridge.uplink import LinkUser
from enmasse.identity.seals import Seal
from enmasse.logs import log
from enmasse.model.sessions import (
    ADDRESS,
    STALE,
    Close,
    Disconnect,
    Failure,
    Hello,
    HelloReply,
    Open,
    OpenReply,
    PacketChange,
    Packets,
    PacketsReply,
    SessionDeleted,
    SourcesChanged,
    Takeover,
)
from enmasse.mqtt import reasons
from enmasse.storage.decoding import decode

TIMEOUT: Final = 5.0
"""Seconds until a request is given up."""
MAX_CHANGES: Final = 1000
"""Changes of packet ids in one message."""
MAX_BYTES: Final = 1024 * 1024
"""With more bytes of messages than this, changes go into the next one."""
AGAIN: Final = 0.25
"""Seconds until links that were refused are attached again."""

R = TypeVar("R")
Op: TypeAlias = Literal["in", "in-", "out", "rel", "out-", "end"]


class PacketIdOutcome(Enum):
    """MessageOutcome of a change of a packet id."""

    DONE = "done"
    TAKEN = "taken"
    """Not stored: the message is, or was, another session's."""
    LEFT = "left"
    """Stored without its message, which stays with the broker."""
    LATE = "late"
    """Not stored: its delivery was lost before it was asked for, and another session may have had the message."""
    REFUSED = "refused"
    """Not stored, because the store of the subscription service is full."""


class RequestFailed(Exception):
    """`reason`: a reason code of MQTT 5."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class _Request(NamedTuple):
    subject: str
    reply: asyncio.Future[bytes]


class _Batch:
    """Changes that were sent together, and who waits for each. `size`: bytes of messages in them."""

    __slots__ = ("changes", "done", "key", "size")

    def __init__(self) -> None:
        self.key = ""
        self.changes: list[PacketChange] = []
        self.done: list[Callable[[PacketIdOutcome], None] | None] = []
        self.size = 0


class Control(LinkUser):
    """Links, requests and stored changes. `gateway`: the name of this one.

    `held` returns client and epoch of each session. `disconnect` ends the connection of a client's session of this
    epoch (None: of any) with a reason code and a text; that of ADMINISTRATIVE_ACTION names the operator. `sources`
    gets a change of a session's sources, `deleted` a session that an administrator has deleted. `failed` ends the
    connection of a client and epoch for which an answer could not be handled, and does not raise.
    """

    def __init__(
        self,
        gateway: str,
        held: Callable[[], list[tuple[str, int]]],
        disconnect: Callable[[str, int | None, int, str], None],
        sources: Callable[[SourcesChanged], None],
        deleted: Callable[[SessionDeleted], None],
        failed: Callable[[str, int, Exception], None],
    ) -> None:
        self._gateway = gateway
        self._held = held
        self._disconnect = disconnect
        self._sources = sources
        self._deleted = deleted
        self._failed = failed
        self._session: AmqpSession | None = None
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._attaching = False
        self._attached = 0
        self._failing = False
        self._number = 0
        self._requests: dict[str, _Request] = {}
        self._outbox: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._batch = _Batch()
        self._batches: deque[_Batch] = deque()  # without an answer, in their order
        self._scheduled = False
        self._lost_deliveries: set[tuple[str, int, int]] = set()  # client, epoch and packet id of an unanswered `out`
        self._closes: dict[tuple[str, int], Close] = {}  # that were not answered yet
        self._given_up: dict[str, str] = {}  # requests `open` that were given up → their client
        self._log = log.get(part="sessions")
        self._seal_key = ""
        self._seal: Seal | None = None

    @property
    def ready(self) -> bool:
        """The service answers."""
        return self._ready.is_set()

    @property
    def unanswered(self) -> int:
        """Requests, and changes of packet ids that are not stored."""
        return len(self._requests) + len(self._batch.changes) + sum(len(each.changes) for each in self._batches)

    # the links

    def up(self, connection: Connection) -> None:
        """There is a new connection."""
        self._session = connection.begin()
        self._attach()

    def _attach(self) -> None:
        session = self._session
        if session is None or session.ended or self._attaching:
            return
        self._attaching = True
        self._attached += 1
        name = f"{self._gateway}/{self._attached}"  # one for both: by it the service knows that they belong together
        receiver = session.attach_receiver(name, Source(address=ADDRESS), Target(address=ADDRESS))
        sender = session.attach_sender(name, Source(address=ADDRESS), Target(address=ADDRESS))
        receiver.context = sender.context = self
        receiver.on_delivery = self._on_delivery
        receiver.credit_window = 1000
        self._sender, self._receiver = sender, receiver

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        both = (self._sender, self._receiver)
        if all(each is not None and each.attached for each in both):
            self._attaching = False
            self._hello()

    def _hello(self) -> None:
        """First of all: what this gateway holds."""
        self._outbox.clear()
        hello = Hello(gateway=self._gateway, sessions=self._held())
        reply = self._ask("hello", hello)
        reply.add_done_callback(self._greeted)
        asyncio.get_running_loop().call_later(TIMEOUT, reply.cancel)

    def _greeted(self, reply: asyncio.Future[bytes]) -> None:
        if reply.cancelled() or reply.exception() is not None:
            self._lost("the greeting was not answered")
            return
        greeting = decode(reply.result(), HelloReply)
        self._seal_with(greeting.seal)
        for client in greeting.stale:
            self._disconnect(client, None, reasons.SESSION_TAKEN_OVER, "")
        for batch in self._batches:
            self._send_batch(batch)
        for close in list(self._closes.values()):
            self._send_close(close)
        self._failing = False
        self._ready.set()

    def _seal_with(self, key: str) -> None:
        if key != self._seal_key:
            self._seal_key, self._seal = key, None

    @property
    def seal(self) -> Seal | None:
        """Return what states the users of retained messages; None: the subscription service reads no statements."""
        if self._seal is None and self._seal_key:
            self._seal = Seal.of_text(self._seal_key)
        return self._seal

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link in (self._sender, self._receiver):
            self._lost("" if error is None else error.description)

    def _lost(self, why: str) -> None:
        sender, receiver = self._sender, self._receiver
        self._sender = self._receiver = None
        self._attaching = False
        self._ready.clear()
        for link in (sender, receiver):
            if link is not None and not link.detached:
                link.detach()
        self._given_up.clear()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            if not request.reply.done():
                request.reply.set_exception(_unavailable(why))
        if self._session is not None and not self._session.ended:
            if not self._failing:
                self._log.info("gateway.sessions.disconnected", reason=why)
            self._failing = True
            asyncio.get_running_loop().call_later(AGAIN, self._attach_if_lost)

    def _attach_if_lost(self) -> None:
        if self._sender is None:
            self._attach()

    # requests

    async def request(self, subject: str, body: Any, kind: type[R], timeout: float = TIMEOUT) -> R:
        """Return the answer. Raises RequestFailed."""
        key = ""
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
                reply = self._ask(subject, body)
                key = str(self._number)
                answer = await reply
        except TimeoutError:
            if key and isinstance(body, Open):
                self._given_up[key] = body.client
            raise _unavailable("no answer in time") from None
        return decode(answer, kind)

    def _ask(self, subject: str, body: Any) -> asyncio.Future[bytes]:
        self._number += 1
        key = str(self._number)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._requests[key] = _Request(subject, reply)
        reply.add_done_callback(lambda _: self._requests.pop(key, None))
        self._send(subject, key, body)
        return reply

    def close(self, body: Close) -> None:
        """A session ends: what it had stored before comes before. Repeated until it is answered."""
        self._closes[body.client, body.epoch] = body
        if self._batch.changes:
            self._close_batch()
        if self.ready:
            self._send_close(body)

    def _send_close(self, body: Close) -> None:
        def answered(reply: asyncio.Future[bytes]) -> None:
            failed = not reply.cancelled() and reply.exception()
            if not failed or not isinstance(failed, _Unavailable):
                self._closes.pop((body.client, body.epoch), None)

        self._ask("close", body).add_done_callback(answered)

    def change(self, change: PacketChange, done: Callable[[PacketIdOutcome], None] | None) -> None:
        """Store a change of a packet id; `done` is called when it is durable, or was refused."""
        batch = self._batch
        batch.changes.append(change)
        batch.done.append(done)
        batch.size += len(change.message)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
        if len(batch.changes) >= MAX_CHANGES or batch.size >= MAX_BYTES:
            self._close_batch()

    def late(self, client: str, epoch: int, packet_id: int) -> None:
        """The delivery of an `out` that is not answered is lost: when it is sent, or sent again, it is late."""
        self._lost_deliveries.add((client, epoch, packet_id))

    def _flush(self) -> None:
        self._scheduled = False
        if self._batch.changes:
            self._close_batch()

    def _close_batch(self) -> None:
        batch, self._batch = self._batch, _Batch()
        self._batches.append(batch)
        if self.ready:
            self._send_batch(batch)

    def _send_batch(self, batch: _Batch) -> None:
        self._number += 1
        batch.key = f"p{self._number}"
        changes = batch.changes
        if self._lost_deliveries:
            changes = [
                msgspec.structs.replace(each, late=True) if each.op == "out" and self._is_late(each) else each
                for each in changes
            ]
        self._send("packets", batch.key, Packets(changes=changes))

    def _is_late(self, change: PacketChange) -> bool:
        return (change.client, change.epoch, change.pid) in self._lost_deliveries

    def _stored(self, batch: _Batch, subject: str, body: bytes) -> None:
        if subject == "error":
            failure = decode(body, Failure)
            self._log.error("gateway.packet-ids.refused", reason=failure.description)
            reason, text = _of_refusal(failure), f"packet identifiers could not be stored: {failure.description}"
            full = failure.reason == reasons.QUOTA_EXCEEDED
            reply = PacketsReply(stale=[c.client for c in batch.changes if not (full and c.op == "in")])
        else:
            full, reason, text = False, reasons.SESSION_TAKEN_OVER, ""
            reply = decode(body, PacketsReply)
        stale = set(reply.stale)
        verdicts = {
            **dict.fromkeys(reply.taken, PacketIdOutcome.TAKEN),
            **dict.fromkeys(reply.left, PacketIdOutcome.LEFT),
            **dict.fromkeys(reply.late, PacketIdOutcome.LATE),
        }
        self._batches.remove(batch)
        for client, epoch in {(change.client, change.epoch) for change in batch.changes if change.client in stale}:
            self._disconnect(client, epoch, reason, text)
        for change, done in zip(batch.changes, batch.done, strict=True):
            if change.op == "out":
                self._lost_deliveries.discard((change.client, change.epoch, change.pid))
            if done is not None and change.client not in stale:
                verdict = PacketIdOutcome.REFUSED if full else PacketIdOutcome.DONE
                if change.op == "out":
                    verdict = verdicts.get((change.client, change.pid), verdict)
                try:
                    done(verdict)
                except Exception as error:  # of one client: the batch is for all
                    self._failed(change.client, change.epoch, error)

    # messages

    def _send(self, subject: str, key: str, body: Any) -> None:
        text = msgspec.json.encode(body).decode()
        properties = Properties(subject=subject, correlation_id=key)
        self._outbox.append(encode_properties(properties) + b"\x00\x53\x77" + encode_string(text))
        self._pump()

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        if link is self._sender:
            self._pump()

    def _pump(self) -> None:
        sender, outbox = self._sender, self._outbox
        while outbox and sender is not None and sender.credit > 0:
            sender.send(outbox.popleft(), None)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """As LinkUser."""
        if not settled:
            link.settle(tokens)

    def _on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if not settled:
            link.session.settle(delivery_id)
        try:
            self._take(payload)
        except (AmqpError, msgspec.MsgspecError) as error:
            self._log.error("gateway.message.discarded", reason=str(error))

    def _take(self, payload: bytes) -> None:
        sections = Sections(payload)
        properties = sections.properties
        _, values = sections.body()
        body = values[0].encode() if values and isinstance(values[0], str) else b"{}"
        subject, key = properties.subject or "", properties.correlation_id
        if isinstance(key, str) and key:
            self._answer(subject, key, body)
        elif subject == "takeover":
            taken = decode(body, Takeover)
            self._disconnect(taken.client, taken.epoch, reasons.SESSION_TAKEN_OVER, "")
        elif subject == "disconnect":
            order = decode(body, Disconnect)
            self._disconnect(order.client, order.epoch, order.reason, order.by)
        elif subject == "session_deleted":
            self._deleted(decode(body, SessionDeleted))
        elif subject == "sources":
            self._sources(decode(body, SourcesChanged))

    def _answer(self, subject: str, key: str, body: bytes) -> None:
        request = self._requests.get(key)
        if request is None:
            for batch in self._batches:
                if batch.key == key:
                    self._stored(batch, subject, body)
                    return
            client = self._given_up.pop(key, None)
            if client is not None and subject == "open":  # it is no longer connected here
                self.close(Close(client=client, epoch=decode(body, OpenReply).epoch))
            return
        if request.reply.done():
            return
        if subject == "error":
            failure = decode(body, Failure)
            request.reply.set_exception(RequestFailed(failure.reason, failure.description or failure.condition))
        else:
            request.reply.set_result(body)


class PacketIds:
    """Stored packet ids of one session."""

    __slots__ = ("_client", "_control", "_epoch")

    def __init__(self, control: Control, client: str, epoch: int) -> None:
        self._control = control
        self._client = client
        self._epoch = epoch

    def change(
        self,
        op: Op,
        packet_id: int,
        key: str | None,
        source: str,
        done: Callable[[PacketIdOutcome], None] | None,
        message: bytes = b"",
    ) -> None:
        """Store a change of a packet id, in order; `done` is called when it is durable, or was refused."""
        self._control.change(PacketChange(self._client, self._epoch, op, packet_id, key, source, message), done)

    def late(self, packet_id: int) -> None:
        """The delivery of an `out` that is not answered is lost: if it is sent from now on, it is late."""
        self._control.late(self._client, self._epoch, packet_id)


def _of_refusal(failure: Failure) -> int:
    """Return why a client is disconnected whose packet ids could not be stored (MQTT 5, 3.14.2.1)."""
    if failure.condition == STALE:
        return reasons.SESSION_TAKEN_OVER
    if failure.reason == reasons.SERVER_UNAVAILABLE or failure.reason not in reasons.DISCONNECT_OF_SERVER:
        return reasons.IMPLEMENTATION_SPECIFIC_ERROR
    return failure.reason


class _Unavailable(RequestFailed):
    """Failure of a request whose outcome is unknown."""


def _unavailable(why: str) -> _Unavailable:
    text = "the subscription service is not reached" + (f": {why}" if why else "")
    return _Unavailable(reasons.SERVER_UNAVAILABLE, text)
