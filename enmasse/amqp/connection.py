"""Connection: protocol headers, SASL, open and close, frames, channels, heartbeats (OASIS AMQP 1.0, 2.2 to 2.4).

Bytes in by `receive`, bytes out by `take_output`, time by `tick`: no socket, no clock. `transport.py` is the skin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import Any

from enmasse.amqp.callbacks import Callbacks, Guard
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.disposition import usual_disposition
from enmasse.amqp.endpoint import LinkFault, SessionFault, from_error
from enmasse.amqp.held_bytes import HeldBytes
from enmasse.amqp.idle import IdleTimes
from enmasse.amqp.limits import Limits
from enmasse.amqp.linktable import LinkNames
from enmasse.amqp.output import Output
from enmasse.amqp.reader import SMALL_SLICE_BYTES, Reader
from enmasse.amqp.sasl.handshake import Handshake
from enmasse.amqp.sasl.layer import SaslClient, SaslServer
from enmasse.amqp.session import Session

MIN_MAX_FRAME = 512
_SIZE = Struct(">I").unpack_from
_EMPTY_FRAME = HEADER(8, 2, 0, 0)
_CLOSE = HEADER(12, 2, 0, 0) + encode_performative(Close())


@lru_cache(maxsize=64)
def _symbols(names: tuple[str, ...]) -> tuple[Symbol, ...]:
    return tuple(map(Symbol, names))


class Connection:
    """One connection, either side.

    `sasl`: a SaslServer or SaslClient. A server without one offers ANONYMOUS and takes clients that skip SASL; a client
    without one skips it. `idle_timeout_ms`: the connection is closed after this silence of the peer (the open
    advertises half of it); 0 is never. A server may set another one in `on_open`, when it knows its peer. `state` is
    "start", "open" (both have opened), "closing" (our close is sent), "closed".

    Its parts, each with a state of its own: `output` (what leaves), `names` (links), `held` (unfinished deliveries),
    and for itself the handshake, the reader of frames, the silence of both sides, and the sessions by channel.
    """

    def __init__(
        self,
        handler: Callbacks[Connection],
        *,
        container_id: str,
        is_client: bool,
        hostname: str | None = None,
        max_frame_size: int = 65536,
        channel_max: int | None = None,
        idle_timeout_ms: int = 60_000,
        sasl: SaslServer | SaslClient | None = None,
        properties: Mapping[str, Any] | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        if max_frame_size < MIN_MAX_FRAME:
            raise ValueError(f"max_frame_size is at least {MIN_MAX_FRAME}, not {max_frame_size}")
        limits = limits or Limits()
        self.handler: Guard[Connection] = Guard(handler)
        self.is_client = is_client
        self.max_frame_size = max_frame_size  # ours; frames that come may be so large
        self.channel_max = min(limits.max_sessions - 1, 65535 if channel_max is None else channel_max)
        self.idle_timeout_ms = idle_timeout_ms
        if sasl is None and not is_client:
            sasl = SaslServer()
        self.sasl = sasl
        self.open_fields = Open(
            container_id=container_id,
            hostname=hostname,
            max_frame_size=max_frame_size,
            channel_max=self.channel_max,
            offered_capabilities=_symbols(tuple(offered_capabilities)),
            desired_capabilities=_symbols(tuple(desired_capabilities)),
            properties=dict(properties or {}),
        )
        self.remote_open: Open | None = None
        self.remote_channel_max = 65535
        self.state = "start"
        self.user: str | None = None
        self.context: Any = None
        self.inner = False
        """The peer is a router, or a broker or gateway of one: the skin notices early that the network is cut."""
        self.tenant = ""
        """With whose connections this one shares its turns, once it is open; empty: with none."""
        # Makes sessions; replace it before any begins.
        self.session_type: Callable[[Connection, int], Session] = Session
        self.transport_error: AmqpError | None = None
        self.broken = False  # the peer was lost, was silent, broke a rule, or closed with an error
        self.finished = False  # nothing more will come or go: the socket can be closed once the output has left
        self.output = Output(max(max_frame_size, 65536))
        self.held = HeldBytes(limits)
        self.names = LinkNames(limits)
        self.enough: Callable[[], bool] | None = None
        """Asked between slices of what was read. True: the rest is kept (`backlog`) until `proceed` is called."""
        self.backlog = False  # what was read waits for `proceed`
        self.bytes_in = self.bytes_out = 0  # read and written, of frames
        self._limits = limits
        # reading
        self._handshake = Handshake(self.output, sasl, is_client=is_client, max_frame=limits.max_sasl_frame)
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._needed = 0
        self._receiving = False
        # open and close
        self._open_sent = False
        self._close_sent = False
        self._close_error: AmqpError | None = None
        self._over = False
        self._silence = IdleTimes()
        # channels
        self._by_channel: dict[int, Session] = {}  # by the peer's channel
        self._highest_channel = -1  # of the peer's that have begun, whether they have ended or not
        self._local: dict[int, Session] = {}  # by ours
        self._reader = Reader(max_frame_size, self._by_channel)

    def __repr__(self) -> str:
        peer = self.remote_open.container_id if self.remote_open else "?"
        return f"<Connection {'to' if self.is_client else 'from'} {peer} {self.state}>"

    # --- for users ----------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """Bounds of what the peer may cause."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        """Other bounds for what comes from now on: once it is known who the peer is, before it has sessions."""
        self._limits = self.held.limits = self.names.limits = limits

    @property
    def blocked(self) -> bool:
        """The peer does not read."""
        return self.output.blocked

    @property
    def reading_paused(self) -> bool:
        """The socket is not to be read: too much of what was streamed is not taken, or the user wants it so."""
        return self.held.paused or self.held.throttled

    @property
    def remote_max_frame(self) -> int:
        """Frames we send are not larger."""
        return self.output.max_frame

    @property
    def unprocessed(self) -> int:
        """Bytes that were received and wait: for the rest of a frame, an authenticator or `proceed`."""
        return self._pending_size if self._pending else 0

    def open(self) -> None:
        """Client: start the conversation (header, SASL, open). The skin calls it when the socket is connected."""
        if not self._handshake.started:
            self._handshake.start()
            self._open_if_due()

    def begin(self) -> Session:
        """Begin a session on an open connection; links may be attached at once. Raises AmqpError if the connection
        is not open, or the peer allows no further channel."""
        if self.state != "open":
            raise AmqpError(errors.ILLEGAL_STATE, f"a session needs an open connection, this one is {self.state}")
        session = self._new_session()
        session.begin()
        return session

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection; `on_close` follows when the peer has answered. Nothing else is processed from then on.
        Does not raise."""
        if self._close_sent or self._over:
            return
        if not self._handshake.done and not (self.is_client and self._open_sent):
            self._give_up(error or AmqpError(errors.CONNECTION_FORCED, "closed before it was open"))
            return
        if not self._open_sent:
            self._send_open()
        for session in self.sessions():
            session.close_links()
        self.output.send(0, Close(error=None if error is None else Error.of(error)))
        self._close_sent = self.output.shut = True
        self._close_error = error
        self.state = "closing"  # tick sets the deadline
        self.wake()

    def hand_on(self, error: AmqpError, now_ms: int) -> None:
        """End the connection for its client to connect again, at `now_ms` (as for `tick`). Does not raise.

        There is no close, the socket is closed once the output has left: clients of Proton connect again at once. After
        a close they do not read any longer, and notice the end of the socket when a write fails, after up to 16 s. A
        client that owes heartbeats and sends none because it does not look after its connection, as a blocking one, has
        a close, which it finds later.
        """
        if self._close_sent or self._over:
            return
        if self.idle_timeout_ms and self._silence.is_silent(now_ms, self.idle_timeout_ms * 3 // 8):
            self.close(error)
            return
        for session in self.sessions():
            session.close_links()
        self._end_of_connection(error)

    def sessions(self) -> list[Session]:
        """Return the sessions that have not ended: by precedence, and then in the order in which they began here."""
        return sorted(self._local.values(), key=attrgetter("precedence"), reverse=True)

    def wake(self) -> None:
        """There is output: the skin flushes at the end of the read or of this turn of the loop."""
        self.output.wake()

    def take_output(self) -> bytes:
        """Return the bytes to write, with dispositions and flows that are due."""
        output = self.output
        output.dirty = False
        if output.due:
            due, output.due = output.due, {}
            for channel in due:
                session = self._local.get(channel)
                if session is not None:
                    session.flush()
        data = output.take()
        self.bytes_out += len(data)
        if data and output.blocked and output.on_spill is None:
            self.set_blocked(False)
        return data

    def set_blocked(self, blocked: bool) -> None:
        """The skin: the peer does not read (write buffer above its mark), or reads again."""
        if blocked == self.output.blocked or self._over:
            return
        self.output.blocked = blocked
        if not blocked:
            for session in self.sessions():
                session.outgoing.pump()
            if not self.output.blocked and self.state == "open":
                self.handler.on_writable(self)

    def transport_closed(self, error: AmqpError | None = None) -> None:
        """The skin: the socket is gone."""
        if not self._over:
            if self._close_error is not None:
                error = self._close_error
            elif not self._close_sent or error is not None:
                self.broken = self.broken or not self._close_sent
                error = error or AmqpError(
                    errors.CONNECTION_FORCED,
                    "the peer closed the socket without a close of AMQP"
                    + ("; it may not speak AMQP" if self.remote_open is None else ""),
                )
                self.transport_error = error
            self._end_of_connection(error)

    def answer_challenge(self, response: bytes) -> None:
        """Client: answer a challenge of SASL that the mechanism has not answered."""
        self._handshake.answer_challenge(response)

    def let_go(self) -> None:
        """Release the hooks of the transport: it is not called again."""
        self.output.let_go()
        self.held.let_go()
        self.handler.let_go()
        self.enough = None
        if isinstance(self.sasl, SaslServer):
            self.sasl.let_go()

    def tick(self, now_ms: int, beat_ms: int = 0) -> int | None:
        """Time has come to `now_ms` (monotonic, milliseconds). Returns when to call again at the latest; None: no need.
        `beat_ms`: milliseconds after which something is sent at the latest; 0: as often as the peer wants.
        Silence is measured in ticks, so it is noticed late: by a quarter of the idle time-out at most, and later if we
        were stopped ourselves."""
        if self._over:
            return None
        silence = self._silence
        if self.state == "start":
            due = silence.judged(silence.handshake_due(now_ms, self.limits.handshake_timeout_ms), now_ms)
            if due is None:
                self._give_up(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, "the peer did not open in time"))
            return due
        if self.state == "closing":
            due = silence.judged(silence.close_due(now_ms, self.limits.close_timeout_ms), now_ms)
            if due is None:
                self._end_of_connection(self._close_error)
            return due
        look_again = silence.peer_due(now_ms, self.idle_timeout_ms, self.reading_paused)
        if look_again is not None:
            look_again = silence.judged(look_again, now_ms)
            if look_again is None:
                self.broken = True
                error = AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, "local-idle-timeout expired")
                self.close(error)
                self._end_of_connection(error)  # the peer may not be there to answer
                return None
        wanted = self.remote_open.idle_time_out if self.remote_open is not None else None
        if beat_ms:
            wanted = min(wanted or 2 * beat_ms, 2 * beat_ms)
        if not wanted:
            return look_again
        output = self.output
        send_again, now = silence.ours_due(now_ms, int(wanted), output.sent)
        output.sent = False
        if now and not output.blocked:
            output.put(_EMPTY_FRAME)
        return send_again if look_again is None else min(look_again, send_again)

    # --- reading ------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Process what has been read. Never raises for what a peer does: the peer gets a close, end or detach."""
        self._silence.received = True
        self.bytes_in += len(data)
        self._receiving = True
        try:
            self._receive(data)
        finally:
            self._receiving = False

    def take_turns(self) -> None:
        """Ask `enough` after small slices from now on."""
        self._reader.slice_bytes = SMALL_SLICE_BYTES

    def hold(self, data: bytes) -> None:
        """Keep what has been read for `proceed`."""
        self._silence.received = True
        self._pending.append(data)
        self._pending_size += len(data)
        self._needed = 0
        self.backlog = True

    def proceed(self) -> None:
        """Continue with waiting input; as `receive` without new bytes."""
        if self.backlog:
            self.receive(b"")

    def _receive(self, data: bytes) -> None:
        self.backlog = False
        if self._pending:
            self._pending.append(data)
            self._pending_size += len(data)
            if self._pending_size < self._needed:
                return
            data = b"".join(self._pending)
            self._pending = []
        elif type(data) is not bytes:
            data = bytes(data)
        end = len(data)
        pos = 0
        handshake, reader = self._handshake, self._reader
        try:
            while pos < end and not self.finished:
                if not handshake.done:
                    pos, more = handshake.read(data, pos, self._authenticated)
                    self._open_if_due()
                    if not more:
                        break
                    continue
                pos = reader.read(data, pos, self.on_frame, self._is_open)
                if end - pos < 8 or _SIZE(data, pos)[0] > end - pos:
                    break  # no whole frame is left
                if self.enough is not None and self.enough():
                    self._pending = []
                    self._pending_size = 0
                    self.hold(data[pos:])
                    return
        except AmqpError as error:
            self._fail(error.with_traceback(None))  # the frames hold the connection, which holds the error
            return
        left = end - pos
        if left and not self.finished:
            self._pending = [data[pos:]]
            self._pending_size = left
            if handshake.waits:
                self._needed = 0
                if left > MIN_MAX_FRAME:
                    self._fail(AmqpError(errors.FRAMING_ERROR, "too much was sent before authentication has ended"))
                return
            size = _SIZE(data, pos)[0] if left >= 4 and not handshake.reads_header else 8
            # A stage looks at a size, and refuses one that was not agreed, once it has the 8 bytes of a frame's head.
            self._needed = size if left >= 8 else 8
            if size < 8:
                self._fail(AmqpError(errors.FRAMING_ERROR, f"a frame of {size} bytes"))

    @property
    def own_error(self) -> AmqpError | None:
        """The error for which this side has ended the connection; None if the peer has, or there was none."""
        error = self._close_error or self.transport_error
        return None if error is None or error.condition == errors.CONNECTION_FORCED else error

    def _fail(self, error: AmqpError) -> None:
        """The peer broke a rule of the connection."""
        self._pending = []
        self.backlog = False
        if self._handshake.done:
            if self._close_sent:
                self._end_of_connection(self._close_error)  # it cannot even close
            else:
                self.broken = True
                self.close(error)
        else:
            self._give_up(error)

    def _authenticated(self, user: str | None, ok: bool) -> None:
        """A server's SASL exchange has ended. May come long after the last frame."""
        self._handshake.authenticated(ok)
        if not ok:
            self._give_up(AmqpError(errors.UNAUTHORIZED_ACCESS, "authentication failed"))
            return
        self.user = user
        if self._pending and not self._receiving:
            self.receive(b"")  # what came while the authenticator was asking

    def _is_open(self) -> bool:
        return self.state == "open"

    def _open_if_due(self) -> None:
        if self._handshake.may_open and not self._open_sent:
            self._send_open()

    def on_frame(self, frame_type: int, channel: int, data: bytes, start: int, end: int) -> bool:
        """Handle one frame by the tables. Return True if sessions and links are unchanged and the connection has not
        ended, so that the reader's notes stay valid. Raises AmqpError, which closes the connection."""
        if self._close_sent:
            try:
                performative, _ = decode_performative(data, start, end)
            except AmqpError:
                return False
            if type(performative) is Close:
                self._on_close(channel, performative, b"", 0)
            return False
        if frame_type != 0:
            raise AmqpError(errors.FRAMING_ERROR, f"a frame of type {frame_type}")
        usual = usual_disposition(data, start, end)
        performative, body = (usual, end) if usual is not None else decode_performative(data, start, end)
        action = _DISPATCH.get(type(performative))
        if action is None:
            raise AmqpError(errors.NOT_ALLOWED, f"{type(performative).__name__} is not a frame of this layer")
        if self.remote_open is None and action is not Connection._on_open:
            raise AmqpError(errors.ILLEGAL_STATE, f"{type(performative).__name__} before open")
        if body != end and type(performative) is not Transfer:
            raise AmqpError(errors.DECODE_ERROR, f"{end - body} bytes behind {type(performative).__name__}")
        try:
            plain = action(self, channel, performative, data[body:end], end - start)
        except LinkFault as fault:
            error = AmqpError(fault.condition, fault.description)
            self.handler.on_fault(fault.link.session, fault.link, error)
            fault.link.detach(error)
            return False
        except SessionFault as fault:
            session = self._by_channel.get(channel)
            if session is not None:
                error = AmqpError(fault.condition, fault.description)
                self.handler.on_fault(session, None, error)
                session.end(error)
            return False
        if plain:
            self._reader.learn(performative, data, start, body)
        return plain and not self.finished

    # --- frames by kind -----------------------------------------------------------------------------------------------

    def _on_open(self, channel: int, remote: Open, payload: bytes, size: int) -> bool:
        if self.remote_open is not None:
            raise AmqpError(errors.ILLEGAL_STATE, "a second open")
        if int(remote.max_frame_size) < MIN_MAX_FRAME:
            raise AmqpError(errors.INVALID_FIELD, f"max-frame-size {remote.max_frame_size} is below {MIN_MAX_FRAME}")
        self.remote_open = remote
        self.output.max_frame = min(int(remote.max_frame_size), self.output.max_frame)
        self.output.agreed = True
        self.remote_channel_max = int(remote.channel_max)
        if self._open_sent:
            self.state = "open"
            self.handler.on_open(self)
            self.output.wake()  # without output too: the skin plans heartbeats and the peer's silence from now on
        else:
            self.handler.on_open(self)
            if not self._close_sent:
                self._send_open()
                self.state = "open"
        return False

    def _on_begin(self, channel: int, begin: Begin, payload: bytes, size: int) -> bool:
        if channel > self.channel_max:
            raise AmqpError(errors.FRAMING_ERROR, f"channel {channel} is beyond channel-max {self.channel_max}")
        if channel in self._by_channel:
            raise AmqpError(errors.ILLEGAL_STATE, f"channel {channel} has begun already")
        if begin.remote_channel is not None:
            session = self._local.get(int(begin.remote_channel))
            if session is None or session.remote_begin is not None:
                raise AmqpError(errors.ILLEGAL_STATE, f"begin for channel {begin.remote_channel}, which did not ask")
            self._by_channel[channel] = session
            session.take_begin(begin, channel)
        else:
            session = self._new_session()
            self._by_channel[channel] = session
            session.take_begin(begin, channel)
            session.begin()
        self._highest_channel = max(self._highest_channel, channel)
        if not session.ended:
            self.handler.on_begin(session)
        return False

    def _session_of(self, channel: int, performative: Any) -> Session | None:
        """The session of a frame that has come; None: it has been ended, and the frame is to be ignored.

        By us, and the peer did not know yet; or by the peer, and this answers what it had not read by then, a drain for
        example: some clients do so, and it must not cost their other sessions.
        """
        session = self._by_channel.get(channel)
        if session is None:
            if channel <= self._highest_channel and isinstance(performative, Flow | Disposition | Detach):
                return None
            raise AmqpError(
                errors.ILLEGAL_STATE, f"{type(performative).__name__} on channel {channel}, where no session has begun"
            )
        return None if session.end_sent else session

    def _on_end(self, channel: int, end_: End, payload: bytes, size: int) -> bool:
        self._session_of(channel, end_)
        self._by_channel[channel].take_end(end_)
        return False

    def _on_attach(self, channel: int, attach: Attach, payload: bytes, size: int) -> bool:
        session = self._session_of(channel, attach)
        if session is not None:
            session.take_attach(attach, size)
        return False

    def _on_detach(self, channel: int, detach: Detach, payload: bytes, size: int) -> bool:
        session = self._session_of(channel, detach)
        if session is not None:
            session.take_detach(detach)
        return False

    def _on_flow(self, channel: int, flow: Flow, payload: bytes, size: int) -> bool:
        session = self._session_of(channel, flow)
        if session is not None:
            session.take_flow(flow)
        return True

    def _on_transfer(self, channel: int, transfer: Transfer, payload: bytes, size: int) -> bool:
        session = self._session_of(channel, transfer)
        if session is not None:
            session.take_transfer(transfer, payload)
        return True

    def _on_disposition(self, channel: int, disposition: Disposition, payload: bytes, size: int) -> bool:
        session = self._session_of(channel, disposition)
        if session is not None:
            session.take_disposition(disposition)
        return True

    def _on_close(self, channel: int, close: Close, payload: bytes, size: int) -> bool:
        error = from_error(close.error)
        if not self._close_sent:
            self.broken = error is not None
            for session in self._local.values():
                session.flush()
            if not self._open_sent:
                self._send_open()
            self.output.put(_CLOSE)
            self._close_sent = self.output.shut = True
        self._end_of_connection(error or self._close_error)
        return False

    # --- inner --------------------------------------------------------------------------------------------------------

    def _send_open(self) -> None:
        self._open_sent = True
        self.open_fields.idle_time_out = self.idle_timeout_ms // 2 or None
        self.output.send(0, self.open_fields)

    def _new_session(self) -> Session:
        local = self._local
        highest = min(self.channel_max, self.remote_channel_max)
        channel = len(local)
        if channel in local or channel > highest:
            channel = next((c for c in range(highest + 1) if c not in local), -1)
        if channel < 0:
            raise AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, f"more than {highest + 1} sessions")
        session = self.session_type(self, channel)
        local[channel] = session
        return session

    def forget_session(self, session: Session) -> None:
        """Free the channels of a session that has ended."""
        if self._local.get(session.channel) is session:
            del self._local[session.channel]
        if self._by_channel.get(session.remote_channel) is session:
            del self._by_channel[session.remote_channel]

    def _give_up(self, error: AmqpError) -> None:
        """Before AMQP is spoken there is no close: the socket is closed."""
        self.transport_error = error
        self._end_of_connection(error)

    def _end_of_connection(self, error: AmqpError | None) -> None:
        """Over: sessions, links and handler are notified, once. Does not raise."""
        if self._over:
            return
        self._over = self.output.shut = True
        self._pending = []
        self.backlog = False
        self.output.due = {}
        self.state = "closed"
        self.finished = True
        for session in self.sessions():
            session.stop_sending()
        for session in self.sessions():
            session.finish(error, self.broken)
        self.wake()
        self.handler.on_close(self, error)


_DISPATCH: dict[type, Callable[[Connection, int, Any, bytes, int], bool]] = {
    Transfer: Connection._on_transfer,
    Disposition: Connection._on_disposition,
    Flow: Connection._on_flow,
    Open: Connection._on_open,
    Begin: Connection._on_begin,
    Attach: Connection._on_attach,
    Detach: Connection._on_detach,
    End: Connection._on_end,
    Close: Connection._on_close,
}
