"""What the engine's tests share: two connections back to back, a handler that writes down what happens, raw frames."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.session import Session

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
_HEADER = Struct(">IBBH")


class Recorder(Handler):
    """Accepts what the peer attaches, settles what comes (`outcome` None: keeps it) and writes everything down."""

    def __init__(self, window: int = 100, outcome: Any = ACCEPTED) -> None:
        self.window = window
        self.outcome = outcome
        self.events: list[tuple[Any, ...]] = []
        self.received: list[bytes] = []
        self.outcomes: list[tuple[Any, Any, bool]] = []
        self.links: dict[str, Link] = {}
        self.sessions: list[Session] = []
        self.attach: Callable[[Link], None] = lambda link: link.accept()

    def names(self) -> list[str]:
        return [event[0] for event in self.events]

    def on_open(self, c: Connection) -> None:
        self.events.append(("open",))

    def on_begin(self, s: Session) -> None:
        self.events.append(("begin",))
        self.sessions.append(s)

    def on_attach(self, link: Link) -> None:
        self.events.append(("attach", link.name))
        self.links[link.name] = link
        self.attach(link)
        if isinstance(link, Receiver) and link.attached and self.window:
            link.credit_window = self.window

    def on_attached(self, link: Link) -> None:
        self.events.append(("attached", link.name))

    def on_flow(self, link: Sender) -> None:
        self.events.append(("flow", link.name, link.granted))
        super().on_flow(link)

    def on_drained(self, link: Receiver) -> None:
        self.events.append(("drained", link.name))

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.events.append(("detach", link.name, error and str(error.condition), closed))

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        self.events.append(("end", error and str(error.condition)))

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.events.append(("close", error and str(error.condition)))

    def on_writable(self, c: Connection) -> None:
        self.events.append(("writable",))
        super().on_writable(c)

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.events.append(("delivery", link.name, settled, payload, message_format))
        self.received.append(payload)
        if not settled and self.outcome is not None:
            link.session.settle(delivery_id, self.outcome)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        self.events.append(("partial", delivery.take(), delivery.done, delivery.aborted))

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.outcomes += [(token, state, settled) for token in tokens]

    def on_settled(self, link: Receiver, delivery_ids: Any) -> None:
        self.events.append(("settled", list(delivery_ids)))


class Pair:
    """A client and a server back to back. `split` cuts every transfer of bytes into pieces of that size."""

    def __init__(
        self,
        client: Recorder | None = None,
        server: Recorder | None = None,
        *,
        split: int = 0,
        opened: bool = True,
        client_fields: dict[str, Any] | None = None,
        server_fields: dict[str, Any] | None = None,
    ) -> None:
        self.client = client or Recorder()
        self.server = server or Recorder()
        self.split = split
        self.c = Connection(self.client, container_id="client", is_client=True, **(client_fields or {}))
        self.s = Connection(self.server, container_id="server", is_client=False, **(server_fields or {}))
        self.to_server = b""
        self.to_client = b""
        if opened:
            self.c.open()
            self.run()
            assert self.c.state == self.s.state == "open"

    def run(self) -> None:
        """Carry bytes until both are silent."""
        for _ in range(100_000):
            out, back = self.c.take_output(), self.s.take_output()
            if not out and not back:
                return
            self.to_server += out
            self.to_client += back
            self.feed(self.s, out)
            self.feed(self.c, back)
        raise AssertionError("the two never fall silent")

    def feed(self, connection: Connection, data: bytes) -> None:
        step = self.split or max(1, len(data))
        for start in range(0, len(data), step):
            connection.receive(data[start : start + step])

    def sender(self, name: str = "s", **fields: Any) -> Sender:
        session = self.c.sessions()[0] if self.c.sessions() else self.c.begin()
        link = session.attach_sender(name, Source(address="here"), Target(address="there"), **fields)
        self.run()
        return link

    def receiver(self, name: str = "r", window: int = 100, **fields: Any) -> Receiver:
        session = self.c.sessions()[0] if self.c.sessions() else self.c.begin()
        link = session.attach_receiver(name, Source(address="there"), Target(address="here"), **fields)
        link.credit_window = window
        self.run()
        return link

    def remote(self, name: str) -> Any:
        """The server's end of a link of the client."""
        return self.server.links[name]


def frame(channel: int, performative: Any, payload: bytes = b"", frame_type: int = 0) -> bytes:
    body = encode_performative(performative) + payload if performative is not None else payload
    return _HEADER.pack(len(body) + 8, 2, frame_type, channel) + body


def frames(data: bytes) -> list[tuple[int, Any, bytes]]:
    """(channel, performative, payload) of each frame; protocol headers are left out, heartbeats are None."""
    found: list[tuple[int, Any, bytes]] = []
    pos = 0
    while pos < len(data):
        if data[pos : pos + 4] == b"AMQP":
            pos += 8
            continue
        size, doff, _, channel = _HEADER.unpack_from(data, pos)
        start, end = pos + 4 * doff, pos + size
        if start == end:
            found.append((channel, None, b""))
        else:
            performative, body = decode_performative(data, start, end)
            found.append((channel, performative, data[body:end]))
        pos = end
    return found


class Raw:
    """A server under test and a peer made of raw frames. `stage`: "start", "open", "begun" or "attached"; the latter
    has handle 0, on which the server receives (credit 10), and handle 1, on which it sends (credit 10)."""

    def __init__(self, stage: str = "attached", handler: Recorder | None = None, **fields: Any) -> None:
        self.handler = handler or Recorder(window=10)
        self.connection = Connection(self.handler, container_id="server", is_client=False, **fields)
        stages = ["start", "open", "begun", "attached"]
        reached = stages.index(stage)
        if reached >= 1:
            self.feed(AMQP + frame(0, Open(container_id="raw", max_frame_size=65536)))
        if reached >= 2:
            self.feed(frame(0, Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)))
        if reached >= 3:
            self.feed(frame(0, attach("in", 0, sending=True)) + frame(0, attach("out", 1, sending=False)))
            self.feed(
                frame(
                    0,
                    Flow(
                        next_incoming_id=0,
                        incoming_window=1000,
                        next_outgoing_id=0,
                        outgoing_window=1000,
                        handle=1,
                        delivery_count=0,
                        link_credit=10,
                    ),
                )
            )

    def feed(self, data: bytes) -> list[Any]:
        """The performatives that answer."""
        self.connection.receive(data)
        return [performative for _, performative, _ in frames(self.connection.take_output())]


def attach(name: str, handle: int, *, sending: bool, **fields: Any) -> Attach:
    """The attach of a peer that sends (or receives)."""
    return Attach(
        name=name,
        handle=handle,
        role=not sending,
        source=fields.pop("source", Source(address="a")),
        target=fields.pop("target", Target(address="a")),
        initial_delivery_count=0 if sending else None,
        **fields,
    )


def condition_of(performative: Any) -> str:
    """The condition in a close, end or detach; "" where there is none."""
    return "" if performative.error is None else str(performative.error.condition)


def init(mechanism: str, response: bytes | None = None, hostname: str | None = None) -> bytes:
    """A sasl-init frame."""
    sasl_init = SaslInit(mechanism=Symbol(mechanism), initial_response=response, hostname=hostname)
    return frame(0, sasl_init, frame_type=1)


def by_tables(raw: Raw) -> list[int]:
    """Counts the frames that take the long way from now on."""
    counted: list[int] = []
    slowly = raw.connection.on_frame

    def count(*arguments: Any) -> bool:
        counted.append(1)
        return slowly(*arguments)

    raw.connection.on_frame = count  # type: ignore[method-assign, assignment]  # watched by the test
    return counted
