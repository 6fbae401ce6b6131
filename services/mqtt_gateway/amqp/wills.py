"""The wills of connected clients: the last-will service's node `$mqtt/wills` (docs/contracts.md, "`$lwt`").
One link for all of them.

The key of a will is the client id. What is not accepted yet is sent again over the next link, in its order, and before
it the wills of all that are connected: the service gives them some seconds for that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol, UInt, ULong
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Sender
from enmasse.amqp.messages.scan import MESSAGE_ANNOTATIONS
from enmasse.amqp.messages.sections import Properties, encode_annotations, encode_properties
from enmasse.amqp.session import Session as AmqpSession
from enmasse.bridge.uplink import LinkUser
from enmasse.identity.annotations import CLIENT_ID, EPOCH, GROUPS, USER, WILL_DELAY, WILL_TOPIC
from enmasse.identity.authors import Author
from enmasse.identity.seals import Seal
from enmasse.logs import log
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import Publish, Will
from services.mqtt_gateway.amqp.mapping import TopicRoute, sealed
from services.mqtt_gateway.amqp.outcome_reasons import reason_of
from services.mqtt_gateway.interfaces import BRIDGE_STATE, Refused, is_system

ADDRESS: Final = "$mqtt/wills"
AGAIN: Final = 0.25
"""Seconds until the link that was refused is attached again, or what was not accepted is sent again."""
MOST: Final = 256 << 20
"""Bytes of wills that are held at once; a client whose will is beyond is refused (reason 0x97)."""
CLIENT: Final = Symbol(CLIENT_ID)
DELAY: Final = Symbol(WILL_DELAY)
OF_EPOCH: Final = Symbol(EPOCH)


class _Op:
    """Something to tell the service of a client."""

    __slots__ = ("client", "done", "message", "subject")

    def __init__(self, client: str, subject: str, message: bytes, done: Callable[[Refused | None], None]) -> None:
        self.client = client
        self.subject = subject
        self.message = message
        self.done = done


def _nothing(_: Refused | None) -> None:
    """Ignore the outcome."""


def will_message(
    client: str,
    will: Will,
    topics: TopicMap,
    expiry: int,
    author: Author | None = None,
    seal: Seal | None = None,
) -> Callable[[int], bytes] | None:
    """Return a function that makes the message of subject `will` for an epoch of the session. The will's delay ends
    with the session, which lasts `expiry` seconds. `author`: the client's user, None if there are no users; `seal`
    states it in a retained message.

    Returns None for the state of a Mosquitto bridge that no address takes: it is ignored, because a bridge with default
    options would not connect otherwise. Raises Refused if no address takes the topic, or if the will is to be retained
    where that has no effect.
    """
    route = TopicRoute.find(will.topic, topics)
    if route is None:
        if will.topic.startswith(BRIDGE_STATE):
            return None
        why = "only the gateways write it" if is_system(will.topic) else "no address takes it"
        raise Refused(reasons.TOPIC_NAME_INVALID, f"the will's topic {will.topic[:100]!r}: {why}")
    if will.retain and not route.traits.levels:
        raise Refused(reasons.RETAIN_NOT_SUPPORTED, f"the will is retained, and {route.name} is no topic address")
    publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
    further: dict[Any, Any] = {CLIENT: client}
    if will.topic != route.to:  # the name may be another one when the will is published
        further[Symbol(WILL_TOPIC)] = will.topic
    if author is not None:
        further[Symbol(USER)] = author.full_name
        if author.groups is not None:
            further[Symbol(GROUPS)] = list(author.groups)
        if will.retain:
            further.update(sealed(seal, author, route.to, will.payload) or {})
    if delay := min(will.properties.will_delay or 0, expiry):
        further[DELAY] = UInt(delay)

    def of_epoch(epoch: int) -> bytes:
        return route.full(publish, topics, None, subject="will", further={**further, OF_EPOCH: ULong(epoch)})

    return of_epoch


def _about(client: str, epoch: int, subject: str, delay: int | None = None) -> bytes:
    further = {} if delay is None else {DELAY: UInt(delay)}
    annotations = encode_annotations(MESSAGE_ANNOTATIONS, {CLIENT: client, OF_EPOCH: ULong(epoch), **further})
    return annotations + encode_properties(Properties(subject=subject)) + b"\x00\x53\x77\x40"


class Wills(LinkUser):
    """`up` when there is a connection; `put`, `clear` and `publish` whenever something happens to a client."""

    def __init__(self) -> None:
        self._session: AmqpSession | None = None
        self._link: Sender | None = None
        self._attached = False
        self._failing = False
        self._held: dict[str, bytes] = {}  # client → its accepted will
        self._bytes = 0  # of these, and of those that are being stored
        self._waiting: deque[_Op] = deque()
        self._log = log.get(part="wills")

    @property
    def ready(self) -> bool:
        """True while the link to the last-will service is attached."""
        return self._attached

    @property
    def held(self) -> int:
        """Connected clients with a will."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Number of changes that the service has not accepted yet."""
        return len(self._waiting)

    async def put(self, client: str, epoch: int, message: bytes, timeout: float) -> None:
        """Store a will of an epoch of the client's session in place of the client's former one. Raises Refused."""
        if self._bytes + len(message) > MOST:
            raise Refused(reasons.QUOTA_EXCEEDED, f"the wills of this gateway's clients have {MOST} bytes already")
        self._bytes += len(message)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(refused: Refused | None) -> None:
            if stored.done():
                return
            if refused is None:
                self._drop(client)
                self._held[client] = message
                stored.set_result(None)
            else:
                stored.set_exception(refused)

        op = _Op(client, "will", message, done)
        self._tell(op)
        try:
            async with asyncio.timeout(timeout):
                await stored
        except TimeoutError:
            raise Refused(reasons.SERVER_UNAVAILABLE, "the last-will service is not reached") from None
        finally:
            if self._held.get(client) is not message:
                self._bytes -= len(message)
            if not stored.done() or stored.cancelled():
                op.done = _nothing
                self._tell(_Op(client, "will-clear", _about(client, epoch, "will-clear"), _nothing))

    def clear(self, client: str, epoch: int, done: Callable[[Refused | None], None] = _nothing) -> None:
        """Drop the client's will."""
        self._drop(client)
        self._tell(_Op(client, "will-clear", _about(client, epoch, "will-clear"), done))

    def session_ended(self, client: str, epoch: int) -> None:
        """Report that the session before this epoch has ended, and with it the delay of its will."""
        self._tell(_Op(client, "session-ended", _about(client, epoch, "session-ended"), _nothing))

    def session_deleted(self, client: str, epoch: int) -> None:
        """Report that the session of a client was deleted that is not connected here."""
        self._tell(_Op(client, "session-deleted", _about(client, epoch, "session-deleted"), _nothing))

    def publish(
        self, client: str, epoch: int, done: Callable[[Refused | None], None] = _nothing, *, delay: int | None = None
    ) -> None:
        """Publish the will of a lost client, now or after its delay; `delay`: another one than it came with."""
        self._drop(client)
        self._tell(_Op(client, "will-publish", _about(client, epoch, "will-publish", delay), done))

    def moved(self, client: str, epoch: int) -> None:
        """Report that the client was closed for it to connect elsewhere, which it has the grace time for."""
        if client in self._held:
            self._drop(client)
            self._tell(_Op(client, "client-moved", _about(client, epoch, "client-moved"), _nothing))

    def forget(self, client: str) -> None:
        """Drop the will here: another gateway decides about it."""
        self._drop(client)

    def _drop(self, client: str) -> None:
        message = self._held.pop(client, None)
        if message is not None:
            self._bytes -= len(message)

    # the link

    def up(self, connection: Connection) -> None:
        """Use a new connection to the router."""
        self._session = connection.begin()
        self._attach()

    def _attach(self) -> None:
        session = self._session
        if self._link is None and session is not None and not session.ended:
            self._link = session.attach_sender(None, Source(), Target(address=ADDRESS))
            self._link.context = self

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        if link is self._link and link.remote_target is not None:
            self._attached = True
            again = [_Op(client, "will", message, _nothing) for client, message in self._held.items()]
            self._waiting.extendleft(reversed(again))

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link is not self._link:
            return
        if self._attached or not self._failing:
            self._log.info("gateway.wills.disconnected", reason="" if error is None else error.description)
        self._link, self._attached, self._failing = None, False, True
        asyncio.get_running_loop().call_later(AGAIN, self._attach)

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        self._pump()

    def on_outcomes(self, link: Sender, tokens: list[_Op], state: Any, settled: bool) -> None:
        """As LinkUser."""
        if state is ACCEPTED:
            for op in tokens:
                op.done(None)
        elif isinstance(state, Rejected):
            error = state.error
            text = "the last-will service refused it" if error is None else error.description or str(error.condition)
            reason = reason_of("" if error is None else error.condition)
            for op in tokens:
                op.done(Refused(reason, text))
        else:
            self._waiting.extendleft(reversed(tokens))
            if state is not None:
                asyncio.get_running_loop().call_later(AGAIN, self._pump)
        if not settled:
            link.settle(tokens)

    def _tell(self, op: _Op) -> None:
        self._waiting.append(op)
        self._pump()

    def _pump(self) -> None:
        link, waiting = self._link, self._waiting
        while waiting and link is not None and link.credit > 0:
            op = waiting.popleft()
            link.send(op.message, op)
