"""One MQTT connection from its socket to its end: bytes in, packets, what holds it up, bytes out.

The network calls `data`, `lost`, `set_blocked`, `go_on` and `take_output`, the session what `ports.Client` has, the
timetable `look`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from enmasse import log as logs
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import MqttError, ProtocolError, UnsupportedVersion
from enmasse.mqtt.packets import (
    NONE,
    V5,
    V311,
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
    UnsubAck,
    Unsubscribe,
)
from enmasse.mqtt.reader import BIGGEST, Reader
from services.mqtt_gateway.ports import Delivery, Ending, Refused, Session
from services.mqtt_gateway.protocol import connecting
from services.mqtt_gateway.protocol.connecting import Terms, why
from services.mqtt_gateway.protocol.front import Front, Wire
from services.mqtt_gateway.protocol.inbound import Inbound
from services.mqtt_gateway.protocol.outbound import Outbound
from services.mqtt_gateway.protocol.subscribing import Subscribing
from services.mqtt_gateway.protocol.timetable import STEP

log = logs.get(part="mqtt")

# why nothing is read or processed: bits of `_held`
_OPENING: Final = 1
"""The session is being opened: what the client sends after CONNECT waits (3.1.4)."""
_NO_ROOM: Final = 2
"""The session has said so."""
_WINDOW: Final = 4
"""The client has as many messages under way as it may."""
_REQUESTS: Final = 8
"""It has as many SUBSCRIBEs and UNSUBSCRIBEs under way as it may."""
_SHARE: Final = 16
"""It has had its share of this turn."""
_UNREAD: Final = 32
"""It does not read what it gets: it need not get more answers."""
_CLOSED: Final = 64

SLICE: Final = 16 * 1024
"""Bytes that are read at once, so that what was read and cannot go on is little."""
A_TURN: Final = 4
"""Slices of one connection in a turn of the loop."""
BEFORE_CONNECT: Final = 256 * 1024
"""Bytes of a CONNECT."""
LINGER: Final = 5.0
"""Seconds in which a peer may take what is left for it after the end."""


class Connection:
    """`peer`: host:port. `client_id` is empty until CONNECT."""

    __slots__ = (
        "_ending",
        "_fault",
        "_front",
        "_held",
        "_inbound",
        "_keep_alive",
        "_largest",
        "_out",
        "_outbound",
        "_packets",
        "_raw",
        "_reader",
        "_seen",
        "_session",
        "_since",
        "_subscribing",
        "_terms",
        "_unfinished",
        "_unread",
        "_v5",
        "_wire",
        "_working",
        "client_id",
        "due",
        "peer",
    )

    def __init__(self, front: Front, wire: Wire, peer: str) -> None:
        self._front = front
        self._wire = wire
        self.peer = peer
        self.client_id = ""
        self.due = 0
        self._reader = Reader(max_packet=min(BEFORE_CONNECT, front.limits.max_packet))
        self._v5 = False
        self._terms: Terms | None = None
        self._session: Session | None = None
        self._inbound: Inbound = _NOTHING
        self._outbound: Outbound = _NOTHING
        self._subscribing: Subscribing = _NOTHING
        self._held = 0
        self._working = False
        self._raw = b""  # read, not looked at
        self._packets: list[Packet] = []  # looked at, not processed
        self._fault: MqttError | None = None  # to be raised after them
        self._out: list[bytes] = []
        self._since = self._seen = front.times.now
        self._keep_alive = 0.0  # seconds without a packet after which it is gone
        self._unfinished = 0.0  # since when a packet is not complete; 0: none is
        self._unread = 0.0  # since when the client does not read; 0: it does
        self._ending = Ending.LOST
        self._largest = BIGGEST  # packet that the client takes
        front.times.plan(self, self._since + front.limits.connect_seconds)

    # --- the network's calls ------------------------------------------------------------------------------------------

    def data(self, data: bytes) -> None:
        if self._held or self._working or self._raw:
            if not self._held & _CLOSED:
                self._raw = self._raw + data if self._raw else data
            return
        if len(data) <= SLICE:
            self._working = True
            self._feed(data)
            self._working = False
            if self._held:
                self._paused()
        else:
            self._raw = data
            self._work()

    def go_on(self) -> None:
        """The next turn has come."""
        self._release(_SHARE)

    def set_blocked(self, blocked: bool) -> None:
        """The client leaves much unread, or does so no more."""
        if self._held & _CLOSED:
            return
        self._unread = self._front.times.now if blocked else 0.0
        if blocked:
            self._hold(_UNREAD)
            self._front.times.plan(self, self._unread + self._front.limits.stall_seconds)
        if self._session is not None:
            self._outbound.blocked = blocked
            if not blocked:
                self._outbound.go_on()
        if not blocked:
            self._release(_UNREAD)

    def lost(self) -> None:
        """The socket has gone."""
        if not self._held & _CLOSED:
            self._close(Ending.LOST, reasons.UNSPECIFIED_ERROR)
        self._front.times.forget(self)
        self._out.clear()

    def take_output(self) -> bytes:
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def look(self, now: float) -> None:
        limits, times = self._front.limits, self._front.times
        if self._held & _CLOSED:
            self._wire.abort()
            return
        if self._terms is None:
            if now >= self._since + limits.connect_seconds:
                self._refuse(reasons.UNSPECIFIED_ERROR, "no CONNECT in time")
            else:
                times.plan(self, self._since + limits.connect_seconds)
            return
        if self._unread and now >= self._unread + limits.stall_seconds:
            log.debug("mqtt.does-not-read", client=self.client_id, peer=self.peer)
            self._end(Ending.LOST, reasons.QUOTA_EXCEEDED, "")
            self._wire.abort()
            return
        if self._held:
            self._seen = now  # it may have sent much that was not read
        elif self._unfinished and now >= self._unfinished + limits.packet_seconds:
            self.fail(reasons.MALFORMED_PACKET, f"a packet was not complete after {limits.packet_seconds} seconds")
            return
        elif self._keep_alive and now >= self._seen + self._keep_alive:
            # v3.1.1 MQTT-3.1.2-24, v5 MQTT-3.1.2-22
            self.fail(reasons.KEEP_ALIVE_TIMEOUT, "nothing came in one and a half times the keep alive")
            return
        at = [self._seen + self._keep_alive] if self._keep_alive else []
        if self._unread:
            at.append(self._unread + limits.stall_seconds)
        if self._unfinished:
            at.append(self._unfinished + limits.packet_seconds)
        if at:
            times.plan(self, min(at))

    # --- input --------------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        reader = self._reader
        try:
            packets = reader.feed(data)
        except MqttError as error:
            packets = error.packets
            self._fault = error
        if packets:
            self._seen = self._front.times.now
        if reader.held:
            if packets or not self._unfinished:
                self._unfinished = now = self._front.times.now
                self._front.times.plan(self, now + self._front.limits.packet_seconds)
        else:
            self._unfinished = 0.0
        self._process(packets)

    def _process(self, packets: list[Packet]) -> None:
        rest = iter(packets)
        front_in = self._front.packets_in
        try:
            for packet in rest:
                number, handle = _HANDLERS[type(packet)]
                front_in[number] += 1
                handle(self, packet)
                if self._held:
                    if not self._held & _CLOSED:
                        self._packets = list(rest)
                    return
        except MqttError as error:
            self._broken(error)
            return
        if self._fault is not None:
            self._broken(self._fault)

    def _hold(self, why: int) -> None:
        before = self._held
        self._held |= why
        if not before and not self._working:
            self._paused()

    def _release(self, why: int) -> None:
        if self._held & why:
            self._held &= ~why
            if not self._held and not self._working:
                self._work()

    def _work(self) -> None:
        """Goes on with what was read, as long as nothing holds it up."""
        self._working = True
        if self._packets:
            packets, self._packets = self._packets, []
            self._process(packets)
        elif self._fault is not None and not self._held:
            self._broken(self._fault)
        raw, at, slices = self._raw, 0, 0
        self._raw = b""
        while at < len(raw) and not self._held:
            if slices == A_TURN:
                self._held |= _SHARE
                self._wire.call_soon()
                break
            self._feed(raw[at : at + SLICE])
            at += SLICE
            slices += 1
        if at < len(raw) and not self._held & _CLOSED:
            self._raw = raw[at:] + self._raw
        self._working = False
        if self._held:
            self._paused()
        elif self._raw:  # came in between
            self._work()
        else:
            self._wire.resume()

    def _paused(self) -> None:
        if not self._held & _CLOSED:
            self._wire.pause()

    # --- packets ------------------------------------------------------------------------------------------------------

    def _connect(self, packet: Connect) -> None:
        front = self._front
        self._v5 = packet.version == V5
        self._largest = packet.properties.maximum_packet_size or self._largest
        try:
            if front.stopping:
                raise Refused(reasons.SERVER_UNAVAILABLE, "this gateway is about to end")
            if len(front.clients) >= front.limits.connections:
                raise Refused(reasons.QUOTA_EXCEEDED, f"{front.limits.connections} clients are connected already")
            terms = connecting.examine(packet, front.limits, self.peer)
        except Refused as refusal:
            self.refused(refusal.reason, refusal.text)
            return
        self._terms = terms
        self._reader.max_packet = front.limits.max_packet
        self._keep_alive = terms.keep_alive * 1.5 + STEP if terms.keep_alive else 0.0
        self.client_id = client_id = terms.request.client_id
        front.times.forget(self)
        front.clients.add(self)
        self._hold(_OPENING)
        older = front.opening.get(client_id)
        front.opening[client_id] = self
        if older is not None:
            older.disconnect(reasons.SESSION_TAKEN_OVER)
        self._wire.recognised()
        front.open(terms.request, self)

    def _publish(self, packet: Publish) -> None:
        self._inbound.publish(packet)

    def _puback(self, packet: PubAck) -> None:
        self._outbound.puback(packet)

    def _pubrec(self, packet: PubRec) -> None:
        self._outbound.pubrec(packet)

    def _pubrel(self, packet: PubRel) -> None:
        self._inbound.pubrel(packet)

    def _pubcomp(self, packet: PubComp) -> None:
        self._outbound.pubcomp(packet)

    def _subscribe(self, packet: Subscribe | Unsubscribe) -> None:
        if self._inbound.uses(packet.packet_id) or self._subscribing.uses(packet.packet_id):
            in_use = reasons.PACKET_IDENTIFIER_IN_USE
            if isinstance(packet, Subscribe):
                self.write_answer(SubAck(packet.packet_id, (in_use,) * len(packet.subscriptions)), "")
            else:
                self.write_answer(UnsubAck(packet.packet_id, (in_use,) * len(packet.filters)), "")
        else:
            self._subscribing.take(packet)

    def _pingreq(self, packet: PingReq) -> None:
        self.write(13, encode.PINGRESP)

    def _disconnect(self, packet: Disconnect) -> None:
        expiry = packet.properties.session_expiry
        assert self._terms is not None
        if expiry and not self._terms.request.expiry:
            raise ProtocolError("DISCONNECT: a session expiry interval, after one of 0 in CONNECT", "v5 3.14.2.2.2")
        ending = Ending.LOST if packet.reason else Ending.CLEAN
        self._close(ending, packet.reason, expiry)
        self._wire.end()

    def _auth(self, packet: Auth) -> None:
        raise ProtocolError("AUTH: CONNECT has named no authentication method", "v5 MQTT-4.12.0-7")

    # --- the session's calls (ports.Client) ---------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        self._no_longer_opening()
        terms = self._terms
        assert terms is not None
        if self._held & _CLOSED:
            session.close(self._ending, None, ())
            return
        limits = self._front.limits
        version = terms.request.version
        self._session = session
        self._inbound = Inbound(self, session, version, limits.receive_maximum, limits.topic_aliases)
        self._outbound = Outbound(self._front, self, session, terms)
        self._subscribing = Subscribing(self, session, limits.subscriptions)
        values = connecting.answer(terms, limits) if self._v5 else NONE
        self.write(2, encode.encode(ConnAck(session.present, reasons.SUCCESS, values), version))
        self._outbound.resume()
        self._seen = self._front.times.now
        if self._keep_alive:
            self._front.times.plan(self, self._seen + self._keep_alive)
        self._release(_OPENING)

    def refused(self, reason: int, text: str) -> None:
        """CONNECT is answered with a refusal, as far as the version has one for it."""
        self._no_longer_opening()
        if self._held & _CLOSED:
            return
        self._front.refused[reason] += 1
        log.debug("mqtt.refused", client=self.client_id, peer=self.peer, reason=reasons.name(reason), text=text)
        if self._v5:
            code = reason if reason in reasons.CONNACK else reasons.UNSPECIFIED_ERROR
            self._write_explained(2, lambda values: ConnAck(False, code, values), text)
        else:
            returned = reasons.v3_return_code(reason)
            if returned is not None:
                self.write(2, encode.encode(ConnAck(False, returned), 4))
        self._close(Ending.LOST, reason)
        self._wire.end()

    def published(self, packet_id: int, reason: int, text: str = "") -> None:
        self._inbound.published(packet_id, reason, text)

    def released(self, packet_id: int) -> None:
        self._inbound.released(packet_id)

    def hold(self) -> None:
        self._hold(_NO_ROOM)

    def proceed(self) -> None:
        self._release(_NO_ROOM)

    def deliver(self, delivery: Delivery) -> None:
        self._outbound.deliver(delivery)

    def assigned(self, packet_id: int) -> None:
        self._outbound.assigned(packet_id)

    def received(self, packet_id: int) -> None:
        self._outbound.received(packet_id)

    def completed(self, packet_id: int) -> None:
        self._outbound.completed(packet_id)

    def subscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        self._subscribing.subscribed(packet_id, codes, text)

    def unsubscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        self._subscribing.unsubscribed(packet_id, codes, text)

    def disconnect(self, reason: int, text: str = "") -> None:
        self._end(_ENDINGS.get(reason, Ending.LOST), reason, text)

    # --- output, for the parts ----------------------------------------------------------------------------------------

    def write(self, kind: int, data: bytes) -> None:
        out = self._out
        out.append(data)
        self._front.packets_out[kind] += 1
        if len(out) == 1:
            self._wire.has_output()

    def write_ack(self, packet: PubAck | PubRec | PubComp | PubRel, text: str = "") -> None:
        kind, number, reason = type(packet), packet.packet_id, packet.reason
        self._write_explained(_KINDS[kind], lambda values: kind(number, reason, values), self._of(text))

    def write_answer(self, packet: SubAck | UnsubAck, text: str) -> None:
        kind, number, codes = type(packet), packet.packet_id, packet.codes
        self._write_explained(_KINDS[kind], lambda values: kind(number, codes, values), self._of(text))

    def _of(self, text: str) -> str:
        """The reason, if the client has not said that it wants none (v5 MQTT-3.1.2-29)."""
        return text if self._terms is not None and self._terms.problems else ""

    def _write_explained(self, kind: int, make: Callable[[Properties], Packet], text: str) -> None:
        """Without the reason string if the packet would be too large with it (v5 MQTT-3.2.2-19 and others)."""
        version = V5 if self._v5 else V311
        if text and self._v5:
            data = encode.encode(make(why(text)), version)
            if len(data) <= self._largest:
                self.write(kind, data)
                return
        self.write(kind, encode.encode(make(NONE), version))

    def fail(self, reason: int, text: str) -> None:
        self._end(Ending.LOST, reason, text)

    def window_full(self, full: bool) -> None:
        if full:
            self._hold(_WINDOW)
        else:
            self._release(_WINDOW)

    def queue_full(self, full: bool) -> None:
        if full:
            self._hold(_REQUESTS)
        else:
            self._release(_REQUESTS)

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> tuple[int, int]:
        return (0, 0) if self._session is None else (self._inbound.in_flight, self._outbound.in_flight)

    @property
    def client(self) -> Connection:
        return self

    def _broken(self, error: MqttError) -> None:
        """The client broke the specification."""
        if self._held & _CLOSED:
            return
        if self._session is not None:
            self.fail(error.reason, str(error))
        elif isinstance(error, UnsupportedVersion):
            self._front.refused[error.reason] += 1
            self.write(2, encode.refuse_version(error.level))
            self._close(Ending.LOST, error.reason)
            self._wire.end()
        else:  # v3.1.1 MQTT-3.1.4-1, v5 MQTT-3.1.4-1: what is no CONNECT at all gets no answer
            self._v5 = self._reader.version == V5 and not self._reader.started
            self._refuse(error.reason, str(error))

    def _refuse(self, reason: int, text: str) -> None:
        """Of a peer that has not sent a good CONNECT."""
        if self._v5:
            self.refused(reason, text)
            return
        self._front.refused[reason] += 1
        log.debug("mqtt.no-connect", peer=self.peer, reason=text)
        self._close(Ending.LOST, reason)
        self._wire.end()

    def _end(self, ending: Ending, reason: int, text: str) -> None:
        """Closes from this side; a client of MQTT 5 is told why (v5 4.13)."""
        if self._held & _CLOSED:
            return
        log.debug("mqtt.closed", client=self.client_id, peer=self.peer, reason=reasons.name(reason), text=text)
        if self._v5 and self._session is not None:
            code = reason if reason in reasons.DISCONNECT_OF_SERVER else reasons.UNSPECIFIED_ERROR
            self._write_explained(14, lambda values: Disconnect(code, values), text)
        self._close(ending, reason)
        self._wire.end()

    def _close(self, ending: Ending, reason: int, expiry: int | None = None) -> None:
        """Nothing is read and nothing processed any more."""
        self._held |= _CLOSED
        self._raw, self._packets, self._fault = b"", [], None
        self._ending = ending
        front = self._front
        front.closed[reason] += 1
        front.clients.discard(self)
        front.times.forget(self)
        front.times.plan(self, front.times.now + LINGER)  # a peer that does not read what is left must not stay
        session = self._session
        if session is not None:
            sent = self._outbound.sent()
            session.close(ending, expiry, sent)

    def _no_longer_opening(self) -> None:
        if self._front.opening.get(self.client_id) is self:
            del self._front.opening[self.client_id]


_ENDINGS: Final = {
    reasons.SESSION_TAKEN_OVER: Ending.TAKEN,
    reasons.SERVER_SHUTTING_DOWN: Ending.STOPPED,
}
_NOTHING: Any = None  # in place of the parts that are made with the session
_KINDS: Final[dict[type[Packet], int]] = {PubAck: 4, PubRec: 5, PubRel: 6, PubComp: 7, SubAck: 9, UnsubAck: 11}
_HANDLERS: Final[dict[type[Packet], tuple[int, Callable[[Connection, Any], None]]]] = {
    Connect: (1, Connection._connect),
    Publish: (3, Connection._publish),
    PubAck: (4, Connection._puback),
    PubRec: (5, Connection._pubrec),
    PubRel: (6, Connection._pubrel),
    PubComp: (7, Connection._pubcomp),
    Subscribe: (8, Connection._subscribe),
    Unsubscribe: (10, Connection._subscribe),
    PingReq: (12, Connection._pingreq),
    Disconnect: (14, Connection._disconnect),
    Auth: (15, Connection._auth),
}
