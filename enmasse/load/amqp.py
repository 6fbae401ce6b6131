"""AMQP load that is not the limit. The engine opens the connection, with any login and TLS; from then on frames are
made and counted in bulk.

One process is one end of one link: `python -m enmasse.load.amqp send|receive …` prints one JSON object when it has
ended. `enmasse bench` uses the same two ends.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Close,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link
from enmasse.amqp.sasl.layer import AnonymousClient, PlainClient, SaslClient
from enmasse.amqp.session import Session
from enmasse.load.fixed_rows import alike, column, fill, numbers, packed
from enmasse.load.load_process import barrier, latencies, parser, ready, run

FLOW, TRANSFER, DISPOSITION, DETACH, CLOSE = 0x13, 0x14, 0x15, 0x16, 0x18
EMPTY_FRAME = b"\0\0\0\x08\x02\0\0\0"
WINDOW = 2**31 - 1
BURST, BURST_BYTES = 512, 1 << 20
"""Messages, and bytes, that are made at once."""
IN_BULK = 16 << 10
"""Bytes of a payload whose transfers are counted in bulk; larger ones may take several frames."""
READ = 1 << 18
CONNECT_SECONDS = 10.0
MARK_SIZE, STAMP_SIZE = 16, 8


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work of both ends. `size`: bytes of a body, which begins with `mark`, if there is one, and the time of sending
    (ns of the monotonic clock, which processes of a machine share). `rate`: messages a second, 0: as many as there is
    credit for. `window`: unsettled messages of the sender at most. `patience`: seconds without any progress."""

    address: str
    size: int = 100
    mark: bytes = b""
    rate: float = 0.0
    credit: int = 1000
    window: int = 1000
    presettled: bool = False
    durable: bool = False
    patience: float = 60.0


class Foreign(Exception):
    """The address holds messages of another sender."""


