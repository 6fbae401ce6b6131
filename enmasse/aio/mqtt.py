"""MQTT 3.1.1 and 5 client of `enmasse publish` and `subscribe` (docs/decisions/0031-an-mqtt-client-of-our-own.md).

`open` connects, and after a loss connects again to the same session. Messages are acknowledged by the caller, when it
has processed them. Failures are Disconnected (refused or lost, with the server's reason), other OSErrors (no
connection), Refused (a subscription or publication, with its reason), and TimeoutError.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections import deque
from typing import Any

import msgspec

from enmasse.aio.mqtt_inflight import InFlight
from enmasse.aio.mqtt_wire import Disconnected, TlsContext, Wire, dial, words
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import (
    NONE,
    V5,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)

__all__ = ["Client", "Disconnected", "Refused", "connect"]

_MOST_WAITING = 2000  # messages that were not taken, at which the socket is not read


class Refused(Exception):
    """Raised if the server refused a subscription or publication; `reason` is its code."""

    def __init__(self, what: str, reason: int, properties: Properties = NONE) -> None:
        text = properties.reason_string
        super().__init__(f"{what}: {reasons.name(reason)}{f' ({text})' if text else ''}")
        self.reason = reason


class Client:
    """A client and its session. Made by `connect`.

    Publications that are incomplete when the connection is lost fail with Disconnected; with `keeps` they are sent
    again by the next `open`. With `auto_ack` a message is
    acknowledged on arrival, otherwise by `ack`.
    """

    def __init__(
        self, host: str, port: int, ssl: TlsContext, packet: Connect, *, auto_ack: bool, keeps: bool, timeout: float
    ) -> None:
        self.host = host
        self.port = port
        self.packet = packet
        """The CONNECT of the next `open`."""
        self.auto_ack = auto_ack
        self._keeps = keeps
        self.timeout = timeout
        self.connack: ConnAck | None = None
        """The server's last answer: `session_present`, and in MQTT 5 what it can do."""
        self.error: Disconnected | None = None
        """Why there is no connection; None while there is one."""
        self._ssl = ssl
        self._wire: Wire | None = None
        self._opened: asyncio.Future[None] | None = None
        self._gone = asyncio.Event()
        self._messages: deque[Publish] = deque()
        self._reading = True
        self._changed = asyncio.Event()  # a message came, a place in the window was left, or the connection was lost
        self._sent = InFlight()
        self._answers: dict[int, asyncio.Future[Any]] = {}  # of SUBSCRIBE and UNSUBSCRIBE
        self._received: set[int] = set()  # packet ids of QoS 2 messages that were acknowledged and not released
        self._said: Disconnect | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    @property
    def connected(self) -> bool:
        """Return True while there is a connection that the server has accepted."""
        return self.error is None and self._wire is not None

    @property
    def version(self) -> int:
        """Return the version of MQTT: 4 (3.1.1) or 5."""
        return self.packet.version

    @property
    def in_flight(self) -> int:
        """Number of incomplete publications."""
        return len(self._sent)

    @property
    def wire(self) -> Wire:
        """Connection to the server. Raises Disconnected."""
        if self.error is not None:
            raise self.error
        if self._wire is None:
            raise Disconnected("not connected yet: open() it")
        return self._wire

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def open(self) -> Client:
        """Connect, or connect again. Raises Disconnected (refused, with the reason), OSError or TimeoutError."""
        self._loop = asyncio.get_running_loop()
        opened = self._opened = self._loop.create_future()
        self._gone = asyncio.Event()
        self._said = None
        wire = Wire(self.version, self._on_packets, lambda error: self._on_lost(wire, error))
        self._wire = wire
        where = f"{self.host}:{self.port}"
        self.error = Disconnected(f"{where}: not connected")
        await dial(self.host, self.port, lambda: wire, self._ssl, self.timeout)
        wire.write(encode.encode(self.packet, self.version, True))
        try:
            async with asyncio.timeout(self.timeout):
                await opened
        except TimeoutError:
            wire.abort()
            raise TimeoutError(f"waited {self.timeout:g} s for {where} to answer CONNECT") from None
        return self

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self, reason: int = 0, properties: Properties = NONE) -> None:
        """Send DISCONNECT and close; with reason 0x04 the server publishes the will (MQTT 5)."""
        wire = self._wire
        if wire is not None and self.connected:
            wire.write(encode.encode(Disconnect(reason, properties), self.version, True))
            self.error = Disconnected("the connection is closed")
        await self._end(wire, Wire.close)

    async def abort(self) -> None:
        """Drop the connection without DISCONNECT: the server publishes the will."""
        await self._end(self._wire, Wire.abort)

    async def _end(self, wire: Wire | None, how: Any) -> None:
        if wire is not None:
            how(wire)
            if wire.transport is not None:
                try:
                    async with asyncio.timeout(self.timeout):
                        await self._gone.wait()
                except TimeoutError:
                    wire.abort()

    async def lost(self) -> None:
        """Wait until the connection has ended; `error` says why."""
        await self._gone.wait()

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        *,
        timeout: float | None = None,
    ) -> int:
        """Publish, and wait for PUBACK (QoS 1) or PUBCOMP (QoS 2). Return the reason code: 0, or 0x10 if there is no
        subscriber. Raises Refused, Disconnected, TimeoutError, or ValueError if the message cannot be encoded."""
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                if not self.wire.writable.is_set():
                    await self.wire.writable.wait()
                while qos and not self._sent.room:
                    await self._change()
                future = self.publish_nowait(topic, payload, qos, retain, properties)
                answer = None if future is None else await future
        except TimeoutError:
            raise TimeoutError(f"waited {seconds:g} s for the server to acknowledge a message to {topic}") from None
        if answer is None:
            return 0
        if answer.reason >= 0x80:
            raise Refused(f"{topic}: not published", answer.reason, answer.properties)
        return int(answer.reason)

    def room(self) -> int:
        """Return how many QoS 1 and 2 publications may be sent now: the server's receive maximum less those in
        flight."""
        return self._sent.room

    def publish_nowait(
        self,
        topic: str,
        payload: bytes | str = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
    ) -> asyncio.Future[Any] | None:
        """Send at the end of this turn. The future of the PUBACK or PUBCOMP, or of the PUBREC if that says more than
        success; None at QoS 0. The caller minds `room`. Raises Disconnected, ValueError."""
        wire = self.wire
        body = payload.encode() if isinstance(payload, str) else payload
        packet = Publish(topic, body, qos, retain, properties=properties)
        if not qos:
            wire.write(encode.encode(packet, self.version, True))
            return None
        packet.packet_id = self._sent.next_id(self._answers)
        wire.write(encode.encode(packet, self.version, True))
        return self._sent.add(packet, self._loop)

    # --- subscribing --------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        *filters: str | Subscription,
        qos: int = 0,
        properties: Properties = NONE,
        check: bool = True,
    ) -> tuple[int, ...]:
        """Subscribe to filters, all with `qos` unless they are Subscriptions. The codes, one for each; with `check`
        raises Refused for the first filter that was refused. Raises Disconnected, TimeoutError, ValueError."""
        wanted = tuple(Subscription(f, qos) if isinstance(f, str) else f for f in filters)
        packet = Subscribe(self._sent.next_id(self._answers), wanted, properties)
        answer: SubAck = await self._ask(packet)
        for one, code in zip(wanted, answer.codes, strict=False):
            if check and code >= 0x80:
                raise Refused(f"{one.filter}: not subscribed", code, answer.properties)
        return answer.codes

    async def unsubscribe(self, *filters: str) -> tuple[int, ...]:
        """Return the codes, one for each filter (3.1.1: none). Raises Disconnected, TimeoutError, ValueError."""
        answer: UnsubAck = await self._ask(Unsubscribe(self._sent.next_id(self._answers), filters))
        return answer.codes

    async def _ask(self, packet: Subscribe | Unsubscribe) -> Any:
        self.wire.write(encode.encode(packet, self.version, True))
        future = self._answers[packet.packet_id] = self._loop.create_future()
        try:
            async with asyncio.timeout(self.timeout):
                return await future
        except TimeoutError:
            raise TimeoutError(f"waited {self.timeout:g} s for an answer to {type(packet).__name__.upper()}") from None
        finally:
            self._answers.pop(packet.packet_id, None)

    async def message(self, timeout: float | None = 10.0) -> Publish:
        """Return the next message. Raises TimeoutError, or Disconnected if the connection is lost."""
        if not self._messages:
            try:
                async with asyncio.timeout(timeout):
                    while not self._messages:
                        if self.error is not None:
                            raise self.error
                        await self._change()
            except TimeoutError:
                raise TimeoutError(f"no message within {timeout:g} s") from None
        found = self._messages.popleft()
        if not self._reading and len(self._messages) < _MOST_WAITING // 2:
            self._reading = True
            if self._wire is not None:
                self._wire.read(True)
        return found

    def ack(self, message: Publish, reason: int = 0) -> None:
        """Acknowledge a message (without `auto_ack`). At QoS 0 nothing happens. Raises Disconnected."""
        if message.qos:
            if reason:
                kind = PubAck if message.qos == 1 else PubRec
                self.wire.write(encode.encode(kind(message.packet_id, reason), self.version, True))
            elif message.qos == 1:
                self.wire.write(encode.ack(encode.PUBACK, message.packet_id))
            else:
                self.wire.write(encode.ack(encode.PUBREC, message.packet_id))
                self._received.add(message.packet_id)

    # --- what the server sends ----------------------------------------------------------------------------------------

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_packets(self, packets: list[Packet]) -> None:
        for packet in packets:
            kind = type(packet)
            if kind is Publish:
                self._on_publish(packet)  # type: ignore[arg-type]  # mypy does not narrow by `kind`
            elif kind is PubAck or kind is PubComp:
                self._sent.completed(packet)  # type: ignore[arg-type]  # mypy does not narrow by `kind`
            else:
                self._on_other(packet)
        self._changed.set()
        if len(self._messages) >= _MOST_WAITING and self._reading and self._wire is not None:
            self._reading = False
            self._wire.read(False)

    def _on_publish(self, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id in self._received:
            self.ack(packet)
            return
        self._messages.append(packet)
        if self.auto_ack:
            self.ack(packet)

    def _on_other(self, packet: Packet) -> None:
        wire = self._wire
        assert wire is not None
        if isinstance(packet, PubRec):
            if self._sent.received(packet):
                wire.write(encode.ack(encode.PUBREL, packet.packet_id))
        elif isinstance(packet, PubRel):
            known = packet.packet_id in self._received
            self._received.discard(packet.packet_id)
            reason = reasons.SUCCESS if known else reasons.PACKET_IDENTIFIER_NOT_FOUND
            wire.write(encode.encode(PubComp(packet.packet_id, reason), self.version, True))
        elif isinstance(packet, SubAck | UnsubAck):
            answer = self._answers.get(packet.packet_id)
            if answer is not None and not answer.done():
                answer.set_result(packet)
        elif isinstance(packet, ConnAck):
            self._on_connack(packet, wire)
        elif isinstance(packet, Disconnect):
            self._said = packet
            wire.close()
        elif isinstance(packet, Auth):
            wire.fail(Disconnected("the server wants an authentication that this client does not know"))

    def _on_connack(self, packet: ConnAck, wire: Wire) -> None:
        self.connack = packet
        if packet.reason:
            reason = packet.reason
            self.error = Disconnected(
                f"{self.host}:{self.port}: {words('refused', packet, self.version)}", reason, packet
            )
            wire.close()
            return
        self.error = None
        values = packet.properties
        self._sent.window = values.receive_maximum or 65535
        keep_alive = self.packet.keep_alive if values.server_keep_alive is None else values.server_keep_alive
        if keep_alive:
            self._plan_ping(keep_alive)
        if not packet.session_present:
            self._received.clear()
        for again in self._sent.again(continued=packet.session_present):
            wire.write(encode.encode(again, self.version, True))
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _plan_ping(self, keep_alive: int) -> None:
        """Send PINGREQ, again and again. The answer to one that is behind much that was published may take long: the
        connection is lost only if nothing has come since, and nothing that waited has left."""

        def ping() -> None:
            if not self.connected:
                return
            if not self.wire.moves:
                self.wire.fail(Disconnected(f"the server did not answer PINGREQ within {keep_alive} s"))
                self.wire.abort()  # it may never take what waits
                return
            self.wire.moves = False
            self.wire.write(encode.encode(PingReq(), self.version))
            self._plan_ping(keep_alive)

        self._ping = self._loop.call_later(keep_alive * 0.75, ping)

    def _closed(self) -> str:
        text = "the server closed the connection"
        if self.version == V5 or self._opened is None or not self._opened.done():
            return text
        return f"{text}, as MQTT 3.1.1 servers do to refuse something; with MQTT 5 they say why"

    def _on_lost(self, wire: Wire, error: Exception | None) -> None:
        if wire is not self._wire:
            return
        if self._ping is not None:
            self._ping.cancel()
        where = f"{self.host}:{self.port}"
        if isinstance(error, Disconnected):
            self.error = error
        elif self._said is not None:
            said = words(f"{where}: disconnected by the server", self._said, V5)
            self.error = Disconnected(said, self._said.reason, self._said)
        elif self.error is None or (self._opened is not None and not self._opened.done() and not self.error.packet):
            self.error = Disconnected(f"{where}: {error or self._closed()}")
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(self.error)
        waiting = [*self._answers.values(), *([] if self._keeps else self._sent.give_up())]
        for future in waiting:
            if not future.done():
                future.set_exception(self.error)
                future.exception()  # retrieved, so that asyncio does not report it
        if not self.auto_ack:
            self._messages.clear()  # unacknowledged messages are sent again
        self._reading = True
        self._gone.set()
        self._changed.set()


def connect(
    host: str = "localhost",
    port: int = 1883,
    *,
    client_id: str = "",
    clean: bool = True,
    session_expiry: int | None = None,
    keep_alive: int = 60,
    user: str | None = None,
    password: str | None = None,
    will: Will | None = None,
    version: int = V5,
    ssl: ssl_module.SSLContext | bool | None = None,
    properties: Properties = NONE,
    auto_ack: bool = True,
    keeps: bool = False,
    timeout: float = 10.0,
) -> Client:
    """Return a client, to be opened by `async with` or `open`.

    Times are seconds. `session_expiry`: time that the server keeps the session after the connection (MQTT 5).
    `properties`: further properties of CONNECT. `ssl`: TLS, verified as the context says, or (True) with
    the certificates of the system.
    """
    if session_expiry is not None and version == V5:
        properties = msgspec.structs.replace(properties, session_expiry=session_expiry)
    secret = None if password is None else password.encode()
    packet = Connect(client_id, clean, keep_alive, user, secret, will, properties, version)
    context = ssl_module.create_default_context() if ssl is True else (ssl or None)
    return Client(host, port, context, packet, auto_ack=auto_ack, keeps=keeps, timeout=timeout)
