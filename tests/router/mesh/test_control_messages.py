"""Control messages between routers: as a Qpid Dispatch 1.19 sent them, and as they must not be.

`dispatch_1_19.json` has the bytes of messages recorded between two routers of that version: `QDR.A`, which connects
with cost 7, and `QDR.B`, which listens. `QDR.C` is behind `QDR.B`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.codec import decode as decode_value
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.types import Symbol, Timestamp, UInt, ULong
from enmasse.amqp.messages.message import AmqpSequence, Message
from enmasse.amqp.messages.scan import MESSAGE_ANNOTATIONS, front_end
from services.router.mesh.control_messages import (
    EVERY_ROUTER,
    NEIGHBOUR,
    AddressRequest,
    AddressUpdate,
    Advertisement,
    Announced,
    ControlMessage,
    Envelope,
    Hello,
    InvalidControl,
    LinkStateRequest,
    LinkStateUpdate,
    NewerVersion,
    Treatment,
    decode,
    is_router_id,
)

RECORDED: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "dispatch_1_19.json").read_text())
A, B, C = "QDR.A", "QDR.B", "QDR.C"
STARTED = {A: 1795946271, B: 1795946269, C: 1795946271}
PLAIN = Announced("M0plain", Treatment.BALANCED)
EXPECTED = {
    "connecting": {
        "hello": Envelope(NEIGHBOUR, Hello(A, STARTED[A], (B,)), (A,)),
        "lsu of number 0": Envelope(B, LinkStateUpdate(A, STARTED[A], 0, {B: 7}), (A,)),
        "lsr": Envelope(B, LinkStateRequest(A), (A,)),
        "ra": Envelope(EVERY_ROUTER, Advertisement(A, STARTED[A], 1, 0), (A,)),
        "mau with an addition": Envelope(EVERY_ROUTER, AddressUpdate(A, 1, (PLAIN,)), (A,)),
        "mau with all": Envelope(C, AddressUpdate(A, 1, (PLAIN,), absolute=True), (A,)),
        "mau with a deletion": Envelope(EVERY_ROUTER, AddressUpdate(A, 2, (), ("M0plain",)), (A,)),
    },
    "listening": {
        "hello before it hears anyone": Envelope(NEIGHBOUR, Hello(B, STARTED[B]), (B,)),
        "hello": Envelope(NEIGHBOUR, Hello(B, STARTED[B], (C, A)), (B,)),
        "lsu of two links": Envelope(A, LinkStateUpdate(B, STARTED[B], 1, {C: 3, A: 7}), (B,)),
        "lsr in transit": Envelope(A, LinkStateRequest(C), (C, B)),
        "ra in transit": Envelope(EVERY_ROUTER, Advertisement(C, STARTED[C], 1, 0), (C, B)),
        "lsu in transit": Envelope(A, LinkStateUpdate(C, STARTED[C], 1, {B: 3}), (C, B)),
        "mau of a multicast address": Envelope(
            EVERY_ROUTER, AddressUpdate(B, 1, (Announced("M0multi/x", Treatment.MULTICAST_ONCE),)), (B,)
        ),
        "mau of a closest address": Envelope(
            EVERY_ROUTER, AddressUpdate(B, 2, (Announced("M0near/ü", Treatment.CLOSEST),)), (B,)
        ),
        "mau in transit": Envelope(
            EVERY_ROUTER, AddressUpdate(C, 1, (Announced("M0far", Treatment.BALANCED),)), (C, B)
        ),
        "mar in transit": Envelope(A, AddressRequest(C, 0), (C, B)),
    },
}
CASES = [(side, name) for side, messages in RECORDED.items() for name in messages]


@pytest.mark.parametrize(("side", "name"), CASES)
def test_messages_of_dispatch_are_decoded(side: str, name: str) -> None:
    control = decode(bytes.fromhex(RECORDED[side][name]))
    assert control == EXPECTED[side][name]


@pytest.mark.parametrize(("side", "name"), CASES)
def test_messages_are_encoded_as_those_of_dispatch(side: str, name: str) -> None:
    """To the byte and in its order, but that Dispatch also sends a header with durable false, the default, and for what
    `alike` removes: widths of numbers, lists and maps, symbols for strings in MAU and MAR, trailing nulls, and the
    address of a MAU to all routers without `amqp:/`."""
    theirs, ours = bytes.fromhex(RECORDED[side][name]), EXPECTED[side][name].encode()
    assert theirs.startswith(NOT_DURABLE)
    theirs = theirs.removeprefix(NOT_DURABLE)
    ends = [front_end(each, MESSAGE_ANNOTATIONS) for each in (theirs, ours)]
    assert theirs[: ends[0]] == ours[: ends[1]], "annotations"
    assert sections_alike(theirs[ends[0] :]) == sections_alike(ours[ends[1] :])


NOT_DURABLE = b"\x00Sp\xd0\x00\x00\x00\x05\x00\x00\x00\x01B"


def sections_alike(data: bytes) -> list[bytes]:
    """Return the sections of a message, each alike."""
    found, at = [], 0
    while at < len(data):
        section, at = decode_value(data, at)
        found.append(bytes((section.descriptor,)) + encode(alike(section.value)))
    return found


def alike(value: Any) -> Any:
    """Return a value with the types that our encoder uses."""
    if isinstance(value, dict):
        return {str(key): alike(each) for key, each in value.items()}
    if isinstance(value, list):
        while value and value[-1] is None:
            value = value[:-1]
        return [alike(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value.removeprefix("amqp:/") if value == ALL_MA_STATED else value


ALL_MA_STATED = "amqp:/_topo/0/all/qdrouter.ma"


@pytest.mark.parametrize(("side", "name"), CASES)
def test_message_in_transit_keeps_its_body_and_gains_a_router(side: str, name: str) -> None:
    received = bytes.fromhex(RECORDED[side][name])
    control = decode(received)
    passed = decode(control.passed("r9").encode())
    assert passed.message == control.message
    assert passed.trace == (*control.trace, "r9")
    body = received[received.index(b"\x00Sw") :]
    assert passed.payload is not None and passed.payload.endswith(body)


def test_unknown_fields_survive_transit() -> None:
    payload = encoded({**fields(LinkStateRequest("r1")), "further": "x"}, "LSR", "_topo/0/r2/qdrouter")
    passed = Message.decode(decode(payload).passed("r3").encode())
    assert passed.body["further"] == "x"


def encoded(body: Any, opcode: Any, to: str | None, **annotations: Any) -> bytes:
    stated = {Symbol("x-opt-qd." + name): value for name, value in annotations.items()}
    return Message(body, to=to, application_properties={"opcode": opcode}, annotations=stated).encode()


def fields(message: ControlMessage) -> dict[str, Any]:
    return {"id": message.router, "pv": 1, "area": "0", **message.fields()}


HELLO = fields(Hello("r1", 7, ("r2",)))
RA = fields(Advertisement("r1", 7, 1, 1))
LSU = fields(LinkStateUpdate("r1", 7, 1, {"r2": 1}))
ABSOLUTE = fields(AddressUpdate("r1", 1, (Announced("M0a"),), absolute=True))
CHANGES = fields(AddressUpdate("r1", 1, (Announced("M0a"),), ("M0b",)))
NEAR, ALL, ALL_MA = "amqp:/_local/qdhello", "_topo/0/all/qdrouter", "_topo/0/all/qdrouter.ma"


def test_numbers_of_any_integer_type_and_symbols_are_understood() -> None:
    body = {Symbol("id"): "r1", Symbol("instance"): UInt(3), Symbol("ls_seq"): ULong(4), Symbol("mobile_seq"): 5}
    assert decode(encoded(body, "RA", ALL)).message == Advertisement("r1", 3, 4, 5)


def test_instance_and_version_may_be_absent() -> None:
    body = {"id": "r1", "seen": []}
    assert decode(encoded(body, "HELLO", NEAR)).message == Hello("r1", 0)


def test_hints_count_only_if_there_is_one_for_each_address() -> None:
    short = {**ABSOLUTE, "exist": ["M0a", "M0b"], "hints": [3]}
    assert decode(encoded(short, "MAU", ALL_MA)).message == AddressUpdate(
        "r1", 1, (Announced("M0a"), Announced("M0b")), absolute=True
    )
    unknown = {**ABSOLUTE, "exist": ["M0a", "M0b"], "hints": [77, 2]}
    assert decode(encoded(unknown, "MAU", ALL_MA)).message == AddressUpdate(
        "r1", 1, (Announced("M0a"), Announced("M0b", Treatment.CLOSEST)), absolute=True
    )


def test_newer_version_is_told_from_a_malformed_message() -> None:
    with pytest.raises(NewerVersion) as raised:
        decode(encoded({"id": "r7", "pv": 2, "whatever": 1}, "NEW", ALL))
    assert raised.value.router == "r7"


def without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {each: value for each, value in body.items() if each != key}


MALFORMED = {
    "no AMQP": b"\x00\x53\x77",
    "empty": b"",
    "no body": Message(None, to=ALL, application_properties={"opcode": "RA"}).encode()[:-1],
    "body is no map": encoded(["id", "r1"], "RA", ALL),
    "body is a sequence": Message(AmqpSequence([RA]), to=ALL, application_properties={"opcode": "RA"}).encode(),
    "body is data": encoded(b"x", "RA", ALL),
    "no opcode": Message(RA, to=ALL).encode(),
    "opcode is a number": encoded(RA, 5, ALL),
    "opcode is unknown": encoded(RA, "ZZZ", ALL),
    "no address": encoded(RA, "RA", None),
    "address of a client": encoded(RA, "RA", "orders"),
    "another area": encoded(RA, "RA", "_topo/1/all/qdrouter"),
    "hello to all": encoded(HELLO, "HELLO", ALL),
    "ra to a neighbour": encoded(RA, "RA", NEAR),
    "mau to the link state": encoded(ABSOLUTE, "MAU", ALL),
    "no id": encoded(without(RA, "id"), "RA", ALL),
    "id is a number": encoded({**RA, "id": 3}, "RA", ALL),
    "id is empty": encoded({**RA, "id": ""}, "RA", ALL),
    "id with a slash": encoded({**RA, "id": "r/1"}, "RA", ALL),
    "id with a space": encoded({**RA, "id": "r 1"}, "RA", ALL),
    "id is that of all": encoded({**RA, "id": "all"}, "RA", ALL),
    "id is long": encoded({**RA, "id": "r" * 256}, "RA", ALL),
    "no number": encoded(without(RA, "ls_seq"), "RA", ALL),
    "number is text": encoded({**RA, "ls_seq": "1"}, "RA", ALL),
    "number is true": encoded({**RA, "ls_seq": True}, "RA", ALL),
    "number is a time": encoded({**RA, "ls_seq": Timestamp(1)}, "RA", ALL),
    "number is negative": encoded({**RA, "mobile_seq": -1}, "RA", ALL),
    "number is too large": encoded({**RA, "instance": ULong(2**63)}, "RA", ALL),
    "version is text": encoded({**RA, "pv": "1"}, "RA", ALL),
    "seen is text": encoded({**HELLO, "seen": "r2"}, "HELLO", NEAR),
    "seen has a number": encoded({**HELLO, "seen": [1]}, "HELLO", NEAR),
    "too many seen": encoded({**HELLO, "seen": [f"r{n}" for n in range(129)]}, "HELLO", NEAR),
    "no link state": encoded(without(LSU, "ls"), "LSU", "_topo/0/r2/qdrouter"),
    "links of another": encoded({**LSU, "ls": {**LSU["ls"], "id": "r5"}}, "LSU", "_topo/0/r2/qdrouter"),
    "cost is zero": encoded({**LSU, "ls": {**LSU["ls"], "peers": {"r2": 0}}}, "LSU", "_topo/0/r2/qdrouter"),
    "cost is large": encoded({**LSU, "ls": {**LSU["ls"], "peers": {"r2": 2**31}}}, "LSU", "_topo/0/r2/qdrouter"),
    "peers are listed": encoded({**LSU, "ls": {**LSU["ls"], "peers": ["r2"]}}, "LSU", "_topo/0/r2/qdrouter"),
    "too many peers": encoded(
        {**LSU, "ls": {**LSU["ls"], "peers": {f"r{n}": 1 for n in range(129)}}}, "LSU", "_topo/0/r2/qdrouter"
    ),
    "all and changes": encoded({**CHANGES, "exist": []}, "MAU", ALL_MA),
    "neither all nor changes": encoded(without(ABSOLUTE, "exist"), "MAU", ALL_MA),
    "additions only": encoded(without(CHANGES, "del"), "MAU", ALL_MA),
    "deletions only": encoded(without(CHANGES, "add"), "MAU", ALL_MA),
    "all and additions": encoded({**ABSOLUTE, "add": []}, "MAU", ALL_MA),
    "addresses are text": encoded({**ABSOLUTE, "exist": "M0a"}, "MAU", ALL_MA),
    "address is empty": encoded({**ABSOLUTE, "exist": [""]}, "MAU", ALL_MA),
    "address is a number": encoded({**CHANGES, "del": [1]}, "MAU", ALL_MA),
    "trace is text": encoded(RA, "RA", ALL, trace="0/r1"),
    "trace has a number": encoded(RA, "RA", ALL, trace=[1]),
    "trace begins with another": encoded(RA, "RA", ALL, trace=["0/r2", "0/r1"]),
    "trace is long": encoded(RA, "RA", ALL, trace=["0/r1"] * 129),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_messages_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(InvalidControl) as raised:
        decode(MALFORMED[name])
    assert not isinstance(raised.value, NewerVersion)
    assert 0 < len(str(raised.value)) < 400


printable = st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S"), exclude_characters="/")
ids = st.text(printable, min_size=1, max_size=20).filter(is_router_id)
numbers = st.integers(0, 2**63 - 1)
keys = st.tuples(st.sampled_from("MCDEF"), st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)).map("".join)
announced = st.lists(st.builds(Announced, keys, st.sampled_from(Treatment) | st.none()), max_size=4).map(tuple)
several = st.lists(ids, max_size=4).map(tuple)
near = st.builds(Hello, ids, numbers, several)
far = (
    st.builds(Advertisement, ids, numbers, numbers, numbers)
    | st.builds(LinkStateRequest, ids)
    | st.builds(LinkStateUpdate, ids, numbers, numbers, st.dictionaries(ids, st.integers(1, 2**31 - 1), max_size=4))
    | st.builds(AddressRequest, ids, numbers)
    | st.builds(AddressUpdate, ids, numbers, announced, st.lists(keys, max_size=3).map(tuple))
    | st.builds(AddressUpdate, ids, numbers, announced, absolute=st.just(True))
)


@given(st.tuples(st.just(NEIGHBOUR), near) | st.tuples(ids | st.just(EVERY_ROUTER), far), several)
def test_what_is_encoded_is_decoded(parts: tuple[str, ControlMessage], way: tuple[str, ...]) -> None:
    to, message = parts
    control = Envelope(to, message, (message.router, *way))
    assert decode(control.encode()) == control


@given(st.sampled_from(CASES), st.data())
def test_damaged_messages_are_refused_or_valid(case: tuple[str, str], data: st.DataObject) -> None:
    payload = bytearray.fromhex(RECORDED[case[0]][case[1]])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        control = decode(damaged)
    except InvalidControl:
        return
    decode(control.passed("r9").encode())
    assert decode(Envelope(control.to, control.message, control.trace).encode()) == control
