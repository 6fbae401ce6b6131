"""Sessions that report to traces behave as the engine's own, and each span that begins ends once."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.endpoint import SECOND, Link
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.tracing.propagation import carrier
from enmasse.tracing.traced_links import SPARE, TracedSession
from tests.amqp.engine_kit import Pair, Recorder

CONTEXT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
UNSAMPLED = {"traceparent": CONTEXT["traceparent"][:-1] + "0"}
MESSAGES = [
    Message(body="x", application_properties=properties).encode()
    for properties in ({}, CONTEXT, UNSAMPLED, {"traceparent": 5})
]
LARGE = [Message(body=b"x" * 200_000, application_properties=properties).encode() for properties in ({}, CONTEXT)]
STATES = (ACCEPTED, RELEASED, Modified(delivery_failed=True), Rejected())


class Spans:
    """Traces of which each span is a number. `every`: a trace begins with each message that has no context."""

    arriving, leaving = "send", "deliver"

    def __init__(self, *, every: bool = False) -> None:
        self.begun: list[str] = []
        self.ended: dict[int, str] = {}
        self._every = every

    def session(self, connection: Connection, channel: int) -> TracedSession:
        return TracedSession(connection, channel, self)

    def chosen(self) -> bool:
        return self._every

    def pass_over(self, messages: int) -> bool:
        return not self._every

    def begin(self, operation: str, link: Link, payload: bytes) -> int | None:
        try:
            found = carrier(Sections(payload))
        except AmqpError:
            return None
        return self._begin(operation) if found else None

    def begin_trace(self, link: Link, payload: bytes) -> tuple[int, bytes]:
        sections = Sections(payload)
        context = {Symbol(key): value for key, value in CONTEXT.items()}
        return self._begin(self.arriving), sections.replace_annotations({**sections.annotations, **context})

    def _begin(self, operation: str) -> int:
        self.begun.append(operation)
        return len(self.begun) - 1

    def end(self, span: int, state: Any) -> None:
        assert span not in self.ended
        self.ended[span] = "lost" if state is None else type(state).__name__.lower()

    def outcomes(self, operation: str) -> list[str]:
        return [self.ended[span] for span, each in enumerate(self.begun) if each == operation and span in self.ended]


class Keeper(Recorder):
    """A server that settles when it is told to. `together`: it takes runs of messages."""

    def __init__(self, *, together: bool = False) -> None:
        super().__init__(outcome=None)
        self.waiting: list[tuple[Any, int]] = []
        self.together = together

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        if self.together:
            link.on_run = self.on_run  # type: ignore[attr-defined]  # a Receiver

    def on_delivery(self, link: Any, delivery_id: int, settled: bool, *more: Any) -> None:
        super().on_delivery(link, delivery_id, settled, *more)
        if not settled:
            self.waiting.append((link, delivery_id))

    def on_run(self, link: Any, first: int, payloads: list[bytes], settled: bool) -> None:
        for delivery_id, payload in enumerate(payloads, first):
            link.on_delivery(link, delivery_id, settled, payload, b"", 0)


def pair(spans: Spans | None, server: Keeper, **fields: Any) -> Pair:
    """A client and a server, of which both have traces if there are `spans`."""
    made = Pair(Recorder(), server, opened=False, **fields)
    if spans is not None:
        made.c.session_type = made.s.session_type = spans.session
    made.c.open()
    made.run()
    return made


sends = st.tuples(st.just("send"), st.integers(0, len(MESSAGES) - 1), st.booleans())
steps = st.lists(
    sends
    | sends
    | st.tuples(st.just("large"), st.integers(0, len(LARGE) - 1))
    | st.tuples(st.just("settle"), st.integers(0, len(STATES) - 1))
    | st.tuples(st.just("state"), st.integers(0, len(STATES) - 1))
    | st.tuples(st.just("forget"), st.integers(0, 5))
    | st.tuples(st.just("run"))
    | st.tuples(st.just("attach")),
    max_size=30,
)


def play(script: list[tuple[Any, ...]], spans: Spans | None, second: bool, together: bool) -> tuple[Any, ...]:
    """Play a script; return all that can be seen of it."""
    server = Keeper(together=together)
    both = pair(spans, server)
    fields = {"rcv_settle_mode": SECOND} if second else {}
    link, number, sent = both.sender("s-0", **fields), 0, 0
    for step in script:
        if step[0] == "send" and link.credit:
            link.send(MESSAGES[step[1]], f"token {sent}", settled=step[2])
            sent += 1
        elif step[0] == "large" and link.credit:
            link.send(LARGE[step[1]], f"token {sent}")
            sent += 1
        elif step[0] in ("settle", "state") and server.waiting:
            receiver, delivery_id = server.waiting.pop(0)
            if step[0] == "settle":
                receiver.session.settle(delivery_id, STATES[step[1]])
            else:
                receiver.session.update(delivery_id, STATES[step[1]])
        elif step[0] == "forget":
            link.settle_ids(list(link.session.unsettled_out()[1])[step[1] : step[1] + 1])
        elif step[0] == "run":
            both.run()
        elif step[0] == "attach":
            number += 1
            link.detach()
            link = both.sender(f"s-{number}", **fields)
    both.run()
    both.c.close()
    both.run()
    seen = (both.to_server, both.to_client, both.client.outcomes, server.received, both.client.names(), server.names())
    return seen


@given(steps, st.booleans(), st.booleans())
@example([("send", 1, False), ("run",), ("send", 1, False), ("forget", 0), ("run",), ("settle", 1)], False, True)
@example([("large", 1), ("run",), ("attach",), ("send", 1, True), ("settle", 0), ("state", 3)], True, False)
def test_traces_change_nothing(script: list[tuple[Any, ...]], second: bool, together: bool) -> None:
    spans = Spans()
    assert play(script, spans, second, together) == play(script, None, second, together)
    assert len(spans.ended) == len(spans.begun)


def test_outcomes_of_what_arrives_and_leaves() -> None:
    for together in (False, True):
        spans, server = Spans(), Keeper(together=together)
        both = pair(spans, server)
        link = both.sender()
        for number in range(len(STATES) + 1):
            link.send(MESSAGES[1], number)
        both.run()
        assert not spans.ended and sorted(spans.begun) == ["deliver"] * 5 + ["send"] * 5
        for (receiver, delivery_id), state in zip(server.waiting, STATES, strict=False):
            receiver.session.settle(delivery_id, state)
        both.run()
        both.c.transport_closed()
        both.s.transport_closed()
        for operation in (Spans.arriving, Spans.leaving):
            assert sorted(spans.outcomes(operation)) == ["accepted", "lost", "modified", "rejected", "released"]


def test_a_trace_begins_with_each_message_alone_and_in_a_run() -> None:
    for together in (False, True):
        spans, server = Spans(every=True), Keeper(together=together)
        both = pair(spans, server)
        link = both.sender()
        for payload in MESSAGES[:3]:
            link.send(payload, object())
        both.run()
        found = [carrier(Sections(payload)) for payload in server.received]
        assert found == [CONTEXT, CONTEXT, UNSAMPLED]
        assert server.received[1:] == MESSAGES[1:3]
        assert spans.begun.count("send") == 2


def test_a_sender_that_settles_by_itself_leaves_no_spans_behind() -> None:
    spans, server = Spans(), Keeper()
    both = pair(spans, server)
    link = both.sender()
    most = 0
    for _ in range(3 * SPARE):
        link.send(MESSAGES[1], object())
        link.settle_ids(list(link.session.unsettled_out()[1]))
        both.run()
        most = max(most, len(spans.begun) - len(spans.ended))
    assert SPARE / 2 < most <= SPARE + 10
