"""One AMQP connection: proton's sans-IO engine driven by an asyncio protocol. No threads, no reactor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import proton
from cproton import (
    addressof,
    isnull,
    pn_collector_peek,
    pn_collector_pop,
    pn_delivery_link,
    pn_event_delivery,
    pn_event_link,
    pn_event_type,
)
from proton import Endpoint, Event, Terminus, Transport

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.sasl.handshake import AMQP_HEADER
from enmasse.amqp.termini import SPACE
from enmasse.control.errors import NOT_FOUND, RESOURCE_LIMIT, UNAUTHORIZED_ACCESS, ConnectionLost, LinkClosed
from enmasse.control.link import ControlLink, ControlReceiver, ControlSender
from enmasse.control.sasl_layer import SaslLayer
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Peer
from enmasse.logs import log
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network.cut_links import BEAT, CUT_OFF, LOOK, CutLink, link_of
from enmasse.network.deadline import Deadline
from enmasse.network.tls_transport import read_much

MAX_FRAME = 65536
SESSION_BYTES = 256 * MAX_FRAME
"""Bytes of transfers a peer may have under way in one session before it is read: a window of 256 frames, because
hundreds of small replies arrive at a time. (Deliveries are read on arrival, so these bytes do not accumulate.)"""
WRITE_BUFFER = 2 * 1024 * 1024
"""Bytes that wait for the peer to read before nothing more is given to the socket."""
WRITE = 256 * 1024
"""Bytes that are given to the socket at a time."""
MAX_MESSAGE = 64 * 1024 * 1024
MAX_LINKS = 256
MAX_SESSIONS = 16
HANDSHAKE = 10.0
"""Seconds a peer has from connect to its open."""
IDLE = 8.0
"""Seconds of silence after which a peer is dead; heartbeats go at half of it."""
CLOSING = 2.0
"""Seconds to wait for the answer to our close."""
EMPTY_FRAME = bytes.fromhex("0000000802000000")

_DELIVERY = Event.DELIVERY.number
_LINK_FLOW = Event.LINK_FLOW.number
_CONNECTION_REMOTE_OPEN = Event.CONNECTION_REMOTE_OPEN.number
_CONNECTION_REMOTE_CLOSE = Event.CONNECTION_REMOTE_CLOSE.number
_SESSION_REMOTE_OPEN = Event.SESSION_REMOTE_OPEN.number
_SESSION_REMOTE_CLOSE = Event.SESSION_REMOTE_CLOSE.number
_LINK_REMOTE_OPEN = Event.LINK_REMOTE_OPEN.number
_LINK_REMOTE_CLOSE = Event.LINK_REMOTE_CLOSE.number
_LINK_REMOTE_DETACH = Event.LINK_REMOTE_DETACH.number
_TRANSPORT_ERROR = Event.TRANSPORT_ERROR.number
_RARE = {
    _CONNECTION_REMOTE_OPEN,
    _CONNECTION_REMOTE_CLOSE,
    _SESSION_REMOTE_OPEN,
    _SESSION_REMOTE_CLOSE,
    _LINK_REMOTE_OPEN,
    _LINK_REMOTE_CLOSE,
    _LINK_REMOTE_DETACH,
    _TRANSPORT_ERROR,
}


class Frames(NamedTuple):
    """How many frames a connection has received and sent."""

    received: int
    sent: int


class ControlConnection(asyncio.Protocol):
    """An AMQP connection, dialled or accepted; both can attach links and be attached to.

    Set before or when it opens: `on_open()`, `on_attach(link)` (accept or refuse it, now or later; unset, every attach
    is refused), `on_closed(error)` (once).

    `login(address of the peer, its certificate)` makes the login by SCRAM-SHA-256 or EXTERNAL; otherwise proton does
    it, by PLAIN with a `user`, else by ANONYMOUS.
    """

    def __init__(
        self,
        *,
        container: str,
        server: bool,
        properties: dict[str, Any] | None = None,
        hostname: str | None = None,
        user: str | None = None,
        password: str | None = None,
        login: Callable[[str, Any], SaslLayer] | None = None,
        idle: float = IDLE,
        max_message_size: int = MAX_MESSAGE,
        max_links: int = MAX_LINKS,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.on_open: Callable[[], None] | None = None
        self.on_attach: Callable[[ControlLink], None] | None = None
        self.on_closed: Callable[[ConnectionLost], None] | None = None
        self.peer = ""
        """host:port of the other end, for logs."""
        self.identity: Peer | None = None
        """The process at the other end of an accepted connection; None: the listener does not authenticate."""
        self.admission: PeerCheck | None = None
        """Rights of that process."""
        self.is_open = False
        self.error: ConnectionLost | None = None
        self.blocked = False
        """The peer does not read; what is sent now stays in memory."""
        self.max_message_size = max_message_size
        self.max_links = max_links
        self._server = server
        self._make_login = login
        self._login: SaslLayer | None = None
        """None once it has succeeded."""
        self._encrypted = False
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._links: dict[int, ControlLink] = {}
        self._socket: asyncio.Transport | None = None
        self._session: Any = None
        self._dirty = False
        self._pumping = False
        self._closing = False
        self._link_number = 0
        self._user: str | None = None
        self._tick_timer: Deadline | None = None
        self._close_timer: Deadline | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._link: CutLink | None = None
        self._beat = 0.0

        self._collector = proton.Collector()
        self._events = self._collector._impl
        self._connection = proton.Connection()
        self._connection.collect(self._collector)
        self._connection.container = container
        if properties:
            self._connection.properties = properties
        if hostname:
            self._connection.hostname = hostname
        self._transport = Transport(Transport.SERVER if server else Transport.CLIENT)
        self._transport.max_frame_size = MAX_FRAME
        self._transport.channel_max = MAX_SESSIONS - 1
        self._transport.idle_timeout = idle
        if login is not None:
            pass  # the engine begins behind the SASL layer
        elif user is not None:
            sasl = self._transport.sasl()
            self._connection.user = user
            self._connection.password = password or ""
            sasl.allow_insecure_mechs = True
            sasl.allowed_mechs("PLAIN")
        else:
            self._transport.sasl().allowed_mechs("ANONYMOUS")
        if server:
            self._transport.require_auth(False)
        self._transport.bind(self._connection)
        if not server:
            self._connection.open()

    # what applications use

    @property
    def remote_container(self) -> str:
        """Return the peer's container-id; empty before its open."""
        return self._connection.remote_container or ""

    @property
    def remote_properties(self) -> dict[str, Any]:
        """The peer's properties from its open frame (`product`, `version` …)."""
        found = self._connection.remote_properties
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}

    @property
    def remote_offered(self) -> list[str]:
        """The capabilities that the peer offers in its open frame."""
        found = self._connection.remote_offered_capabilities
        return [str(capability) for capability in found or ()]

    async def opened(self) -> None:
        """Wait for the peer's open. Raises ConnectionLost."""
        await asyncio.shield(self._opened)

    async def wait_closed(self) -> None:
        """Wait until the connection is gone; `error` has the reason."""
        await asyncio.shield(self._gone)

    @property
    def is_gone(self) -> bool:
        """Return True once the connection has ended."""
        return self._gone.done()

    def sender(
        self,
        target: str | None,
        *,
        name: str | None = None,
        source: str | None = None,
        configure: Callable[[Any], None] | None = None,
        space: str = DEFAULT_SPACE,
    ) -> ControlSender:
        """Attach a sender (`target` None: the anonymous terminus); whether it may, `await sender.opened()` shows.
        `configure` gets proton's link before it is opened. `space`: in which messages of an anonymous sender state
        names, by a process that acts for clients."""
        link = self._own_session().sender(name or self._next_name())
        link.target.address = target
        link.source.address = source or link.name
        if space != DEFAULT_SPACE:
            link.properties = {proton.symbol(SPACE): space}
        if configure is not None:
            configure(link)
        sender = ControlSender(self, link)
        self._links[sender.key] = sender
        link.open()
        self.wake()
        return sender

    def receiver(
        self,
        source: str | None,
        *,
        window: int = 10,
        name: str | None = None,
        dynamic: bool = False,
        settled: bool = False,
        configure: Callable[[Any], None] | None = None,
    ) -> ControlReceiver:
        """Attach a receiver with `window` credit. `dynamic`: the peer names an address for us (`remote_source`).

        `settled` asks the sender to settle first. `configure` gets proton's link before it is opened (filters …).
        """
        link = self._own_session().receiver(name or self._next_name())
        if dynamic:
            link.source.dynamic = True
            link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
        else:
            link.source.address = source
        link.target.address = link.name
        if settled:
            link.snd_settle_mode = proton.Link.SND_SETTLED
        if configure is not None:
            configure(link)
        receiver = ControlReceiver(self, link)
        receiver.window = window
        self._links[receiver.key] = receiver
        link.open()
        receiver.grant(window)
        self.wake()
        return receiver

    def close(self, condition: str = "", description: str = "") -> None:
        """Close the connection politely; `wait_closed` waits for it."""
        if self._closing or self._gone.done():
            return
        self._closing = True
        if self._login is not None:
            self.abort()  # the peer has not begun with AMQP yet
        if condition:
            self._connection.condition = proton.Condition(condition, description)
        self._connection.close()
        if self.error is None:
            self.error = ConnectionLost(condition or "closed here", description)
        self._close_timer = Deadline(self.loop, self.loop.time() + CLOSING, self.abort)
        self.wake()

    def _end(self, error: AmqpError) -> None:
        self.close(error.condition, error.description)

    def abort(self) -> None:
        """Drop the socket."""
        if self._socket is not None:
            self._socket.abort()

    def wake(self) -> None:
        """There is something to write: it leaves, together with all else, once in this turn of the loop."""
        if not self._dirty and self._socket is not None:
            self._dirty = True
            self.loop.call_soon(self._turn)

    @property
    def frames(self) -> Frames:
        """AMQP frames on this connection so far, empty ones (heartbeats) included."""
        return Frames(self._transport.frames_input, self._transport.frames_output)

    @property
    def unsent(self) -> int:
        """Bytes that wait in this process until the peer reads; not those in the buffers of the operating system."""
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    @property
    def links(self) -> list[ControlLink]:
        """Return the links of the connection."""
        return list(self._links.values())

    def forget(self, link: ControlLink) -> None:
        """The link has ended (called by the link)."""
        if self._links.pop(link.key, None) is not None:
            link.proton_link.free()

    # the asyncio protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        # uvloop's transports are ones without inheriting from the class
        self._socket = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        self._close_timer = Deadline(self.loop, self.loop.time() + HANDSHAKE, self._handshake_failed)
        self._encrypted = transport.get_extra_info("ssl_object") is not None
        if self._make_login is not None:
            self._login = self._make_login(self.peer, transport.get_extra_info("peercert"))
        self._link = link_of(transport)
        self._turn()

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        if self._login is not None:
            rest = self._log_in(self._login, data)
            if rest is None:
                return
            data = rest
        self._receive(data)
        self._turn()

    def _receive(self, data: bytes) -> None:
        engine = self._transport
        view = memoryview(data)
        while view:
            try:
                room = engine.capacity()
                if room <= 0:
                    break  # the engine has seen the end of the stream, or failed: it takes nothing more
                engine.push(view[:room])
            except proton.ProtonException:
                break  # the event has what is wrong, and the error frame is in the output
            view = view[room:]
            self._pump()

    def _log_in(self, login: SaslLayer, data: bytes) -> bytes | None:
        """Return what is for the engine, once the SASL layer has ended well."""
        rest = None
        try:
            rest = login.receive(data)
        except ConnectionLost as error:
            self.error = error
        self._write([login.output()])
        if self.error is not None and self._socket is not None:
            self._socket.close()
        if rest is not None:
            self._login, self._user, self.admission = None, login.user, login.admission
            if self.admission is not None:
                self.admission.close = self._end
            self._receive(AMQP_HEADER)  # both headers have been exchanged
            self._transport.pending()
            self._transport.pop(len(AMQP_HEADER))
        return rest

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        return False

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self.blocked = True

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        self.blocked = False
        self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        if self.error is None:
            self.error = self._lost(exc)
        self._socket = None
        self.is_open = False
        for timer in (self._tick_timer, self._close_timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        for link in list(self._links.values()):
            link.lost(LinkClosed(self.error.condition, self.error.description))
        if not self._opened.done():
            self._opened.set_exception(self.error)
            self._opened.exception()
        self._transport.unbind()
        self._connection.free()
        self._pump()
        self._collector.release()
        if not self._gone.done():
            self._gone.set_result(None)
        if self.admission is not None:
            self.admission.ended(None)
        if self.on_closed is not None:
            self.on_closed(self.error)

    def _lost(self, exc: Exception | None) -> ConnectionLost:
        if self._login is not None and self._encrypted and not self._server:
            # With TLS 1.3 our part of the handshake ends before the peer has verified our certificate.
            text = "the peer has closed the connection before authentication; its log says why, if it refuses us"
            return ConnectionLost(UNAUTHORIZED_ACCESS, f"{text}: {exc}" if exc else text)
        return ConnectionLost("connection lost", str(exc) if exc else "the peer closed the socket")

    # the engine

    def _turn(self) -> None:
        """Events, then output, until there is neither."""
        self._dirty = False
        self._pump()
        if self._socket is None:
            return
        if self._login is not None:
            self._write([self._login.output()])
            return
        engine = self._transport
        out: list[bytes] = []
        size = room = 0
        try:
            while not self.blocked:
                size = engine.pending()
                if size <= 0:
                    break
                piece = engine.peek(size)
                if not piece:
                    break
                out.append(piece)
                room += len(piece)
                engine.pop(len(piece))
                self._pump()
                if room > WRITE:
                    self._write(out)  # which may block: then the rest stays in the engine
                    out, room = [], 0
        except proton.ProtonException as error:
            self.error = self.error or ConnectionLost("amqp:internal-error", str(error))
            size = -1
        self._write(out)
        if size < 0 and self._socket is not None:
            self._socket.close()

    def _write(self, out: list[bytes]) -> None:
        if out and self._socket is not None:
            self._socket.write(out[0] if len(out) == 1 else b"".join(out))

    def _pump(self) -> None:
        assert not self._pumping
        self._pumping = True
        try:
            self._process()
        finally:
            self._pumping = False

    def _process(self) -> None:
        events, links = self._events, self._links
        while not isnull(event := pn_collector_peek(events)):
            kind = pn_event_type(event)
            try:
                if kind == _DELIVERY:
                    delivery = pn_event_delivery(event)
                    link = links.get(addressof(pn_delivery_link(delivery)))
                    if link is not None:
                        link.delivery_event(delivery)  # type: ignore[attr-defined]  # links with deliveries have it
                elif kind == _LINK_FLOW:
                    link = links.get(addressof(pn_event_link(event)))
                    if isinstance(link, ControlSender):
                        link.flow()
                elif kind in _RARE:
                    self._rare(kind, Event.wrap(event))
            except Exception:
                log.get(peer=self.peer).exception("control.handler.failed")
                self.close("amqp:internal-error", "the handler of an event failed; see the log")
            pn_collector_pop(events)

    def _rare(self, kind: int, event: Any) -> None:
        if kind == _LINK_REMOTE_OPEN:
            self._on_attach(event.link)
        elif kind in (_LINK_REMOTE_CLOSE, _LINK_REMOTE_DETACH):
            self._on_detach(event.link, closed=kind == _LINK_REMOTE_CLOSE)
        elif kind == _SESSION_REMOTE_OPEN:
            if event.session.state & Endpoint.LOCAL_UNINIT:
                event.session.incoming_capacity = SESSION_BYTES
                event.session.open()
        elif kind == _SESSION_REMOTE_CLOSE:
            self._on_end(event.session)
        elif kind == _CONNECTION_REMOTE_OPEN:
            self._on_opened()
        elif kind == _CONNECTION_REMOTE_CLOSE:
            condition = self._connection.remote_condition
            if self.error is None:
                self.error = (
                    ConnectionLost(condition.name, condition.description or "")
                    if condition
                    else ConnectionLost("closed", "the peer closed the connection")
                )
            self._closing = True
            self._connection.close()
        elif kind == _TRANSPORT_ERROR:
            condition = self._transport.condition
            if self.error is None and condition:
                self.error = ConnectionLost(condition.name, condition.description or "")
            # the engine writes a close frame with the error; a peer that does not read it is dropped
            if self._close_timer is None or self.is_open:
                self._close_timer = Deadline(self.loop, self.loop.time() + CLOSING, self.abort)

    def _on_opened(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
        self.is_open = True
        if self._server:
            self._connection.open()
            if not self._is_admitted():
                return
            if self._socket is not None:
                read_much(self._socket)
        if not self._opened.done():
            self._opened.set_result(None)
        if self.on_open is not None:
            self.on_open()
        self.loop.call_soon(self._tick)
        if self._link is not None:
            self.loop.call_soon(self._look, self._link)

    def _is_admitted(self) -> bool:
        """Set the peer's identity; False: its role is refused here."""
        if self.admission is not None:
            try:
                self.identity = self.admission.opened(self._user)
            except AmqpError as error:
                self.close(error.condition, error.description)
                return False
        return True

    def _on_attach(self, link: Any) -> None:
        known = self._links.get(addressof(link._impl))
        if known is not None:
            known.remote_opened()
            return
        if self._closing:
            return
        if len(self._links) >= self.max_links:
            self.close(RESOURCE_LIMIT, f"at most {self.max_links} links on a connection")
            return
        made: ControlLink = ControlSender(self, link) if link.is_sender else ControlReceiver(self, link)
        self._links[made.key] = made
        if self.on_attach is None:
            made.refuse(NOT_FOUND, "nothing can be attached here")
        else:
            self.on_attach(made)

    def _on_detach(self, link: Any, *, closed: bool) -> None:
        known = self._links.get(addressof(link._impl))
        if known is None:
            return  # we have detached it ourselves; this is the answer
        condition = link.remote_condition
        if closed:
            link.close()
        else:
            link.detach()
        known.lost(LinkClosed(condition.name, condition.description or "") if condition else LinkClosed("detached"))

    def _on_end(self, session: Any) -> None:
        condition = session.remote_condition
        name, description = (condition.name, condition.description or "") if condition else ("session ended", "")
        for link in list(self._links.values()):
            if link.proton_link.session == session:
                link.lost(LinkClosed(name, description))
        if self._session is not None and self._session == session:
            self._session = None
        session.close()
        session.free()

    def _own_session(self) -> Any:
        if self._gone.done() or self._closing:
            raise self.error or ConnectionLost("closed")
        if self._session is None:
            self._session = self._connection.session()
            self._session.incoming_capacity = SESSION_BYTES
            self._session.open()
        return self._session

    def _next_name(self) -> str:
        self._link_number += 1
        return f"{self._connection.container}-{self._link_number}"

    def _tick(self) -> None:
        """Heartbeats out, and silence of the peer noticed (part 2.4.5)."""
        self._tick_timer = None
        if self._socket is None:
            return
        deadline = self._transport.tick(self.loop.time())
        if deadline:
            self._tick_timer = Deadline(self.loop, max(deadline, self.loop.time() + 0.02), self._tick)
        self._turn()

    def _look(self, link: CutLink) -> None:
        """Give the connection up if the network between is cut; send something now and then, which shows it."""
        if self._socket is None or self._closing or self._socket.is_closing():
            return
        now = self.loop.time()
        if link.is_cut(now):
            self.error = self.error or ConnectionLost("connection lost", f"{self.peer} {CUT_OFF}")
            self.abort()
            return
        if self._beat <= now and not self.blocked:  # what was blocked may have ended within a frame
            self._write([EMPTY_FRAME])
            self._beat = now + BEAT
        self._look_timer = self.loop.call_later(LOOK, self._look, link)

    def _handshake_failed(self) -> None:
        self.error = ConnectionLost("amqp:connection:forced", f"no open within {HANDSHAKE} seconds")
        self.abort()
