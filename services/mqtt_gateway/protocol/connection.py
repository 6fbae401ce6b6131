"""One MQTT connection from its socket to its end: CONNECT, the parts that its packets go to, deadlines, DISCONNECT.

The network calls `intake`, `output`, `set_blocked` and `lost`, the session `disconnect` and the parts that it was
started with, the timetable `look`. `intake` gives each packet to the part that processes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from enmasse.identity.login import Certified
from enmasse.identity.owned import Owner, owner
from enmasse.identity.principal import ANONYMOUS
from enmasse.logs import log as logs
from enmasse.model.names import DEFAULT_SPACE
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import MqttError, PacketTooLarge, ProtocolError, UnsupportedVersion
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
    Subscribe,
    Unsubscribe,
)
from services.mqtt_gateway.address_use import Attached
from services.mqtt_gateway.interfaces import NOT_ASKED, Asked, Ending, Refused, Session
from services.mqtt_gateway.protocol import connecting, intake
from services.mqtt_gateway.protocol.connecting import Terms
from services.mqtt_gateway.protocol.inbound import Inbound
from services.mqtt_gateway.protocol.intake import Handlers, Intake
from services.mqtt_gateway.protocol.outbound import Outbound
from services.mqtt_gateway.protocol.output import Output
from services.mqtt_gateway.protocol.server_state import ServerState, Wire
from services.mqtt_gateway.protocol.subscribing import Subscribing
from services.mqtt_gateway.protocol.timetable import STEP

log = logs.get(part="mqtt")

LINGER: Final = 5.0
"""Seconds in which a peer may read its last output after the end."""
PACKET_RATE: Final = 32 * 1024
"""Bytes per second: a packet of this size may take one second longer than an empty one."""
_NO_MEMORY: Final = "the gateway's memory for clients is used up, and this client holds most of it"


class Connection:
    """`peer`: host:port; `certificate`: the verified one that it has presented; `any_site`: it may be a web page of any
    site. `client_id` is empty until CONNECT, and what the client states until `admitted`."""

    __slots__ = (
        "_admitted",
        "_answered",
        "_any_site",
        "_asked",
        "_certificate",
        "_ending",
        "_inbound",
        "_keep_alive",
        "_moves",
        "_outbound",
        "_server_state",
        "_session",
        "_since",
        "_stated",
        "_subscribing",
        "_terms",
        "_unread",
        "_unsent",
        "_wire",
        "client_id",
        "due",
        "intake",
        "kept",
        "output",
        "peer",
    )

    def __init__(
        self,
        server_state: ServerState,
        wire: Wire,
        peer: str,
        certificate: Certified | None = None,
        *,
        any_site: bool = False,
        asked: Asked = NOT_ASKED,
    ) -> None:
        self._server_state = server_state
        self._asked = asked
        self._wire = wire
        self.peer = peer
        self._certificate = certificate
        self._any_site = any_site
        self.client_id = ""
        self.due = 0
        self.kept = 0
        self.intake = Intake(server_state, wire, self, _HANDLERS)
        self.output = Output(server_state, wire)
        self._terms: Terms | None = None
        self._admitted = False
        self._answered: Callable[[bytes], None] | None = None  # gets the response to a challenge
        self._session: Session | None = None
        self._inbound: Inbound = _NOTHING
        self._outbound: Outbound = _NOTHING
        self._subscribing: Subscribing | None = None
        self._ending = Ending.LOST
        self._since = server_state.times.now
        self._stated = ""  # the user that CONNECT names, until it is proved
        self._moves = False  # it is about to be closed, for the client to connect elsewhere
        self._keep_alive = 0.0  # seconds without a packet after which it is gone; 0: none
        self._unread = 0.0  # since when the client does not read; 0: it does
        self._unsent = 0  # bytes of output that it does not read
        server_state.times.plan(self, self._since + server_state.limits.connect_seconds)

    # --- the network's calls ------------------------------------------------------------------------------------------

    def set_blocked(self, blocked: bool) -> None:
        """Note that the client leaves much unread, or reads again."""
        if self.intake.closed:
            return
        self._unread = self._server_state.times.now if blocked else 0.0
        self.measure()
        if self.intake.closed:
            return
        if blocked:
            self.intake.hold(intake.UNREAD)
            self._server_state.times.plan(self, self._unread + self._server_state.limits.stall_seconds)
        if self._session is not None:
            self._outbound.blocked = blocked or self._moves
            if not blocked:
                self._outbound.go_on()
        if not blocked:
            self.intake.release(intake.UNREAD)

    def lost(self) -> None:
        """Handle the loss of the socket."""
        if not self.intake.closed:
            self._close(Ending.LOST, reasons.UNSPECIFIED_ERROR)
        self._server_state.times.forget(self)
        self._server_state.memory.change(self, -self.kept)
        self._unread = self._unsent = 0
        self.output.take()
        # its parts refer to it: released here, they are freed now, not when the garbage collector runs (rarely)
        self._inbound = self._outbound = _NOTHING
        self._session = None
        self.intake.let_go()

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Close the connection if a deadline has passed, else plan the next one."""
        limits = self._server_state.limits
        if self.intake.closed:
            self._wire.abort()
        elif self._terms is None:
            self._refuse(reasons.UNSPECIFIED_ERROR, "no CONNECT in time")
        elif self._unread and now >= self._unread + limits.stall_seconds:
            log.debug("mqtt.client.stalled", client=self.client_id, peer=self.peer, space=self.owner.space)
            self._end(Ending.LOST, reasons.QUOTA_EXCEEDED, "")
            self._wire.abort()
        elif self.intake.held:
            self.intake.seen = now  # it may have sent much that was not read
            self._plan()
        elif self.intake.since and now >= self._packet_due():
            self.fail(
                reasons.MALFORMED_PACKET, f"a packet was not complete after {now - self.intake.since:.0f} seconds"
            )
        elif self._keep_alive and now >= self.intake.seen + self._keep_alive:
            # v3.1.1 MQTT-3.1.2-24, v5 MQTT-3.1.2-22
            self.fail(reasons.KEEP_ALIVE_TIMEOUT, "nothing came in one and a half times the keep alive")
        else:
            self._plan()

    def _plan(self) -> None:
        times = self._server_state.times
        if self._keep_alive:
            times.plan(self, self.intake.seen + self._keep_alive)
        if self._unread:
            times.plan(self, self._unread + self._server_state.limits.stall_seconds)
        if self.intake.since:
            times.plan(self, self._packet_due())

    def _packet_due(self) -> float:
        """Time at which the packet that has begun must be complete: the larger it is, the more it has."""
        return self.intake.since + self._server_state.limits.packet_seconds + self.intake.reader.expected / PACKET_RATE

    def unfinished(self) -> None:
        """Plan the deadline of a packet that has begun and is not complete."""
        if self._terms is not None:
            self._server_state.times.plan(self, self._packet_due())

    # --- memory (memory.Memory) ---------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Count again the output that the socket has not sent: the operating system may have taken some of it."""
        unsent = self._wire.unsent() if self._unread else 0
        more, self._unsent = unsent - self._unsent, unsent
        self._server_state.memory.change(self, more)

    def waited(self) -> float:
        """Return the seconds since the wait for the client began: for the rest of a packet, or for it to read."""
        began = self._unread or self.intake.since
        return self._server_state.times.now - began if began else 0.0

    def give_way(self) -> None:
        """Close: the limit of memory is reached, and this connection holds most."""
        try:
            self._give_way()
        except Exception as error:
            self.failed(error)

    def _give_way(self) -> None:
        log.info(
            "mqtt.client.closed-for-memory",
            client=self.client_id,
            peer=self.peer,
            bytes=self.kept,
            space=self.owner.space,
        )
        if self._session is not None:
            self.fail(reasons.QUOTA_EXCEEDED, _NO_MEMORY)
        elif not self.intake.closed:
            self._refuse(reasons.QUOTA_EXCEEDED, _NO_MEMORY)
        if self._unread:  # it would not read the reason either, and its output is to be freed now
            self._server_state.memory.change(self, -self._unsent)
            self._unread = self._unsent = 0
            self._wire.abort()

    # --- packets ------------------------------------------------------------------------------------------------------

    def _connect(self, packet: Connect) -> None:
        server_state = self._server_state
        output = self.output
        output.v5 = packet.version == V5
        output.largest = packet.properties.maximum_packet_size or output.largest
        output.problems = packet.properties.request_problem_info != 0
        self._stated = connecting.stated_user(packet)
        try:
            if server_state.stopping:
                raise Refused(reasons.SERVER_UNAVAILABLE, "this gateway is about to end")
            if len(server_state.clients) >= server_state.limits.connections:
                raise Refused(
                    reasons.QUOTA_EXCEEDED, f"{server_state.limits.connections} clients are connected already"
                )
            terms = connecting.examine(
                packet, server_state.limits, self.peer, self._certificate, any_site=self._any_site, asked=self._asked
            )
        except Refused as refusal:
            self.refused(refusal.reason, refusal.text)
            return
        self._terms = terms
        if terms.request.auth_method is not None:
            self.intake.reader.max_packet = min(intake.BEFORE_LOGIN, server_state.limits.max_packet)
        self._keep_alive = terms.keep_alive * 1.5 + STEP if terms.keep_alive else 0.0
        self.client_id = terms.request.client_id
        server_state.times.forget(self)
        server_state.clients.add(self)
        self.intake.hold(intake.OPENING)
        self._wire.recognised()
        request = terms.request
        if request.password is not None:  # it is not kept
            self._terms = terms._replace(request=replace(request, password=None))
        server_state.open(request, self)

    def _pingreq(self, packet: PingReq) -> None:
        self.output.write(13, encode.PINGRESP)

    def _disconnect(self, packet: Disconnect) -> None:
        expiry = packet.properties.session_expiry
        assert self._terms is not None
        if expiry and not self._terms.request.expiry:
            raise ProtocolError("DISCONNECT: a session expiry interval, after one of 0 in CONNECT", "v5 3.14.2.2.2")
        if expiry is not None:
            expiry = min(expiry, self._server_state.limits.session_expiry)
        ending = Ending.LOST if packet.reason else Ending.CLEAN
        self._close(ending, packet.reason, expiry)
        self._wire.end()

    def _auth(self, packet: Auth) -> None:
        assert self._terms is not None
        method = self._terms.request.auth_method
        if method is None:
            raise ProtocolError("AUTH: CONNECT has named no authentication method", "v5 MQTT-4.12.0-7")
        if packet.properties.auth_method != method:
            raise ProtocolError("AUTH: another authentication method than that of CONNECT", "v5 MQTT-4.12.0-5")
        answered, self._answered = self._answered, None
        if answered is not None and packet.reason == reasons.CONTINUE_AUTHENTICATION:
            self.intake.handlers = _HANDLERS
            self.intake.hold(intake.OPENING)
            answered(packet.properties.auth_data or b"")
        elif packet.reason == reasons.REAUTHENTICATE and self._session is not None:
            self.fail(reasons.IMPLEMENTATION_SPECIFIC_ERROR, "a client authenticates again by connecting again")
        else:
            raise ProtocolError("AUTH: nothing was asked", "v5 4.12")

    def _too_early(self, packet: Packet) -> None:
        raise ProtocolError("only AUTH and DISCONNECT may come before CONNACK", "v5 MQTT-4.12.0-3")

    # --- the session --------------------------------------------------------------------------------------------------

    def challenge(self, data: bytes, answered: Callable[[bytes], None]) -> None:
        """Ask the client for more before CONNACK (v5 4.12); its response goes to `answered`."""
        if self.intake.closed:
            return
        self._answered = answered
        self.output.write(15, encode.encode(Auth(reasons.CONTINUE_AUTHENTICATION, self._method(data)), V5))
        self.intake.handlers = _AUTHENTICATING
        self.intake.release(intake.OPENING)

    def _method(self, data: bytes) -> Properties:
        assert self._terms is not None
        return Properties(auth_method=self._terms.request.auth_method, auth_data=data)

    def admitted(self, client_id: str, auth_data: bytes | None = None) -> None:
        """Handle the verified user of CONNECT. `client_id` is the client's name from now on: an older connection of the
        same name that waits for its session is closed. `auth_data`: data for CONNACK."""
        self.client_id = client_id
        self._admitted = True
        self._stated = ""
        terms = self._terms
        if terms is not None and terms.request.auth_method is not None:
            self._terms = terms._replace(request=replace(terms.request, auth_data=auth_data))
        opening = self._server_state.opening
        older = opening.get(client_id)
        opening[client_id] = self
        if older is not None:
            older.disconnect(reasons.SESSION_TAKEN_OVER)

    def opened(self, session: Session) -> None:
        """Accept CONNECT, with this session."""
        self._no_longer_opening()
        terms = self._terms
        assert terms is not None
        if self.intake.closed:
            session.close(self._ending, None, ())
            return
        server_state = self._server_state
        if terms.request.will is not None:  # the session has it
            self._terms = terms._replace(request=replace(terms.request, will=None))
        version = terms.request.version
        self._session = session
        self.intake.own(session.tenant)
        self.intake.reader.max_packet = max_packet = connecting.max_packet(server_state.limits, session)
        self._wire.opened()
        self._inbound = Inbound(server_state, self, self.output, session, version)
        self._outbound = Outbound(server_state, self, self.output, session, terms)
        self._subscribing = subscribing = Subscribing(
            server_state, self, self.output, session, self._inbound, self._outbound, terms.bridge
        )
        self.intake.parts += (self._inbound, self._outbound, subscribing)
        values = connecting.answer(terms, server_state.limits, max_packet) if version == V5 else NONE
        self.output.write(2, encode.encode(ConnAck(session.present, reasons.SUCCESS, values), version))
        self._outbound.resume(session.outgoing)
        session.start(self._inbound, self._outbound, subscribing)
        self.intake.seen = server_state.times.now
        self._plan()
        self.intake.release(intake.OPENING)

    def refused(self, reason: int, text: str, noted: str = "") -> None:
        """As server_state.Connected."""
        self._no_longer_opening()
        if self.intake.closed:
            return
        self._server_state.refused[reason] += 1
        self._note_refused("connect", reason, noted or text)
        if self.output.v5:
            code = reason if reason in reasons.CONNACK else reasons.UNSPECIFIED_ERROR
            self.output.explain(2, lambda values: ConnAck(False, code, values), text)
        else:
            returned = reasons.v3_return_code(reason)
            if returned is not None:
                self.output.write(2, encode.encode(ConnAck(False, returned), V311))
        self._close(Ending.LOST, reason)
        self._wire.end()

    def disconnect(self, reason: int, text: str = "") -> None:
        """As interfaces.Client."""
        self._end(_ENDINGS.get(reason, Ending.LOST), reason, text)

    def begin_to_move(self) -> None:
        """As server_state.Connected: answers of the client are processed, its next PUBLISH is not."""
        if self._session is not None and not self.intake.closed and not self._moves:
            self._moves = self._outbound.blocked = True
            self.intake.handlers = _MOVING

    def _hold_back(self, packet: Publish) -> None:
        self.intake.hold_back(packet, intake.MOVING)

    # --- for its parts ------------------------------------------------------------------------------------------------

    def fail(self, reason: int, text: str) -> None:
        """Close the connection because of an error: of the client, of the gateway, or of what is behind it."""
        self._end(Ending.LOST, reason, text)

    def subscribed_elsewhere(self) -> None:
        """Process the message again that waited for a SUBSCRIBE, which was answered."""
        try:
            self.intake.release(intake.ORDER)
        except Exception as error:  # of this client: the other one has only got its SUBACK
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Close at once after an unexpected error of this connection; other clients go on."""
        log.error(
            "mqtt.connection.failed", client=self.client_id, peer=self.peer, space=self.owner.space, exc_info=error
        )
        self._wire.abort()

    @property
    def owner(self) -> Owner:
        """Return whose client it is: until `admitted` the anonymous user's, whatever its identifier states."""
        if self._admitted:
            return owner(self.client_id)
        return Owner(ANONYMOUS, self.client_id, self._asked.space or DEFAULT_SPACE)

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def bytes_in(self) -> int:
        """Return the bytes that were read."""
        return self.intake.bytes

    @property
    def bytes_out(self) -> int:
        """Return the bytes that were written."""
        return self.output.bytes

    @property
    def may_move(self) -> bool:
        """As server_state.Connected."""
        return self._session is not None and self.in_flight == (0, 0)

    @property
    def in_flight(self) -> tuple[int, int]:
        """Return the number of messages from and to the client whose exchange has not ended."""
        return (0, 0) if self._session is None else (self._inbound.in_flight, self._outbound.in_flight)

    def described(self, wall: float) -> dict[str, Any]:
        """Return the row of the client and its traffic, for operators. `wall`: seconds since 1970 now."""
        terms = self._terms
        waiting = self.in_flight
        return {
            "protocol": "mqtt",
            "version": {V311: "3.1.1", V5: "5"}.get(V5 if self.output.v5 else V311),
            "client": self.owner.client,
            "user": self.owner.principal.full_name,
            "peer": self.peer,
            "tls": self._asked.tls,
            "opened": round(wall - (self._server_state.times.now - self._since), 1),
            "keepAlive": 0 if terms is None else terms.keep_alive,
            "sessionExpiry": 0 if terms is None else terms.request.expiry,
            "will": self._session is not None and self._session.has_will,
            "subscriptions": 0 if self._session is None else len(self._session.filters),
            "inFlightIn": waiting[0],
            "inFlightOut": waiting[1],
            "waitingBytes": self.kept,
            "in": 0 if self._session is None else self._inbound.messages,
            "out": self.output.messages,
            "packetsIn": self.intake.packets,
            "packetsOut": self.output.packets,
            "bytesIn": self.intake.bytes,
            "bytesOut": self.output.bytes,
        }

    def attached(self) -> Iterator[Attached]:
        """As server_state.Connected."""
        return iter(()) if self._session is None else self._session.attached()

    def broken(self, error: MqttError) -> None:
        """End the connection, because the client broke the specification."""
        if self.intake.closed:
            return
        if self._session is not None:
            self.fail(error.reason, str(error))
        elif self._terms is not None:
            self.refused(error.reason, str(error))
        elif isinstance(error, UnsupportedVersion):
            self._server_state.refused[error.reason] += 1
            self._note_refused("connect", error.reason, str(error))
            self.output.write(2, encode.VERSION_REFUSED)
            self._close(Ending.LOST, error.reason)
            self._wire.end()
        else:  # v3.1.1 MQTT-3.1.4-1, v5 MQTT-3.1.4-1: what is no CONNECT at all gets no answer
            reader = self.intake.reader
            self.output.v5 = reader.version == V5 and not reader.started
            if isinstance(error, PacketTooLarge) and len(error.client_id) <= self._server_state.limits.client_id:
                self.client_id = error.client_id
            self._refuse(error.reason, str(error))

    def _note_refused(self, what: str, reason: int, text: str) -> None:
        facts: dict[str, Any] = {
            "condition": reasons.name(reason),
            "reason": text,
            "peer": self.peer,
            "client": self.client_id,
        }
        owned, refusals = self.owner, self._server_state.refusals
        if self._admitted:
            refusals.note(what, user=owned.principal.full_name, space=owned.space, **facts)
        else:
            refusals.note_failed(what, self._stated, certificate=self._certificate, space=owned.space, **facts)

    def _refuse(self, reason: int, text: str) -> None:
        """Refuse a peer that has not sent a valid CONNECT."""
        if self.output.v5:
            self.refused(reason, text)
            return
        self._server_state.refused[reason] += 1
        self._note_refused("connect", reason, text)
        self._close(Ending.LOST, reason)
        self._wire.end()

    def _end(self, ending: Ending, reason: int, text: str) -> None:
        """Close from this side; a client of MQTT 5 gets the reason (v5 4.13)."""
        if self.intake.closed:
            return
        log.debug(
            "mqtt.connection.closed",
            client=self.client_id,
            peer=self.peer,
            reason=reasons.name(reason),
            text=text,
            space=self.owner.space,
        )
        noted = self._session is not None and self._session.noted == (reason, text)  # by its own event, with the topic
        if reason not in _USUAL and not noted:
            self._note_refused("close", reason, text or _WHY.get(reason, ""))
        if self.output.v5 and self._session is not None:
            code = reason if reason in reasons.DISCONNECT_OF_SERVER else reasons.UNSPECIFIED_ERROR
            self.output.explain(14, lambda values: Disconnect(code, values), text)
        self._close(ending, reason)
        self._wire.end(going_away=ending in (Ending.MOVED, Ending.STOPPED))

    def _close(self, ending: Ending, reason: int, expiry: int | None = None) -> None:
        """Stop reading and processing, and close the session."""
        self.intake.close()
        self._ending = ending
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(b"")  # which ends the attempt
        server_state = self._server_state
        server_state.closed[reason] += 1
        if self in server_state.clients:
            server_state.clients.discard(self)
            server_state.bytes_in += self.intake.bytes
            server_state.bytes_out += self.output.bytes
        if self._subscribing is not None:
            self._subscribing.close()
            self._subscribing = None
        server_state.unanswered.answered(self)
        server_state.times.forget(self)
        server_state.times.plan(
            self, server_state.times.now + LINGER
        )  # a peer that does not read the rest must not stay
        session = self._session
        if session is not None:
            sent = self._outbound.sent()
            self._outbound.close()
            session.close(ending, expiry, sent)

    def _no_longer_opening(self) -> None:
        if self._server_state.opening.get(self.client_id) is self:
            del self._server_state.opening[self.client_id]


