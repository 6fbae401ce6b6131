"""Sections before the body are chosen by clients, and the broker has to rewrite some of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Delivery, symbol
from proton.utils import BlockingConnection

from enmasse.amqp.codec.codec import decode, encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Described, Symbol, Timestamp, UByte, UInt, ULong
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.scan import APPLICATION_PROPERTIES
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.annotations import RETAINED_BY
from services.broker.core.messages.leading_sections import (
    LeadingSections,
    duplicate_id,
    moved,
    original_annotations,
    outgoing,
    read_sections,
    without_duplicate_id,
)
from services.broker.core.publisher import publish, publish_run
from services.broker.core.queues.browser import Browser
from tests.broker.harness import DEADLINE, BrokerProcess, bodies, nothing
from tests.broker.sansio import Core, Outlet, decoded, outlet

OVERLAPPING = bytes.fromhex(
    "005370d0000000050000000141005332d10000002300000002a36f70742d64656c69766572792d64656c617981000000000000020f"
    "005373d0000000"
)
"""The annotations are none and reach into the properties."""
BODY = b"\x00\x53\x77\xa1\x01x"
HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"


def section(code: int, value: Any) -> bytes:
    return bytes(encode(Described(ULong(code), value)))


def nested(depth: int) -> bytes:
    value: Any = []
    for _ in range(depth):
        value = b"\xd0" + (len(value or b"") + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + (value or b"")
    return bytes(value) if depth else b"\x45"


ANNOTATED = section(0x72, {Symbol("x-opt-a"): 1})
PROPERTIES = section(0x73, ["id", None, "to"])
LONG_PROPERTIES = section(0x73, ["id", None, None, None, None, None, None, None, Timestamp(4 * 10**12), Timestamp(6)])
MALFORMED = {
    "nothing": b"",
    "half a descriptor": b"\x00\x53",
    "no descriptor": b"\x41" + BODY,
    "overlapping": OVERLAPPING,
    "unknown": HEADER + b"\x00\x53\x32\x45" + BODY,
    "unknown by name": HEADER + b"\x00\xa3\x03a:b\x45" + BODY,
    "header cut off": b"\x00\x53\x70\xc0\xff\x01",
    "header without its elements": b"\x00\x53\x70\xc0\x02\x05\x41" + BODY,
    "header is a map": section(0x70, {}) + BODY,
    "header is null": b"\x00\x53\x70\x40" + BODY,
    "header of strings": section(0x70, ["true"]) + BODY,
    "priority is a string": section(0x70, [True, "high"]) + BODY,
    "ttl is a boolean": section(0x70, [True, None, True]) + BODY,
    "delivery-count is a list": section(0x70, [True, None, None, None, []]) + BODY,
    "two headers": HEADER + HEADER + BODY,
    "delivery annotations cut off": HEADER + b"\x00\x53\x71\xc1\xff\x02\xa3\x01a" + BODY,
    "delivery annotations too short": HEADER + b"\x00\x53\x71\xc1\x02\x02\xa3\x01a\x40" + BODY,
    "delivery annotations with an odd count": HEADER + b"\x00\x53\x71\xc1\x04\x01\xa3\x01a" + BODY,
    "delivery annotations are a list": HEADER + section(0x71, ["a", 1]) + BODY,
    "delivery annotations after others": HEADER + ANNOTATED + section(0x71, {}) + BODY,
    "annotations cut off": b"\x00\x53\x72\xd1\x00\x00\x01\x00\x00\x00\x00\x02" + BODY,
    "annotations too long": b"\x00\x53\x72\xc1\x06\x02\xa3\x01a\x40\x40" + BODY,
    "annotations with two equal keys": b"\x00\x53\x72\xc1\x09\x04\xa3\x01a\x40\xa3\x01a\x40" + BODY,
    "an annotation that is not UTF-8": b"\x00\x53\x72\xc1\x08\x02\xa3\x01a\xa1\x02\xff\xfe" + BODY,
    "annotations are null": b"\x00\x53\x72\x40" + BODY,
    "annotations after properties": PROPERTIES + ANNOTATED + BODY,
    "annotations nested deeply": b"\x00\x53\x72\xd1" + (len(nested(40)) + 8).to_bytes(4, "big") + b"\0\0\0\x02\xa3\x01a"
    + b"\x40" + nested(40) + BODY,
    "properties cut off": HEADER + b"\x00\x53\x73\xc0\xff\x03\xa1\x01a" + BODY,
    "properties cut off in the size": HEADER + b"\x00\x53\x73\xd0\x00\x00",
    "properties are a map": HEADER + section(0x73, {}) + BODY,
    "properties nested deeply": b"\x00\x53\x73" + nested(40) + BODY,
    "application properties of an unknown type": b"\x00\x53\x74\x06\x02\xa3\x01a\x40\x40" + BODY,
    "application properties are a list": PROPERTIES + section(0x74, ["a", 1]) + BODY,
    "application properties cut off": PROPERTIES + b"\x00\x53\x74\xc1\xff\x02" + BODY,
    "garbage after properties": PROPERTIES + b"\xff\xff\xff",
    "application properties that end in their size": PROPERTIES + b"\x00\x53\x74\xc1",
    "garbage after short properties and a header": HEADER + PROPERTIES + b"\x00\x53\x60\x45" + BODY,
}  # fmt: skip
WRONG = {
    f"{name} is {type(value).__name__}": section(0x72, {Symbol(name): value}) + BODY
    for name in ("x-opt-delivery-time", "x-opt-delivery-delay")
    for value in ("soon", True, 1.5, [5], {"a": 1})
} | {"absolute-expiry-time is str": section(0x73, ["id"] + [None] * 7 + ["tomorrow"]) + BODY}
FINE = {
    "no body": HEADER,
    "empty sections": b"\x00\x53\x70\x45\x00\x53\x71\xc1\x01\x00\x00\x53\x72\xc1\x01\x00\x00\x53\x73\x45\x00\x53\x74"
    b"\xc1\x01\x00" + BODY,
    "everything": HEADER + section(0x71, {Symbol("a"): 1}) + ANNOTATED + LONG_PROPERTIES + section(0x74, {"k": 1})
    + BODY,
    "long descriptors": b"".join(
        bytes(encode(Described(code, value)))
        for code, value in ((Symbol("amqp:header:list"), [True]), (Symbol("amqp:delivery-annotations:map"), {}))
    ) + b"\x00\xa3\x11amqp:amqp-value:*\xa1\x01x",
    "only application properties": HEADER + section(0x74, {"k": 1}) + BODY,
    "application properties of a long encoding": HEADER + PROPERTIES + b"\x00\x53\x74\xd1\0\0\0\x04\0\0\0\0" + BODY,
    "a negative delay": section(0x72, {Symbol("x-opt-delivery-delay"): -5}) + BODY,
}  # fmt: skip


NOT_LOOKED_AT = {
    "a body that is cut off": b"\x00\x53\x77\xa1\x09x",
    "data that is cut off": HEADER + b"\x00\x53\x75\xa0\x09x",
    "two bodies": BODY + BODY,
    "properties behind the body": HEADER + BODY + PROPERTIES,
    "garbage behind the body": BODY + b"\xff\xff\xff",
    "a body that is not UTF-8": b"\x00\x53\x77\xa1\x02\xff\xfe",
    "a `to` that is not UTF-8": HEADER + b"\x00\x53\x73\xc0\x07\x03\x40\x40\xa1\x02\xff\xfe" + BODY,
    "a property that is not UTF-8": b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x02\xff\xfe" + BODY,
}
"""Text and bodies: nothing of what brokers decide."""


@pytest.fixture(
    params=[
        HEADER + PROPERTIES + BODY,
        section(0x70, [True, UByte(9)]) + BODY,
        HEADER + section(0x74, {"k": 1}) + BODY,
        section(0x74, {"k": 1}) + BODY,
        PROPERTIES + BODY,
    ],
    ids=["usual", "other", "application properties", "application properties alone", "properties"],
)
def usual(request: pytest.FixtureRequest) -> None:
    """The reader remembers how the last message began: it must not be taken in by that."""
    read_sections(request.param)


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_what_is_not_well_formed_is_refused(usual: None, payload: bytes) -> None:
    for _ in range(2):  # the second time it may be remembered
        with pytest.raises(AmqpError) as caught:
            read_sections(payload)
        assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("payload", WRONG.values(), ids=WRONG)
def test_times_of_another_type_are_named(payload: bytes) -> None:
    with pytest.raises(AmqpError, match=r"(x-opt-delivery-|absolute-expiry-)time|x-opt-delivery-delay") as caught:
        read_sections(payload)
    assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("payload", FINE.values(), ids=FINE)
def test_what_is_well_formed_can_be_written_anew(usual: None, payload: bytes) -> None:
    read_sections(payload)
    sections = Sections(outgoing(payload, True, 7, 9, 2))
    assert sections.decoded(0x70) == [True, UByte(7), UInt(9), False, UInt(2)]
    assert sections.decoded(0x71) is None
    sections = Sections(moved(payload, True, 4, {"x-opt-ORIG-QUEUE": "q"}))
    assert sections.decoded(0x72)["x-opt-ORIG-QUEUE"] == "q"


@pytest.mark.parametrize("payload", NOT_LOOKED_AT.values(), ids=NOT_LOOKED_AT)
def test_what_brokers_do_not_look_at_is_passed_on_as_it_came(usual: None, payload: bytes) -> None:
    core = Core()
    consumer = core.consumer(core.queue(), 10)
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    publish(core.broker, route, payload, core, 1)
    core.commit()
    ((sent, message),) = outlet(consumer).take()
    assert sent == payload
    consumer.queue.outcomes.modify(consumer, [message], failed=True, elsewhere=False)
    ((sent, _),) = outlet(consumer).take()
    assert sent.endswith(payload.removeprefix(HEADER)), "with another header"


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A message with a few bytes changed, put in or taken out."""
    payload = bytearray(draw(st.sampled_from([*FINE.values(), *MALFORMED.values()])))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(payload)))
        payload[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(payload)


@settings(max_examples=1500, deadline=None)
@given(mutated())
@example(OVERLAPPING)
def test_what_is_let_in_can_always_be_written_anew(payload: bytes) -> None:
    try:
        read_sections(payload)
    except AmqpError:
        pass
    else:
        out = outgoing(payload, True, 4, -1, 3)
        assert payload.endswith(out[decode(out)[1] :])
    copy = moved(payload, True, 4, original_annotations(payload, "q", "a", "ANYCAST"))
    sections = Sections(copy)
    assert all(sections.decoded(section) is not None for section in (0x70, 0x72)), "a dead letter can be read"
    for section in (0x73, 0x74):
        sections.decoded(section)


def stated(payload: bytes) -> Any:
    """What the front states, or the condition of the error."""
    try:
        found = read_sections(payload)
    except AmqpError as error:
        return error.condition
    return [getattr(found, name) for name in LeadingSections.__slots__]


@settings(max_examples=1500, deadline=None)
@given(st.data())
def test_a_front_does_not_depend_on_the_message_before(data: st.DataObject) -> None:
    payload, before = data.draw(mutated()), data.draw(mutated())
    read_sections(b"\x00\xa3\x11amqp:amqp-value:*\x40")
    alone = stated(payload)
    same = data.draw(st.integers(0, len(payload)))
    for other in (before, payload[:same], payload[:same] + BODY, payload[:same] + before):
        stated(other)
        assert stated(payload) == alone


def stored(core: Core, payload: bytes) -> None:
    """As if it had been let in."""
    core.broker.put("q", payload, durable=True)
    core.commit()


@pytest.mark.parametrize(
    "name", ["overlapping", "header cut off", "delivery annotations cut off", "garbage after properties"]
)
@pytest.mark.parametrize("dead_letter", [True, False])
def test_a_stored_one_that_cannot_be_written_anew_is_a_dead_letter(name: str, dead_letter: bool, tmp_path: Any) -> None:
    core = Core(tmp_path, defaults={"DLA": "dead", "maxDeliveryAttempts": 3} if dead_letter else {})
    core.queue()
    core.queue("dead")
    stored(core, MALFORMED[name])
    stored(core, FINE["everything"])
    core.restart()  # messages from disk are rewritten each time
    q, dead = core.broker.catalogue.queues["q"], core.broker.catalogue.queues["dead"]
    consumer = core.consumer(q, 10)
    found = outlet(consumer).take()
    assert decoded(found[-1][0]).body == "x", "the next one comes all the same"
    q.outcomes.accept(consumer, [found[-1][1]])
    for _ in range(3):  # what could be sent, or had no other place, fails
        q.outcomes.modify(consumer, [message for _, message in found[:-1]], failed=True, elsewhere=False)
        found = [*outlet(consumer).take(), (b"", None)]
    core.commit()
    assert (q.count, dead.count) == ((0, 1) if dead_letter else (1, 0))
    if dead_letter:
        reader = core.consumer(dead, 5)
        for _ in range(4):
            (payload, message), *_ = outlet(reader).take()
            assert decoded(payload).annotations[Symbol("x-opt-ORIG-QUEUE")] == "q"
            body = decode(payload, Sections(payload).begin(0x75))[0].value
            assert MALFORMED[name].endswith(body) or payload.endswith(MALFORMED[name][-3:])
            dead.outcomes.release(reader, [message])


def test_a_browser_sees_what_cannot_be_read_as_it_is() -> None:
    core = Core()
    q = core.queue()
    for payload in (MALFORMED["header cut off"], FINE["everything"]):
        core.broker.put("q", payload, durable=False)
    view = Outlet(5)
    Browser(q, view, None).look()
    assert view.sent[0][0] == MALFORMED["header cut off"]
    assert decoded(view.sent[1][0]).body == "x"


@pytest.mark.parametrize("name", MALFORMED)
def test_nothing_of_it_is_kept(name: str) -> None:
    core = Core()
    q = core.queue()
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    with pytest.raises(AmqpError):
        publish(core.broker, route, MALFORMED[name], core, 1)
    with pytest.raises(AmqpError):
        publish_run(core.broker, route, [MALFORMED[name], FINE["no body"]], core, 2)
    assert (q.count, core.broker.ledger.size, route.owner.count) == (0, 0, 0)


def test_it_costs_the_sender_its_message_and_nobody_a_connection(tmp_path: Any) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as manage, broker.connect() as c:
        manage.queue("q")
        sender = c.create_sender("q")
        for payload in (*MALFORMED.values(), *WRONG.values()):
            assert outcome(c, sender, payload) == Delivery.REJECTED
        assert outcome(c, sender, FINE["everything"]) == Delivery.ACCEPTED
        for _ in range(2):
            with broker.connect() as other:
                receiver = other.create_receiver("q", credit=10)
                receiver.receive(DEADLINE)
        receiver = c.create_receiver("q", credit=10)
        assert bodies(receiver, 1) == ["x"]
        nothing(receiver)
    broker.stop()


def outcome(c: BlockingConnection, sender: Any, payload: bytes) -> int:
    delivery = sender.link.delivery(sender.link.delivery_tag())
    if payload:
        sender.link.stream(payload)
    sender.link.advance()
    c.wait(lambda: delivery.settled, timeout=DEADLINE)
    return int(delivery.remote_state)


@pytest.mark.parametrize("others", [{}, {symbol("x-opt-retain-message"): True}])
@pytest.mark.parametrize("durable", [True, False])
def test_a_seal_is_passed_on_to_the_subscription_service_alone(
    tmp_path: Path, durable: bool, others: dict[Any, Any]
) -> None:
    core = Core(tmp_path)
    q = core.queue()
    sealed = {**others, symbol(RETAINED_BY): b"seal"}
    for _ in range(4):
        core.send("x", durable=durable, annotations=sealed)
        core.send("y", durable=durable, annotations=others or None)
    core.commit()
    for keeps in (True, False):
        consumer = core.consumer(q)
        consumer.sealed = keeps
        outlet(consumer).credit = 4
        q.flow(consumer)
        found = [decoded(payload) for payload, _ in outlet(consumer).take()]
        assert [each.body for each in found] == ["x", "y", "x", "y"]
        assert [each.annotations or {} for each in found] == [sealed if keeps else others, others] * 2


IDS = st.sampled_from(["a" * 9, "b" * 9, "é" * 5, "", b"a" * 9, 7, Symbol("a" * 9), "a" * 200]) | st.text(max_size=9)
TRICK = b"\xa1\x0c_AMQ_DUPL_ID\xa1\x09"
"""Up to the text of an id, as it may stand at the end of a binary value."""
OTHERS = st.sampled_from([b"", TRICK + b"c" * 9, TRICK + b"d" * 9, "text", None, True])


@st.composite
def with_ids(draw: st.DrawFn) -> bytes:
    """A message with an id among its properties, first or last; Proton's form has long maps."""
    pairs = [("_AMQ_DUPL_ID", draw(IDS)), *([("other", draw(OTHERS))] if draw(st.booleans()) else [])]
    properties = dict(draw(st.permutations(pairs)))
    message = Message(b"x", durable=True, message_id=draw(st.sampled_from([None, "m", "n", b"m" * 40])))
    message.application_properties = properties
    if draw(st.booleans()):
        message.to = draw(st.sampled_from(["a", "bb"]))
    payload = bytes(message.encode())
    if draw(st.booleans()):  # a long map
        sections = Sections(payload)
        begin, end = sections.begin(APPLICATION_PROPERTIES), sections.begin(APPLICATION_PROPERTIES + 1)
        short = payload[begin:end]
        if short[3] == 0xC1:
            long = short[:3] + b"\xd1" + (len(short) - 2).to_bytes(4) + short[5:6].rjust(4, b"\0") + short[6:]
            payload = payload[:begin] + long + payload[end:]
    return payload


def ends_like_an_id(last: bytes) -> bytes:
    properties = {"_AMQ_DUPL_ID": "c" * 9, "other": TRICK + last * 9}
    return bytes(Message(b"x", application_properties=properties).encode())


@given(st.lists(with_ids(), min_size=2, max_size=6))
@example([ends_like_an_id(b"c"), ends_like_an_id(b"d")])
def test_ids_are_those_of_the_decoded_properties_whatever_came_before(payloads: list[bytes]) -> None:
    for payload in payloads:
        read_sections(payload)
        properties = Sections(payload).decoded(APPLICATION_PROPERTIES)
        id = properties["_AMQ_DUPL_ID"]
        text = id if type(id) is bytes else str(id).encode()
        wanted = text if len(text) <= 128 else b"\x00h" + sha256(text).digest()
        assert duplicate_id(payload, False) == wanted
        left = without_duplicate_id(payload)
        rest = {name: value for name, value in properties.items() if name != "_AMQ_DUPL_ID"}
        assert (Sections(left).decoded(APPLICATION_PROPERTIES) or {}) == rest
        before, after = Message.decode(payload), Message.decode(left)
        assert (before.body, before.message_id, before.to) == (after.body, after.message_id, after.to)