class End(Handler):
    """One connection with one session and one link, opened by the engine and then driven by hand."""

    receives = False

    def __init__(self, work: Work, container: str, hostname: str, sasl: SaslClient | None) -> None:
        self.work = work
        self.connection = Connection(self, container_id=container, is_client=True, hostname=hostname, sasl=sasl)
        self.next_incoming = 0
        self.check: Callable[[Connection], None] = lambda connection: None
        """Called before the link is attached; may raise AmqpError."""
        self._attached = False
        self._failure: AmqpError | None = None
        self._buffer = b""
        self._pending = memoryview(b"")

    def open(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Connect, log in and attach. Raises AmqpError and OSError."""
        made = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        self._socket = made if context is None else context.wrap_socket(made, server_hostname=host)
        self.connection.open()
        try:
            while not self._attached and self._failure is None:
                self._socket.sendall(self.connection.take_output())
                answer = self._read_frame()
                self.connection.receive(answer)
        except TimeoutError:
            raise TimeoutError(f"no answer within {CONNECT_SECONDS:g} s") from None
        if self._failure is None:
            self._socket.sendall(self.connection.take_output())
            opened, attach = self.connection.remote_open, decode_performative(answer, 8, len(answer))[0]
            assert opened is not None and isinstance(attach, Attach)
            self._initial = int(attach.initial_delivery_count or 0)
            self._beat = (opened.idle_time_out or 0) / 2000
            self._wrote = time.monotonic()
            self.max_frame = min(int(opened.max_frame_size), 1 << 20)
            self._socket.setblocking(False)
        else:
            self._socket.close()
            raise self._failure

    def close(self) -> None:
        """Send what is still to be sent and a close, and end the connection."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.sendall(bytes(self._pending) + frame(encode_performative(Close())))
        self._socket.close()

    def _may_attach(self, connection: Connection) -> bool:
        try:
            self.check(connection)
        except AmqpError as error:
            self._failure = error
        return self._failure is None

    # the engine's callbacks, until the link is attached

    def on_begin(self, s: Session) -> None:
        """As Handler."""
        assert s.remote_begin is not None
        self.next_incoming = int(s.remote_begin.next_outgoing_id)
        self.remote_window = int(s.remote_begin.incoming_window)

    def on_attached(self, link: Link) -> None:
        """As Handler."""
        self._attached = (link.remote_target if link.is_sender else link.remote_source) is not None

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """As Handler."""
        self._fail(error, "the link was closed")

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """As Handler."""
        self._fail(error or c.transport_error, "the connection was closed")

    def _fail(self, error: AmqpError | None, text: str) -> None:
        self._failure = self._failure or error or AmqpError(errors.CONNECTION_FORCED, text)

    def _read_frame(self) -> bytes:
        """Read one frame or protocol header, so that nothing of what follows the attach goes to the engine."""
        head = self._read(8)
        return head if head.startswith(b"AMQP") else head + self._read(min(int.from_bytes(head[:4]), 1 << 20) - 8)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            found = self._socket.recv(size - len(data))
            if not found:
                self.connection.transport_closed(None)
                raise self._failure or AmqpError(errors.CONNECTION_FORCED, "the connection was closed")
            data += found
        return data

    # by hand

    def _write(self, data: bytes) -> None:
        self._pending = memoryview(bytes(self._pending) + data) if self._pending else memoryview(data)
        self._flush()

    def _flush(self) -> None:
        while self._pending:
            try:
                self._pending = self._pending[self._socket.send(self._pending) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            self._wrote = time.monotonic()

    def _exchange(self, seconds: float | None) -> bool:
        """Write what is pending and read what has come, waiting for either at most `seconds` (None: as long as the peer
        may be silent). Return whether anything was read. Raises AmqpError if the peer has closed the connection."""
        if self._beat:
            quiet = time.monotonic() - self._wrote
            if quiet >= self._beat and not self._pending:
                self._write(EMPTY_FRAME)
                quiet = 0.0
            seconds = min(self._beat - quiet if seconds is None else seconds, max(0.0, self._beat - quiet))
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            seconds = 0.0
            readable = True
        else:
            sockets = [self._socket]
            readable = bool(select.select(sockets, sockets if self._pending else [], [], seconds)[0])
        self._flush()
        if not readable:
            return False
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            raise AmqpError(errors.CONNECTION_FORCED, "the connection was closed")
        self._buffer = self._buffer + data if self._buffer else data
        return True

    def _flow(self, delivery_count: int, credit: int, *, drain: bool = False) -> bytes:
        return frame(
            encode_performative(
                Flow(
                    next_incoming_id=self.next_incoming & 0xFFFFFFFF,
                    incoming_window=WINDOW,
                    next_outgoing_id=0,
                    outgoing_window=WINDOW,
                    handle=0,
                    delivery_count=delivery_count & 0xFFFFFFFF,
                    link_credit=credit,
                    drain=drain,
                )
            )
        )

    @staticmethod
    def _check(performative: Any, code: int) -> None:
        """Raise the AmqpError of a detach, end or close."""
        if DETACH <= code <= CLOSE:
            if performative.error is not None:
                raise performative.error.exception()
            raise AmqpError(errors.CONNECTION_FORCED, "the link was closed")


class SendingEnd(End):
    """Sends `count` messages, or for `seconds`."""

    def on_open(self, c: Connection) -> None:
        """Attach the sender."""
        if not self._may_attach(c):
            return
        work = self.work
        source, target = Source(address=""), Target(address=work.address)
        c.begin().attach_sender(None, source, target, snd_settle_mode=1 if work.presettled else 0)

    def run(
        self, *, count: int | None = None, seconds: float | None = None, begin: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Send, and wait for the outcomes. `begin` is called with the first credit. Returns counts, and the seconds
        from then to the last outcome, or with `seconds` of the sending. Raises AmqpError."""
        work = self.work
        row, places, frames = template(work, self.max_frame)
        self.sent = self._transfers = self.settled = self.accepted = self._drained = 0
        self._limit, self._window_limit = 0, self.remote_window
        interval = 1e9 / work.rate if work.rate else 0.0
        start = stop = took = 0
        moved = time.monotonic()
        while True:
            now = time.monotonic_ns()
            if not start and self._limit > self.sent:
                begin()
                start = now = time.monotonic_ns()
                stop = start + int(seconds * 1e9) if seconds is not None else 0
            if stop and now >= stop and not took:
                took, count = now - start, self.sent
            if start and count is not None and self.settled >= count:
                break
            left = WINDOW if count is None else count - self.sent
            room = min(
                self._limit - self._drained - self.sent,
                left,
                work.window - (self.sent - self.settled),
                BURST,
                max(1, BURST_BYTES // len(row)),
                (self._window_limit - self._transfers) // frames,
            )
            due: list[int] = []
            if interval and start:
                room = min(room, int((now - start) / interval) + 1 - self.sent)
                due = [int(start + interval * number) for number in range(self.sent, self.sent + max(0, room))]
            if start and room > 0 and not self._pending:
                self._write(burst(row, places, self.sent, room, due))
                self.sent += room
                self._transfers += room * frames
                if work.presettled:
                    self.settled += room
                    self.accepted += room
                moved = time.monotonic()
            wait = moved + work.patience - time.monotonic()
            if wait <= 0:
                break
            if interval and start and left > 0:
                wait = min(wait, max(0.0, (start + interval * self.sent - time.monotonic_ns()) / 1e9))
            if stop and not took:
                wait = min(wait, max(0.0, (stop - time.monotonic_ns()) / 1e9))
            if start and room > 0 and not self._pending and not interval and left > room:
                wait = 0.0
            if self._exchange(wait) and self._take():
                moved = time.monotonic()
        while self._pending and self._exchange(work.patience):
            pass
        ended = time.monotonic_ns()
        return {
            "sent": self.sent,
            "settled": self.settled,
            "accepted": self.accepted,
            "seconds": (took or ended - (start or ended)) / 1e9,
            "cpu": time.process_time(),
        }

    def _take(self) -> bool:
        """Process the frames that have come; return whether there was an outcome or credit."""
        buffer, at, moved = self._buffer, 0, False
        while len(buffer) - at >= 8:
            size = int.from_bytes(buffer[at : at + 4])
            if len(buffer) - at < size:
                break
            code = buffer[at + 10] if size > 10 else 0
            if code in (FLOW, DISPOSITION) or DETACH <= code <= CLOSE:
                found = decode_performative(buffer, at + 8, at + size)[0]
                self._check(found, code)
                moved = self._flows(found) if code == FLOW else self._decided(found)
            at += size
        self._buffer = buffer[at:]
        return moved

    def _flows(self, flow: Any) -> bool:
        self._window_limit = (flow.next_incoming_id or 0) + flow.incoming_window
        if flow.handle is not None:
            self._limit = (flow.delivery_count or 0) + flow.link_credit
            if flow.drain:
                self._drained = self._limit - self.sent
                self._write(self._flow(self._limit, 0, drain=True))
        return True

    def _decided(self, disposition: Any) -> bool:
        first, last = disposition.first, disposition.first if disposition.last is None else disposition.last
        if not disposition.settled:
            if disposition.state is None:
                return False
            settled = Disposition(role=False, first=first, last=last, settled=True, state=disposition.state)
            self._write(frame(encode_performative(settled)))
        self.settled += last - first + 1
        if type(disposition.state) is type(ACCEPTED):
            self.accepted += last - first + 1
        return True


class ReceivingEnd(End):
    """Accepts and counts messages. `waits`: nanoseconds from sending to receiving, while `timing`."""

    receives = True

    def __init__(self, work: Work, container: str, hostname: str, sasl: SaslClient | None) -> None:
        super().__init__(work, container, hostname, sasl)
        self._got = self._granted = 0
        self._continued = False
        self._delivery = 0
        self.restart(timing=False)

    def on_open(self, c: Connection) -> None:
        """Attach the receiver."""
        if not self._may_attach(c):
            return
        work = self.work
        source, target = Source(address=work.address), Target(address="")
        c.begin().attach_receiver(None, source, target, snd_settle_mode=1 if work.presettled else 0)

    def restart(self, *, timing: bool) -> None:
        """Count from zero."""
        self.received = self.first = self.last = 0
        self.timing, self.waits = timing, list[int]()

    def grant(self) -> None:
        """Let messages come."""
        self._write(self._flow(self._initial, self.work.credit))

    def take(self, seconds: float) -> bool:
        """Process what comes within `seconds`; return whether there was a message. Raises AmqpError and Foreign."""
        if not self._exchange(seconds):
            return False
        before, out = self._got, b""
        while found := self._next():
            first, many, settled, own = found
            if not settled:
                out += disposition(first, first + many - 1, accepted=own)
            if not own:
                self._write(out)
                raise Foreign
        fresh = self._got - before
        if self._got - self._granted >= max(1, self.work.credit // 2):
            self._granted = self._got
            out += self._flow(self._initial + self._got, self.work.credit)
        if out:
            self._write(out)
        if fresh:
            self.last = time.monotonic_ns()
            self.first = self.first or self.last
            self.received += fresh
        return fresh > 0

    def _next(self) -> tuple[int, int, bool, bool] | None:
        """Take the frames of the next messages: id of the first, their number, whether they are settled, and whether
        they are of this run. None: no whole message is left."""
        work = self.work
        while (size := int.from_bytes(self._buffer[:4])) >= 8 and len(self._buffer) >= size:
            buffer = self._buffer
            code = buffer[10] if size > 10 else 0
            if code != TRANSFER:
                if DETACH <= code <= CLOSE:
                    self._check(decode_performative(buffer, 8, size)[0], code)
                self._buffer = buffer[size:]
                continue
            performative, body = decode_performative(buffer, 8, size)
            assert isinstance(performative, Transfer)
            many = 1
            if work.size <= IN_BULK and not performative.more and not self._continued:
                many = alike(buffer, size, len(buffer) // size, (0, 1, 2, 3, 10))
            used = many * size
            self._buffer = buffer[used:]
            self.next_incoming += many
            if performative.delivery_id is not None:
                self._delivery = performative.delivery_id
            own = not work.mark or self._continued or buffer.count(work.mark, 0, used) >= many
            if self.timing and not self._continued:
                at = buffer.find(work.mark, body, used) if performative.more else size - work.size
                now = time.monotonic_ns()
                stamps = column(buffer, size, many, at + len(work.mark), STAMP_SIZE)
                self.waits += [now - stamp for stamp in numbers(stamps, STAMP_SIZE)]
            self._continued = bool(performative.more) and own
            if not self._continued:
                self._got += many
                return self._delivery, many, bool(performative.settled), own
        return None


def frame(body: bytes, channel: int = 0) -> bytes:
    """One AMQP frame (2.3)."""
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def disposition(first: int, last: int, *, accepted: bool = True) -> bytes:
    """Settle a range of deliveries as their receiver: accepted, or released."""
    state = ACCEPTED if accepted else RELEASED
    return frame(
        encode_performative(
            Disposition(role=True, first=first & 0xFFFFFFFF, last=last & 0xFFFFFFFF, settled=True, state=state)
        )
    )


def template(work: Work, max_frame: int) -> tuple[bytes, tuple[int, int, int], int]:
    """One message: its frames, with a delivery-id and a tag of 4 bytes; the places of id, tag and time of sending; and
    the number of frames."""
    filling = work.size - len(work.mark) - STAMP_SIZE
    if filling < 0:
        raise ValueError(f"a body has {len(work.mark) + STAMP_SIZE} bytes at least")
    head = b"\x00\x53\x70\xc0\x02\x01\x41" if work.durable else b""  # header: durable
    data = b"\x00\x53\x75\xb0" + struct.pack(">I", work.size) + work.mark + bytes(STAMP_SIZE + filling)
    settled, payload = (b"\x41" if work.presettled else b"\x42"), head + data
    # handle, delivery-id, tag, format, settled, more
    fields = b"\x43\x70" + bytes(4) + b"\xa0\x04" + bytes(4) + b"\x43" + settled
    several = len(payload) + len(fields) + 16 > max_frame
    if not several:
        rows = [transfer(5, fields) + payload]
    else:
        room = max_frame - 48
        parts = [payload[at : at + room] for at in range(0, len(payload), room)]
        rows = [transfer(6, fields + b"\x41") + parts[0]]
        rows += [transfer(6, b"\x43\x40\x40\x40\x40\x41") + part for part in parts[1:-1]]
        rows.append(transfer(6, b"\x43\x40\x40\x40\x40\x42") + parts[-1])
    stamp = 8 + len(transfer(5, fields)) + several + len(head) + 8 + len(work.mark)
    return b"".join(map(frame, rows)), (16, 22, stamp), len(rows)


def transfer(count: int, fields: bytes) -> bytes:
    """Return a transfer of `count` fields."""
    return b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, count]) + fields


def burst(row: bytes, places: tuple[int, int, int], first: int, count: int, due: list[int]) -> bytes:
    """Return `count` messages with ids from `first`. `due`: the time at which each was to be sent (ns); empty: now."""
    rows, size = bytearray(row * count), len(row)
    ids = packed(range(first, first + count), 4)
    fill(rows, size, places[0], ids, 4)
    fill(rows, size, places[1], ids, 4)
    fill(rows, size, places[2], packed(due, 8) if due else packed([time.monotonic_ns()], 8) * count, 8)
    return bytes(rows)


def _made(kind: type[Any], args: argparse.Namespace) -> Any:
    work = Work(
        address=args.address,
        size=args.size,
        rate=args.rate,
        credit=args.credit,
        window=args.window,
        presettled=args.presettled,
        durable=args.durable,
        patience=args.timeout,
    )
    sasl = None
    if args.user:
        sasl = SaslClient([PlainClient(args.user, args.password)], args.host)
    elif args.sasl:
        sasl = SaslClient([AnonymousClient()], args.host)
    end = kind(work, f"load-{args.what}-{args.tag}", args.host, sasl)
    end.open(args.host, args.port)
    return end


def send(args: argparse.Namespace) -> dict[str, Any]:
    """Send `--count` messages as credit and window allow. Raises AmqpError."""
    end: SendingEnd = _made(SendingEnd, args)
    found = end.run(count=args.count, begin=lambda: barrier(args, "ready"))
    barrier(args, "done")
    end.close()
    return found


def receive(args: argparse.Namespace) -> dict[str, Any]:
    """Take and accept `--count` messages; the time runs from the first to the last. Raises AmqpError, TimeoutError."""
    end: ReceivingEnd = _made(ReceivingEnd, args)
    end.restart(timing=args.latency)
    end.grant()
    ready()
    moved = time.monotonic()
    while end.received < args.count:
        if end.take(1.0):
            moved = time.monotonic()
        elif time.monotonic() - moved > args.timeout:
            raise TimeoutError(f"{end.received} of {args.count} messages, then none for {args.timeout:g} s")
    seconds = (end.last - end.first) / 1e9
    result = {"received": end.received, "seconds": seconds, "cpu": time.process_time(), **latencies(end.waits)}
    end.close()
    return result


def main() -> None:
    """One end of a link."""
    options = parser(__doc__, ["send", "receive"])
    options.add_argument("--address", required=True)
    options.add_argument("--credit", type=int, default=1000)
    options.add_argument("--window", type=int, default=1000, help="most unsettled sends")
    options.add_argument("--presettled", action="store_true")
    options.add_argument("--durable", action="store_true")
    options.add_argument("--sasl", action="store_true", help="ANONYMOUS, or PLAIN if there is a user")
    options.add_argument("--user", default="")
    options.add_argument("--password", default="")
    options.add_argument("--tag", default="0")
    run(options, {"send": send, "receive": receive})


if __name__ == "__main__":
    main()
