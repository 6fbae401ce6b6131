"""A peer that breaks the rules: each illegal frame in each state gets the condition the specification names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Rejected,
    SaslInit,
    Transfer,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import MOST_REFUSED, Limits
from enmasse.amqp.sasl.layer import SaslServer, anonymous
from tests.amqp.engine_kit import AMQP, SASL, Raw, Recorder, attach, condition_of, frame, frames, init


def begin(**fields: Any) -> Begin:
    return Begin(**{"next_outgoing_id": 0, "incoming_window": 10, "outgoing_window": 10, **fields})


def flow(**fields: Any) -> Flow:
    return Flow(**{"next_incoming_id": 0, "incoming_window": 9, "next_outgoing_id": 0, "outgoing_window": 9, **fields})


def transfer(handle: int = 0, delivery_id: int | None = 0, **fields: Any) -> Transfer:
    fields = {"delivery_tag": b"t", "message_format": 0, **fields}
    return Transfer(handle=handle, delivery_id=delivery_id, **fields)


TRANSFER = frame(0, transfer(), b"x")
LONG_TAG = b"\x00\x53\x14\xc0\x27\x04\x43\x43\xa0\x21" + b"t" * 33 + b"\x43"
FRAMING = "amqp:connection:framing-error"
CASES: list[tuple[str, str, bytes, type[Any], str]] = [
    # name, stage, bytes, what ends, condition
    ("begin before open", "start", AMQP + frame(0, begin()), Close, "amqp:illegal-state"),
    ("close before open", "start", AMQP + frame(0, Close()), Close, "amqp:illegal-state"),
    (
        "frames too small",
        "start",
        AMQP + frame(0, Open(container_id="x", max_frame_size=511)),
        Close,
        "amqp:invalid-field",
    ),
    ("open twice", "open", frame(0, Open(container_id="x")), Close, "amqp:illegal-state"),
    ("frame of 4 bytes", "open", b"\x00\x00\x00\x04\x02\x00\x00\x00", Close, FRAMING),
    (
        "frame of 4 bytes, in a longer read",
        "open",
        b"\0\0\0\x04\x02\0\0\0" + b"\0" * 50,
        Close,
        "amqp:connection:framing-error",
    ),
    ("frame of 0 bytes", "open", b"\x00" * 40, Close, FRAMING),
    ("frame too large", "open", b"\x00\x01\x00\x01\x02\x00\x00\x00", Close, FRAMING),
    ("frame of 4 GB", "open", b"\xff\xff\xff\xff\x02\x00\x00\x00", Close, FRAMING),
    ("data offset 1", "open", b"\x00\x00\x00\x08\x01\x00\x00\x00", Close, FRAMING),
    ("data offset beyond", "open", b"\x00\x00\x00\x08\x03\x00\x00\x00", Close, FRAMING),
    (
        "SASL frame in AMQP",
        "open",
        init("X"),
        Close,
        "amqp:connection:framing-error",
    ),
    ("SASL performative in AMQP", "open", frame(0, SaslInit(mechanism=Symbol("X"))), Close, "amqp:not-allowed"),
    ("frame of unknown type", "open", frame(0, begin(), frame_type=7), Close, FRAMING),
    ("no performative", "open", frame(0, None, b"\x40\x40\x40"), Close, "amqp:decode-error"),
    ("unknown performative", "open", frame(0, None, b"\x00\x53\x77\x45"), Close, "amqp:decode-error"),
    ("cut performative", "open", frame(0, None, encode_performative(begin())[:-3]), Close, "amqp:decode-error"),
    ("bytes behind begin", "open", frame(0, begin(), b"xx"), Close, "amqp:decode-error"),
    ("mandatory field missing", "open", frame(0, None, b"\x00\x53\x11\x45"), Close, "amqp:decode-error"),
    ("channel beyond channel-max", "open", frame(256, begin()), Close, FRAMING),
    ("end of no session", "open", frame(3, End()), Close, "amqp:illegal-state"),
    ("attach without session", "open", frame(0, attach("l", 0, sending=True)), Close, "amqp:illegal-state"),
    ("transfer without session", "open", TRANSFER, Close, "amqp:illegal-state"),
    ("disposition without session", "open", frame(0, Disposition(role=True, first=0)), Close, "amqp:illegal-state"),
    ("answer to no begin", "open", frame(0, begin(remote_channel=5)), Close, "amqp:illegal-state"),
    ("begin twice", "begun", frame(0, begin()), Close, "amqp:illegal-state"),
    (
        "handle beyond handle-max",
        "begun",
        frame(0, attach("l", 65536, sending=True)),
        Close,
        "amqp:connection:framing-error",
    ),
    ("handle in use", "attached", frame(0, attach("l", 0, sending=True)), End, "amqp:session:handle-in-use"),
    ("flow for no link", "attached", frame(0, flow(handle=9)), End, "amqp:session:unattached-handle"),
    ("detach of no link", "attached", frame(0, Detach(handle=9)), End, "amqp:session:unattached-handle"),
    ("transfer on no link", "attached", frame(0, transfer(9), b"x"), End, "amqp:session:unattached-handle"),
    ("transfer to our sender", "attached", frame(0, transfer(1), b"x"), End, "amqp:not-allowed"),
    ("delivery without id", "attached", frame(0, transfer(delivery_id=None), b"x"), End, "amqp:invalid-field"),
    ("delivery without tag", "attached", frame(0, transfer(delivery_tag=None), b"x"), End, "amqp:invalid-field"),
    (
        "another tag within a delivery",
        "attached",
        frame(0, transfer(more=True), b"x") + frame(0, transfer(delivery_tag=b"other"), b"x"),
        End,
        "amqp:invalid-field",
    ),
    (
        "another message-format within a delivery",
        "attached",
        frame(0, transfer(more=True), b"x") + frame(0, transfer(message_format=7), b"x"),
        End,
        "amqp:invalid-field",
    ),
    ("delivery-id repeated", "attached", TRANSFER + TRANSFER, End, "amqp:invalid-field"),
    ("delivery-id skipped", "attached", TRANSFER + frame(0, transfer(delivery_id=2), b"x"), End, "amqp:invalid-field"),
    (
        "another delivery within one",
        "attached",
        frame(0, transfer(more=True), b"x") + frame(0, transfer(delivery_id=1), b"x"),
        End,
        "amqp:invalid-field",
    ),
    (
        "more than the credit",
        "attached",
        b"".join(frame(0, transfer(delivery_id=i), b"x") for i in range(11)),
        Detach,
        "amqp:link:transfer-limit-exceeded",
    ),
    ("disposition backwards", "attached", frame(0, Disposition(role=True, first=5, last=4)), End, "amqp:invalid-field"),
    ("received what was not sent", "attached", frame(0, flow(next_incoming_id=7)), End, "amqp:invalid-field"),
    (
        "delivery-tag of 33 bytes",
        "attached",
        frame(0, None, LONG_TAG),
        Close,
        "amqp:decode-error",
    ),
]


@pytest.mark.parametrize(("name", "stage", "data", "ends", "condition"), CASES, ids=[case[0] for case in CASES])
def test_illegal_frame(name: str, stage: str, data: bytes, ends: type[Any], condition: str) -> None:
    handler = Recorder(window=0)
    if stage == "attached":
        handler.window = 10
        handler.outcome = None
    raw = Raw(stage, handler)
    answers = raw.feed(data)
    ending = [a for a in answers if type(a) is ends]
    assert ending, f"{name}: {answers}"
    assert condition_of(ending[0]) == condition
    assert ending[0].error.description
    events = list(handler.events)
    if ends is Close:
        # nothing is processed any more but close
        raw.feed(TRANSFER + frame(1, begin()) + frame(0, attach("late", 5, sending=True)) + frame(0, None, b"junk"))
        assert handler.events == events
        assert not raw.connection.finished
        assert raw.feed(frame(0, Close())) == []
        assert raw.connection.finished
        assert handler.names()[-1] == "close"
    elif ends is End:
        raw.feed(TRANSFER + frame(0, attach("late", 5, sending=True)))
        assert handler.events == events
        raw.feed(frame(0, End()))
        assert handler.names()[-1] == "end"
        assert raw.connection.state == "open"
        assert any(type(a) is Begin for a in raw.feed(frame(0, begin())))
    else:
        assert raw.connection.state == "open"
        raw.feed(frame(0, transfer(delivery_id=11), b"late"))  # on its way when the detach crossed it
        assert handler.events == events
        raw.feed(frame(0, Detach(handle=0, closed=True)))
        assert handler.events[-1][:2] == ("detach", "in")


@pytest.mark.parametrize("header", [b"HTTP/1.1", b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET", b"A\x00"])
def test_wrong_header_is_answered_with_the_right_one(header: bytes) -> None:
    handler = Recorder()
    connection = Connection(handler, container_id="s", is_client=False)
    connection.receive(header)
    assert connection.take_output() == AMQP
    assert connection.finished
    assert handler.events == [("close", "amqp:not-implemented")]


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (b"\x10\x10\x00\x04MQTT\x04\x02", "MQTT, which has a port of its own"),
        (b"\x10\x80\x01\x00\x04MQTT\x05", "MQTT, which has a port of its own"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"CONNECT\nhost:", "STOMP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"),
        (b"\x10hardly??", "another protocol"),
    ],
)
def test_what_a_peer_speaks_is_named(header: bytes, named: str) -> None:
    connection = Connection(Recorder(), container_id="s", is_client=False)
    connection.receive(header)
    assert connection.own_error is not None and named in connection.own_error.description
    text = connection.own_error.description.partition(": its header")[0]
    assert not re.search(r"\d{4}", text), "a suite has its ports plus an offset, which is not known here"


def test_header_without_sasl_where_sasl_is_required() -> None:
    connection = Connection(Recorder(), container_id="s", is_client=False, sasl=SaslServer({"ANONYMOUS": anonymous}))
    connection.receive(AMQP)
    assert connection.take_output() == SASL
    assert connection.finished
    assert connection.own_error is not None and "does not log in" in connection.own_error.description


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", SASL, b"AMQP\x00\x09\x01\x00"])
def test_client_meets_a_wrong_header(answer: bytes) -> None:
    handler = Recorder()
    client = Connection(handler, container_id="c", is_client=True)
    client.open()
    client.receive(answer)
    assert client.finished
    assert handler.events == [("close", "amqp:not-implemented")]
    assert client.transport_error is not None
    assert "header" in client.transport_error.description


def test_window_violation() -> None:
    handler = Recorder(window=100, outcome=None)
    raw = Raw("attached", handler, limits=Limits(incoming_window=4))
    data = b"".join(frame(0, transfer(delivery_id=i), b"x") for i in range(5))
    (end,) = [a for a in raw.feed(data) if type(a) is End]
    assert condition_of(end) == "amqp:session:window-violation"
    assert len(handler.received) == 4


def test_window_is_restored_at_half() -> None:
    raw = Raw("attached", Recorder(window=100), limits=Limits(incoming_window=4))
    for i in range(50):
        answers = raw.feed(frame(0, transfer(delivery_id=i), b"x"))
        assert not any(type(a) in (End, Close) for a in answers)
    assert len(raw.handler.received) == 50


def test_message_size_exceeded() -> None:
    handler = Recorder(window=10)
    raw = Raw("attached", handler, limits=Limits(max_message_size=1000))
    answers = raw.feed(frame(0, transfer(more=True), b"x" * 600) + frame(0, transfer(more=True), b"x" * 600))
    (detach,) = [a for a in answers if type(a) is Detach]
    assert condition_of(detach) == "amqp:link:message-size-exceeded"
    (outcome,) = [a for a in answers if type(a) is Disposition]
    assert type(outcome.state) is Rejected and outcome.state.error == detach.error
    assert answers.index(outcome) < answers.index(detach), "else the sender takes it for a lost one"
    assert raw.feed(frame(0, transfer(more=True), b"x" * 600) * 100) == []
    assert raw.connection.held.assembling == 0
    raw.feed(frame(0, transfer(), b"x") + frame(0, Detach(handle=0, closed=True)))
    assert handler.received == []


@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("polite", [True, False])
def test_too_many_links(channel: int, polite: bool) -> None:
    raw = Raw("begun", limits=Limits(max_links=3))
    for handle in range(3):
        raw.feed(frame(0, attach(f"l{handle}", handle, sending=True)))
    raw.feed(frame(1, begin()))
    refused = 0
    for handle in range(10, 10 + 2 * MOST_REFUSED):
        answers = raw.feed(frame(channel, attach(f"more {handle}", handle, sending=True)))
        if type(answers[-1]) is End:
            break
        assert [type(a) for a in answers] == [Attach, Detach]
        assert condition_of(answers[1]) == "amqp:resource-limit-exceeded"
        assert "3 links" in answers[1].error.description
        refused += 1
        if polite:
            assert raw.feed(frame(channel, Detach(handle=handle, closed=True))) == []
    assert refused == (2 * MOST_REFUSED if polite else MOST_REFUSED)
    if not polite:
        assert condition_of(answers[-1]) == "amqp:resource-limit-exceeded"
        return
    assert raw.handler.names().count("attach") == 3
    raw.feed(frame(0, Detach(handle=1, closed=True)))  # there is room again
    (answer, *_) = raw.feed(frame(channel, attach("last", 9, sending=True)))
    assert raw.handler.links["last"].attached and answer.name == "last"


def test_too_much_link_state() -> None:
    raw = Raw("begun", limits=Limits(max_link_state=5000))
    answers = []
    for handle in range(10):
        answers += raw.feed(frame(0, attach("l" * 1000 + str(handle), handle, sending=True)))
    (end,) = [a for a in answers if type(a) is End]
    assert condition_of(end) == "amqp:resource-limit-exceeded"


def test_too_many_sessions_meet_channel_max() -> None:
    raw = Raw("open", limits=Limits(max_sessions=2))
    for channel in range(2):
        assert [type(a) for a in raw.feed(frame(channel, begin()))] == [Begin]
    (close,) = raw.feed(frame(2, begin()))
    assert condition_of(close) == "amqp:connection:framing-error"


def test_disposition_of_four_billion_deliveries_costs_nothing() -> None:
    raw = Raw()
    sender = raw.handler.links["out"]
    for i in range(10):
        sender.send(b"x", i)  # type: ignore[attr-defined]  # the link of a client is a sender
    raw.feed(frame(0, Disposition(role=True, first=2, last=0x7FFFFFF0, settled=True, state=ACCEPTED)))
    assert [token for token, _, _ in raw.handler.outcomes] == list(range(2, 10))


def test_detach_of_a_peer_that_talks_on_after_an_error_is_not_answered_twice() -> None:
    raw = Raw()
    raw.handler.links["in"].detach()
    first = raw.feed(b"")
    assert [type(a) for a in first] == [Detach]
    assert raw.feed(frame(0, Detach(handle=0, closed=True))) == []
    (end,) = raw.feed(TRANSFER)
    assert condition_of(end) == "amqp:session:unattached-handle"


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("handle", [0, 1, 7])
def test_a_second_detach_ends_nothing(refused: bool, handle: int) -> None:
    """Some clients detach again after a refused attach was detached by both ends."""
    raw = Raw()
    if handle == 7:
        raw.feed(frame(0, attach("seven", 7, sending=True)))
    if refused:
        raw.feed(frame(0, Detach(handle=handle, closed=True)))
        raw.handler.attach = lambda link: link.refuse(AmqpError("amqp:not-found", "no"))
        answers = raw.feed(frame(0, attach("again", handle, sending=True)))
        assert [type(a) for a in answers] == [Attach, Detach]
        assert raw.feed(frame(0, Detach(handle=handle, closed=True))) == []
        raw.handler.attach = lambda link: link.accept()
    else:
        (answer,) = raw.feed(frame(0, Detach(handle=handle, closed=False)))
        assert type(answer) is Detach
    for closed in (True, False, True):
        assert raw.feed(frame(0, Detach(handle=handle, closed=closed))) == []
    answers = raw.feed(frame(0, attach("new", handle, sending=True)))  # the handle is free
    assert type(answers[0]) is Attach
    (answer,) = raw.feed(frame(0, Detach(handle=handle, closed=True)))
    assert type(answer) is Detach
    assert "end" not in raw.handler.names()


@pytest.mark.parametrize("late", [flow(), Disposition(role=False, first=0, settled=True), Detach(handle=0)])
def test_answers_that_come_after_the_end_of_a_session_are_ignored(late: Any) -> None:
    """Some clients answer a drain after they have ended the session; their other sessions go on."""
    raw = Raw()
    (answer,) = raw.feed(frame(1, begin()))
    assert type(answer) is Begin
    (answer,) = raw.feed(frame(0, End()))
    assert type(answer) is End
    assert raw.feed(frame(0, late) * 3) == []
    assert raw.connection.state == "open"
    (answer,) = raw.feed(frame(1, End()))
    assert type(answer) is End
    (answer,) = raw.feed(frame(2, late))  # where nothing has ever begun
    assert type(answer) is Close and answer.error is not None


def test_second_close_and_frames_after_it_are_ignored() -> None:
    raw = Raw()
    (answer,) = raw.feed(frame(0, Close()) + TRANSFER + frame(0, Close()))
    assert type(answer) is Close
    assert raw.connection.finished
    assert raw.handler.received == []


def test_frame_larger_than_the_peer_takes() -> None:
    handler = Recorder()
    handler.attach = lambda link: link.accept(properties={"x": "y" * 600})
    connection = Connection(handler, container_id="s", is_client=False)
    connection.receive(AMQP + frame(0, Open(container_id="c", max_frame_size=512)) + frame(0, begin()))
    connection.take_output()
    connection.receive(frame(0, attach("l", 0, sending=True)))
    answers = [p for _, p, _ in frames(connection.take_output())]
    assert [condition_of(p) for p in answers if type(p) is Detach] == ["amqp:frame-size-too-small"]
    assert connection.state == "open"


def test_peer_that_ignores_our_detach_has_its_session_ended() -> None:
    raw = Raw("attached", limits=Limits(incoming_window=5))
    raw.handler.links["in"].detach(AmqpError("amqp:resource-deleted", "gone"))
    answers: list[Any] = []
    for i in range(6):
        answers += raw.feed(frame(0, transfer(delivery_id=i), b"x"))
    (end,) = [a for a in answers if type(a) is End]
    assert condition_of(end) == "amqp:session:errant-link"
    assert raw.handler.received == []
