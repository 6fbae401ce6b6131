"""Sessions of the AMQP engine that report each traced delivery: its arrival or leaving, and its outcome.

The engine's own classes stay without a branch: a connection that is traced gets a `TracedSession` in place of a
`Session`, which makes a `TracedReceiver` and a `TracedSender` of each link. An arrival ends with the disposition that
is sent for it; what was sent ends with the peer's outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.connection import Connection
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.endpoint import Link
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.receiver import OnDelivery, OnRun, Partial
from enmasse.amqp.session import Session
from enmasse.tracing.propagation import look, look_at_all

SPARE: Final = 1000
"""Deliveries beyond the unsettled ones that a session may have in mind, until it looks which are settled."""


class Traces(Protocol):
    """Receiver of the reports of sessions (enmasse/tracing/spans.py)."""

    arriving: str
    """The operation of deliveries that arrive, such as `send`."""
    leaving: str

    def chosen(self) -> bool:
        """Return True if a trace begins with the next message that has no context."""

    def pass_over(self, messages: int) -> bool:
        """Count `messages` and return True if `chosen` would be False for each; else count none and return False."""

    def begin(self, operation: str, link: Link, payload: bytes) -> Any:
        """Return the span of a delivery; None: the message is not traced."""

    def begin_trace(self, link: Link, payload: bytes) -> tuple[Any, bytes]:
        """Return the first span of a trace, or None, and the message, which then has its context."""

    def end(self, span: Any, state: Any) -> None:
        """End a span with an outcome; None: the link was lost before there was one."""


class TracedReceiver(Receiver):
    """Reports what arrives, before it is given to `on_delivery` and `on_run`."""

    __slots__ = ("_reporting", "_reporting_run")
    session: TracedSession

    @property
    def on_delivery(self) -> OnDelivery:
        """As Receiver.on_delivery, with the report."""
        return self._reporting

    @on_delivery.setter
    def on_delivery(self, deliver: OnDelivery) -> None:
        def report(
            link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
        ) -> None:
            if not message_format:
                payload = link.session.arrived(link, delivery_id, settled, payload)  # type: ignore[attr-defined]  # a TracedSession
            deliver(link, delivery_id, settled, payload, tag, message_format)

        self._reporting: OnDelivery = report

    @property
    def on_run(self) -> OnRun | None:
        """As Receiver.on_run, with the report."""
        return self._reporting_run

    @on_run.setter
    def on_run(self, run: OnRun | None) -> None:
        def report(link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
            session: TracedSession = link.session  # type: ignore[assignment]  # made by it
            if look_at_all(payloads) or not session.traces.pass_over(len(payloads)):
                for delivery_id, payload in enumerate(payloads, first):
                    payloads[delivery_id - first] = session.arrived(link, delivery_id, settled, payload)
            run(link, first, payloads, settled)  # type: ignore[misc]  # not None: see below

        self._reporting_run: OnRun | None = None if run is None else report

    def stream(self, partial: Partial, payload: bytes, more: bool) -> None:
        """As Receiver.stream. The context is expected in the first piece; no trace begins with a large message."""
        if payload and not partial.size and look(payload):
            self.session.report(self, partial.delivery_id, partial.settled, payload)
        super().stream(partial, payload, more)

    def lose(self, tokens: list[Any] | None) -> None:
        """As Receiver.lose."""
        super().lose(tokens)
        self.session.forget(self)


class TracedSender(Sender):
    """Reports what leaves, and its outcome."""

    __slots__ = ("_spans",)
    session: TracedSession

    def __init__(self, *fields: Any) -> None:
        super().__init__(*fields)
        self._spans: dict[int, tuple[Any, Any]] = {}  # token and span by id(token), which the token keeps its own

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any] | None, mark: bytes = b"") -> int:
        """As Sender.send_run."""
        sent = super().send_run(payloads, tokens, mark)
        if look_at_all(payloads):
            for n in range(sent):
                if look(payloads[n]):
                    self._begin(payloads[n], None if tokens is None else tokens[n], tokens is None)
        return sent

    def pass_on(
        self, payload: bytes, token: Any, tag: bytes | None = None, settled: bool = False, state: Any = None
    ) -> bool:
        """As Sender.pass_on."""
        if not super().pass_on(payload, token, tag, settled, state):
            return False
        if look(payload):
            self._begin(payload, token, settled)
        return True

    def send_frame(self, outgoing: Outgoing) -> bool:
        """As Sender.send_frame."""
        first = bytes(outgoing.head) if outgoing.delivery_id < 0 else b""
        last = super().send_frame(outgoing)
        if look(first):
            self._begin(first, outgoing.token, outgoing.settled)
        return last

    def _begin(self, payload: bytes, token: Any, settled: bool) -> None:
        traces = self.session.traces
        span = traces.begin(traces.leaving, self, payload)
        if span is not None:
            if settled:
                traces.end(span, ACCEPTED)
            else:
                self._end(token, None)  # a token that is used twice
                self._spans[id(token)] = (token, span)

    def _end(self, token: Any, state: Any) -> None:
        found = self._spans.pop(id(token), None)
        if found is not None:
            self.session.traces.end(found[1], state)

    def outcomes(self, tokens: list[Any], state: Any, settled: bool, ids: Sequence[int] = ()) -> None:
        """As Sender.outcomes."""
        if self._spans:
            for token in tokens:
                self._end(token, state)
        super().outcomes(tokens, state, settled, ids)

    def settle_ids(self, delivery_ids: Iterable[int]) -> None:
        """As Sender.settle_ids: no outcome will come."""
        delivery_ids = list(delivery_ids)
        if self._spans:
            unsettled = self.session.outgoing.unsettled
            for delivery_id in delivery_ids:
                if delivery_id in unsettled:
                    self._end(unsettled[delivery_id][1], None)
        super().settle_ids(delivery_ids)

    def lose(self, tokens: list[Any] | None) -> None:
        """As Sender.lose."""
        super().lose(tokens)
        spans, self._spans = self._spans, {}
        for _, span in spans.values():
            self.session.traces.end(span, None)


class TracedSession(Session):
    """A session whose traced deliveries are reported to `traces`."""

    sender_type = TracedSender
    receiver_type = TracedReceiver

    def __init__(self, connection: Connection, channel: int, traces: Traces) -> None:
        super().__init__(connection, channel)
        self.traces = traces
        self._arrived: dict[int, tuple[Receiver, Any]] = {}  # by delivery-id: spans of what we have not settled

    def arrived(self, link: Receiver, delivery_id: int, settled: bool, payload: bytes) -> bytes:
        """Report a whole delivery; return its message, with a context if a trace begins here.
        The router may report one again, after another link had no credit for it."""
        if delivery_id in self._arrived:
            return payload
        found = look(payload)
        if found:
            self.report(link, delivery_id, settled, payload)
        elif found is None and self.traces.chosen():
            span, payload = self.traces.begin_trace(link, payload)
            self._add(link, delivery_id, settled, span)
        return payload

    def report(self, link: Receiver, delivery_id: int, settled: bool, payload: bytes) -> None:
        """Begin the span of a delivery that may have a context."""
        self._add(link, delivery_id, settled, self.traces.begin(self.traces.arriving, link, payload))

    def _add(self, link: Receiver, delivery_id: int, settled: bool, span: Any) -> None:
        if span is None:
            return
        if settled:
            self.traces.end(span, ACCEPTED)
            return
        self._arrived[delivery_id] = (link, span)
        unsettled = self.incoming.unsettled
        if len(self._arrived) > len(unsettled) + SPARE:  # settled by the sender, or aborted
            for each in [each for each in self._arrived if each not in unsettled]:
                self._end(each, None)

    def _end(self, delivery_id: int, state: Any) -> None:
        found = self._arrived.pop(delivery_id, None)
        if found is not None:
            self.traces.end(found[1], state)

    def forget(self, link: Receiver) -> None:
        """A link has ended: so do the spans of its deliveries."""
        for delivery_id in [each for each, (owner, _) in self._arrived.items() if owner is link]:
            self._end(delivery_id, None)

    def flush(self) -> None:
        """As Session.flush: the dispositions that leave end their spans."""
        if self._arrived:
            incoming = self.incoming
            for delivery_id in incoming.accepted:
                self._end(delivery_id, ACCEPTED)
            for delivery_id, state in (*incoming.updates.items(), *incoming.others):
                self._end(delivery_id, state)
        super().flush()