_ENDINGS: Final = {
    reasons.SESSION_TAKEN_OVER: Ending.TAKEN,
    reasons.SERVER_SHUTTING_DOWN: Ending.STOPPED,
    reasons.SERVER_MOVED: Ending.MOVED,
}
_USUAL: Final = frozenset((reasons.SUCCESS, reasons.SERVER_SHUTTING_DOWN, reasons.SERVER_MOVED))
"""Reasons to close a connection that are no events."""
_WHY: Final = {reasons.SESSION_TAKEN_OVER: "a further connection has its client identifier"}
"""Texts for events where clients get none."""
_NOTHING: Any = None  # in place of the parts that are made with the session
_HANDLERS: Final[Handlers] = {
    Connect: (1, intake.CONNECTION, Connection._connect),
    Publish: (3, intake.INBOUND, Inbound.publish),
    PubAck: (4, intake.OUTBOUND, Outbound.puback),
    PubRec: (5, intake.OUTBOUND, Outbound.pubrec),
    PubRel: (6, intake.INBOUND, Inbound.pubrel),
    PubComp: (7, intake.OUTBOUND, Outbound.pubcomp),
    Subscribe: (8, intake.SUBSCRIBING, Subscribing.take),
    Unsubscribe: (10, intake.SUBSCRIBING, Subscribing.take),
    PingReq: (12, intake.CONNECTION, Connection._pingreq),
    Disconnect: (14, intake.CONNECTION, Connection._disconnect),
    Auth: (15, intake.CONNECTION, Connection._auth),
}
_AUTHENTICATING: Final[Handlers] = {
    kind: (number, intake.CONNECTION, Connection._too_early) for kind, (number, _, _) in _HANDLERS.items()
} | {kind: _HANDLERS[kind] for kind in (Auth, Disconnect)}
"""While the client is to answer a challenge."""
_MOVING: Final[Handlers] = {**_HANDLERS, Publish: (3, intake.CONNECTION, Connection._hold_back)}
"""Until the connection is closed, for the client to connect elsewhere."""
