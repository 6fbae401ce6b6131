"""Performatives: the table against the specification by hand, round trips, refusals that name the field, and Proton."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.codec import decode, encode
from enmasse.amqp.codec.errors import DECODE_ERROR, NOT_FOUND, AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    DELETE_ON_CLOSE,
    RELEASED,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Array, Byte, Described, Int, Symbol, UByte, UInt, ULong, UShort
from tests.amqp.codec_values import OF_TYPE, TEXT, VALUES, proton_decode, same

ALL: dict[int, tuple[str, Any]] = {
    0x10: ("open", Open),
    0x11: ("begin", Begin),
    0x12: ("attach", Attach),
    0x13: ("flow", Flow),
    0x14: ("transfer", Transfer),
    0x15: ("disposition", Disposition),
    0x16: ("detach", Detach),
    0x17: ("end", End),
    0x18: ("close", Close),
    0x1D: ("error", Error),
    0x23: ("received", Received),
    0x24: ("accepted", Accepted),
    0x25: ("rejected", Rejected),
    0x26: ("released", Released),
    0x27: ("modified", Modified),
    0x28: ("source", Source),
    0x29: ("target", Target),
    0x30: ("coordinator", Coordinator),
    0x31: ("declare", Declare),
    0x32: ("discharge", Discharge),
    0x33: ("declared", Declared),
    0x34: ("transactional-state", TransactionalState),
    0x40: ("sasl-mechanisms", SaslMechanisms),
    0x41: ("sasl-init", SaslInit),
    0x42: ("sasl-challenge", SaslChallenge),
    0x43: ("sasl-response", SaslResponse),
    0x44: ("sasl-outcome", SaslOutcome),
}

_U16 = st.integers(0, 2**16 - 1)
_U32 = st.integers(0, 2**32 - 1)
_U64 = st.integers(0, 2**64 - 1)
_SYMBOL = OF_TYPE[Symbol]
_SYMBOLS = st.lists(_SYMBOL, max_size=3).map(tuple)
_FIELDS = st.dictionaries(_SYMBOL, VALUES, max_size=3)
_TAG = st.binary(max_size=32)
_MODE = st.integers(0, 1)
_EXPIRY = st.sampled_from(["link-detach", "session-end", "connection-close", "never"]).map(Symbol)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_ERROR = st.builds(Error, condition=_SYMBOL, description=_maybe(TEXT), info=_FIELDS)
_OUTCOME: st.SearchStrategy[Any] = st.one_of(
    st.just(ACCEPTED),
    st.just(RELEASED),
    st.builds(Rejected, error=_maybe(_ERROR)),
    st.builds(Modified, delivery_failed=st.booleans(), undeliverable_here=st.booleans(), message_annotations=_FIELDS),
    st.builds(Declared, txn_id=st.binary()),
)
_STATE = st.one_of(
    _OUTCOME,
    st.builds(Received, section_number=_U32, section_offset=_U64),
    st.builds(TransactionalState, txn_id=st.binary(), outcome=_maybe(_OUTCOME)),
)
_TERMINUS: dict[str, st.SearchStrategy[Any]] = {
    "address": _maybe(TEXT),
    "durable": st.integers(0, 2),
    "expiry_policy": _EXPIRY,
    "timeout": _U32,
    "dynamic": st.booleans(),
    "dynamic_node_properties": _FIELDS,
    "capabilities": _SYMBOLS,
}
_SOURCE = st.builds(
    Source,
    **_TERMINUS,
    distribution_mode=_maybe(_SYMBOL),
    filter=_FIELDS,
    default_outcome=_maybe(_OUTCOME),
    outcomes=_SYMBOLS,
)
_TARGET = st.builds(Target, **_TERMINUS) | st.builds(Coordinator, capabilities=_SYMBOLS)
_CAPABILITIES: dict[str, st.SearchStrategy[Any]] = {
    "offered_capabilities": _SYMBOLS,
    "desired_capabilities": _SYMBOLS,
    "properties": _FIELDS,
}
ANY: st.SearchStrategy[Any] = st.one_of(
    _STATE,
    _SOURCE,
    _TARGET,
    _ERROR,
    st.builds(
        Open,
        container_id=TEXT,
        hostname=_maybe(TEXT),
        max_frame_size=_U32,
        channel_max=_U16,
        idle_time_out=_maybe(_U32),
        outgoing_locales=_SYMBOLS,
        incoming_locales=_SYMBOLS,
        **_CAPABILITIES,
    ),
    st.builds(
        Begin,
        remote_channel=_maybe(_U16),
        next_outgoing_id=_U32,
        incoming_window=_U32,
        outgoing_window=_U32,
        handle_max=_U32,
        **_CAPABILITIES,
    ),
    st.builds(
        Attach,
        name=TEXT,
        handle=_U32,
        role=st.booleans(),
        snd_settle_mode=st.integers(0, 2),
        rcv_settle_mode=_MODE,
        source=_maybe(_SOURCE),
        target=_maybe(_TARGET),
        unsettled=_maybe(st.dictionaries(_TAG, _maybe(_STATE), max_size=3)),
        incomplete_unsettled=st.booleans(),
        initial_delivery_count=_maybe(_U32),
        max_message_size=_maybe(_U64),
        **_CAPABILITIES,
    ),
    st.builds(
        Flow,
        next_incoming_id=_maybe(_U32),
        incoming_window=_U32,
        next_outgoing_id=_U32,
        outgoing_window=_U32,
        handle=_maybe(_U32),
        delivery_count=_maybe(_U32),
        link_credit=_maybe(_U32),
        available=_maybe(_U32),
        drain=st.booleans(),
        echo=st.booleans(),
        properties=_FIELDS,
    ),
    st.builds(
        Transfer,
        handle=_U32,
        delivery_id=_maybe(_U32),
        delivery_tag=_maybe(_TAG),
        message_format=_maybe(_U32),
        settled=_maybe(st.booleans()),
        more=st.booleans(),
        rcv_settle_mode=_maybe(_MODE),
        state=_maybe(_STATE),
        resume=st.booleans(),
        aborted=st.booleans(),
        batchable=st.booleans(),
    ),
    st.builds(
        Disposition,
        role=st.booleans(),
        first=_U32,
        last=_maybe(_U32),
        settled=st.booleans(),
        state=_maybe(_STATE),
        batchable=st.booleans(),
    ),
    st.builds(Detach, handle=_U32, closed=st.booleans(), error=_maybe(_ERROR)),
    st.builds(End, error=_maybe(_ERROR)),
    st.builds(Close, error=_maybe(_ERROR)),
    st.builds(Declare, global_id=_maybe(st.binary())),
    st.builds(Discharge, txn_id=st.binary(), fail=st.booleans()),
    st.builds(SaslMechanisms, sasl_server_mechanisms=_SYMBOLS),
    st.builds(SaslInit, mechanism=_SYMBOL, initial_response=_maybe(st.binary()), hostname=_maybe(TEXT)),
    st.builds(SaslChallenge, challenge=st.binary()),
    st.builds(SaslResponse, response=st.binary()),
    st.builds(SaslOutcome, code=st.integers(0, 4), additional_data=_maybe(st.binary())),
)


def whole(raw: bytes) -> Any:
    value, pos = decode_performative(raw, 0, len(raw))
    assert pos == len(raw)
    return value


def refused(raw: bytes) -> str:
    with pytest.raises(AmqpError) as caught:
        decode_performative(raw, 0, len(raw))
    assert caught.value.condition == DECODE_ERROR
    return caught.value.description


def listed(code: int, *fields: Any) -> bytes:
    return encode(Described(ULong(code), list(fields)))


@given(ANY)
def test_round_trip(performative: Any) -> None:
    raw = encode_performative(performative)
    decoded = whole(raw)
    assert type(decoded) is type(performative)
    assert repr(decoded) == repr(performative)  # NaN is no reason to differ
    assert encode_performative(decoded) == raw
    assert encode([performative]) == encode([decode(raw)[0]])  # by the table and by the plain codec alike


@given(ANY)
def test_proton_reads_it_too(performative: Any) -> None:
    if isinstance(performative, Attach):
        performative.unsettled = {} if performative.unsettled else None  # Proton's Python cannot read binary keys
    value = proton_decode(encode_performative(performative))
    assert isinstance(value, proton.Described)
    assert ALL[value.descriptor][1] is type(performative)


def test_every_class_has_its_descriptors() -> None:
    for code, (name, cls) in ALL.items():
        with_fields = {
            "open": ["c"], "begin": [None, UInt(0), UInt(1), UInt(2)], "attach": ["n", UInt(0), True],
            "flow": [None, UInt(0), UInt(0), UInt(0)], "transfer": [UInt(0)], "disposition": [True, UInt(0)],
            "detach": [UInt(0)], "error": [Symbol("e")], "received": [UInt(0), ULong(0)], "discharge": [b"t"],
            "declared": [b"t"], "transactional-state": [b"t"], "sasl-mechanisms": [Symbol("PLAIN")],
            "sasl-init": [Symbol("PLAIN")], "sasl-challenge": [b""], "sasl-response": [b""], "sasl-outcome": [UByte(0)],
        }.get(name, [])  # fmt: skip
        by_code = whole(encode(Described(ULong(code), with_fields)))
        by_name = whole(encode(Described(Symbol(f"amqp:{name}:list"), with_fields)))
        assert type(by_code) is type(by_name) is cls
        assert by_code == by_name
        wide = b"\x00\x80" + code.to_bytes(8, "big") + encode(with_fields)
        assert whole(wide) == by_code
        assert encode_performative(by_code).startswith(bytes((0x00, 0x53, code)))
        too_many = [None] * 20
        assert f"{name}: 20 fields" in refused(encode(Described(ULong(code), too_many)))


def test_bytes_by_hand() -> None:
    raw = bytes.fromhex("005310 c01a 05 a10474657374 40 7000010000 6003ff 7000007530".replace(" ", ""))
    raw = raw[:4] + bytes((len(raw) - 5,)) + raw[5:]
    assert whole(raw) == Open(container_id="test", max_frame_size=65536, channel_max=1023, idle_time_out=30000)
    assert encode_performative(Open(container_id="test")) == b"\x00\x53\x10\xc0\x07\x01\xa1\x04test"
    assert encode_performative(Close()) == b"\x00\x53\x18\x45"
    assert encode_performative(ACCEPTED) == b"\x00\x53\x24\x45"
    disposition = Disposition(role=True, first=0, last=3, settled=True, state=ACCEPTED)
    assert encode_performative(disposition) == bytes.fromhex("005315c00a05414352034100532445")
    begin = Begin(remote_channel=1, next_outgoing_id=0, incoming_window=2048, outgoing_window=300)
    assert encode_performative(begin) == bytes.fromhex("005311c00f046000014370000008007000" + "00012c")
    transfer = Transfer(handle=0, delivery_id=1, delivery_tag=b"\x01", message_format=0, settled=False)
    raw = encode_performative(transfer)
    assert raw == bytes.fromhex("005314c00905435201a001014342")
    assert decode_performative(raw + b"\x00\x53\x77\x40", 0, len(raw) + 4) == (transfer, len(raw))


def test_defaults_and_nulls() -> None:
    opened = whole(listed(0x10, "c", None, None, None, None, None, None, None, None, None))
    assert opened == whole(listed(0x10, "c")) == Open(container_id="c")
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (4294967295, 65535, None)
    assert (opened.offered_capabilities, opened.properties) == ((), {})
    attach = whole(listed(0x12, "n", UInt(0), False))
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.incomplete_unsettled) == (2, 0, False)
    assert (attach.source, attach.target, attach.unsettled) == (None, None, None)
    assert whole(encode_performative(Attach(name="n", handle=0, role=False, unsettled={}))).unsettled == {}
    source = whole(listed(0x28))
    assert source == Source()
    assert (source.expiry_policy, source.durable, source.timeout, source.filter) == ("session-end", 0, 0, {})
    assert whole(listed(0x14, UInt(1))).settled is None
    one, other = whole(listed(0x28)), whole(listed(0x28))
    one.filter["k"] = 1
    assert other.filter == {} == Source().filter


def test_a_field_of_several_symbols() -> None:
    for wire in (Symbol("A"), Array(Symbol, [Symbol("A")])):
        assert whole(listed(0x30, wire)).capabilities == ("A",)
    assert whole(listed(0x30, Array(Symbol, [Symbol("A"), Symbol("B")]))).capabilities == ("A", "B")
    assert whole(listed(0x30, Array(Symbol, []))).capabilities == ()
    assert "capabilities: a symbol or an array of symbols" in refused(listed(0x30, "A"))
    assert "capabilities: a symbol or an array of symbols" in refused(listed(0x30, Array(str, ["A"])))
    assert "capabilities: a symbol or an array of symbols" in refused(listed(0x30, [Symbol("A")]))
    described = Array(Symbol, [Symbol("A")], ULong(1))
    assert "capabilities: a symbol or an array of symbols" in refused(listed(0x30, described))


def test_states_without_fields_are_shared() -> None:
    for raw in (b"\x00\x53\x24\x45", b"\x00\x53\x24\xc0\x01\x00", b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00"):
        assert whole(raw) is ACCEPTED
    assert whole(encode(Described(Symbol("amqp:released:list"), []))) is RELEASED
    assert Accepted() is ACCEPTED
    assert Released() is RELEASED
    assert len({ACCEPTED, RELEASED, Accepted(), Released()}) == 2
    assert whole(encode_performative(Disposition(role=True, first=1, state=ACCEPTED))).state is ACCEPTED
    assert whole(encode_performative(TransactionalState(txn_id=b"t", outcome=ACCEPTED))).outcome is ACCEPTED


def test_unsettled_states_are_states() -> None:
    unsettled = {b"1": ACCEPTED, b"2": None, b"3": Received(section_number=1, section_offset=2)}
    attach = whole(encode_performative(Attach(name="n", handle=0, role=True, unsettled=unsettled)))
    assert attach.unsettled == unsettled
    assert attach.unsettled[b"1"] is ACCEPTED
    once = b"\xa0\x01t\x40"
    for pairs, ok in ((once, True), (once + once, False)):
        size, count = len(pairs) + 1, len(pairs) // 2
        fields = b"\xa1\x01n\x43\x41\x40\x40\x40\x40\xc1" + bytes((size, count)) + pairs
        raw = b"\x00\x53\x12\xc0" + bytes((len(fields) + 1, 8)) + fields
        if ok:
            assert whole(raw).unsettled == {b"t": None}
        else:
            assert "attach: unsettled: a map with equal keys" in refused(raw)


MANDATORY = [
    (0x10, [], "open: container-id"),
    (0x11, [None, UInt(0), UInt(1)], "begin: outgoing-window"),
    (0x11, [], "begin: next-outgoing-id, incoming-window, outgoing-window"),
    (0x12, ["n", UInt(0)], "attach: role"),
    (0x13, [None, UInt(0), None, UInt(0)], "flow: next-outgoing-id"),
    (0x14, [], "transfer: handle"),
    (0x15, [None, UInt(0)], "disposition: role"),
    (0x16, [], "detach: handle"),
    (0x1D, [None, "text"], "error: condition"),
    (0x23, [UInt(0)], "received: section-offset"),
    (0x40, [], "sasl-mechanisms: sasl-server-mechanisms"),
    (0x41, [], "sasl-init: mechanism"),
    (0x44, [], "sasl-outcome: code"),
]


@pytest.mark.parametrize(("code", "fields", "named"), MANDATORY, ids=[row[2] for row in MANDATORY])
def test_a_missing_mandatory_field_is_named(code: int, fields: list[Any], named: str) -> None:
    assert f"{named} is missing" in refused(listed(code, *fields))


WRONG = [
    (0x10, [Symbol("c")], "open: container-id: a string expected, symbol found"),
    (0x10, ["c", None, ULong(1)], "open: max-frame-size: a uint expected, ulong found"),
    (0x10, ["c", None, None, UInt(1)], "open: channel-max: a ushort expected"),
    (0x10, ["c", None, None, None, 1], "open: idle-time-out: a uint expected, int found"),
    (0x10, ["c"] + [None] * 8 + [[]], "open: properties: a map expected, list found"),
    (0x10, ["c"] + [None] * 8 + [{1: 2}], "open: properties: the key 1 is not a symbol"),
    (0x11, [UInt(0)], "begin: remote-channel: a ushort expected"),
    (0x12, ["n", Int(0)], "attach: handle: a uint expected"),
    (0x12, ["n", UInt(0), 0], "attach: role: a boolean expected"),
    (0x12, ["n", UInt(0), True, UByte(3)], "attach: snd-settle-mode: a number of 0 to 2 expected, 3 found"),
    (0x12, ["n", UInt(0), True, Byte(1)], "attach: snd-settle-mode: a ubyte expected, byte found"),
    (0x12, ["n", UInt(0), True, None, UByte(2)], "attach: rcv-settle-mode: a number of 0 to 1"),
    (0x12, ["n", UInt(0), True, None, None, "q"], "attach: source: a described list expected"),
    (0x12, ["n", UInt(0), True, None, None, Target()], "attach: source: a source expected, target found"),
    (0x12, ["n", UInt(0), True, None, None, None, Source()], "attach: target: a target expected, source found"),
    (0x12, ["n", UInt(0), True, None, None, Source(), None, []], "attach: unsettled: a map expected"),
    (0x12, ["n", UInt(0), True, None, None, None, None, {"t": None}], "attach: unsettled: a binary expected"),
    (0x12, ["n", UInt(0), True, None, None, None, None, {b"t": 1}], "attach: unsettled: a described list expected"),
    (
        0x14,
        [UInt(0)] + [None] * 6 + [Described(ULong(0x27), [True, 1])],
        "state: modified: undeliverable-here: a boolean",
    ),
    (0x12, ["n", UInt(0), True] + [None] * 7 + [UInt(1)], "attach: max-message-size: a ulong expected"),
    (0x14, [UInt(0), None, b"t" * 33], "transfer: delivery-tag: a tag of at most 32 bytes"),
    (0x14, [UInt(0), None, "t"], "transfer: delivery-tag: a binary expected"),
    (0x14, [UInt(0)] + [None] * 6 + [Source()], "transfer: state: a delivery state expected, source found"),
    (0x14, [UInt(0)] + [None] * 6 + [Described(ULong(0x99), [])], "transfer: state: unknown descriptor 0x99"),
    (0x14, [UInt(0)] + [None] * 6 + [Described(ULong(0x24), {})], "transfer: state: accepted: a list expected"),
    (0x14, [UInt(0)] + [None] * 6 + [Described(ULong(0x24), [1])], "transfer: state: accepted: 1 fields, there are 0"),
    (0x15, [True, UInt(0), None, UInt(0)], "disposition: settled: a boolean expected"),
    (0x25, [Described(ULong(0x1D), ["text"])], "rejected: error: error: condition: a symbol expected"),
    (0x27, [None, None, {1: 2}], "modified: message-annotations: the key 1"),
    (0x28, [Symbol("q")], "source: address: a string expected"),
    (0x28, [None, UInt(3)], "source: durable: a number of 0 to 2"),
    (0x28, [None, None, Symbol("soon")], "source: expiry-policy: one of link-detach, session-end"),
    (0x28, [None] * 8 + [Received(section_number=0, section_offset=0)], "source: default-outcome: an outcome expected"),
    (0x34, [b"t", Described(ULong(0x34), [b"t"])], "transactional-state: outcome: an outcome expected"),
    (0x41, ["PLAIN"], "sasl-init: mechanism: a symbol expected"),
    (0x44, [UByte(5)], "sasl-outcome: code: a number of 0 to 4"),
    (0x44, [UShort(0)], "sasl-outcome: code: a ubyte expected"),
]


@pytest.mark.parametrize(("code", "fields", "reason"), WRONG, ids=[row[2] for row in WRONG])
def test_a_field_of_another_type_is_named(code: int, fields: list[Any], reason: str) -> None:
    assert reason in refused(listed(code, *fields))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "too early"),
        (b"\x00", "too early"),
        (b"\x00\x53\x10", "too early"),
        (b"\x40\x40\x40", "a described list expected"),
        (b"\x00\x53\x99\x45", "unknown descriptor 0x99"),
        (b"\x00\x53\x10\xc1\x01\x00", "open: a list expected"),
        (b"\x00\x55\x10\x45", "unknown descriptor 16"),
        (b"\x00\x45\x45", "unknown descriptor []"),
        (b"\x00\xa3\x04open\x45", "unknown descriptor 'open'"),
        (b"\x00\x53\x18\xc0\x02\x00\x40", "close: 1 bytes too many"),
        (b"\x00\x53\x18\xc0\x01\x01", "close: error: .*too early"),
        (b"\x00\x53\x18\xc0\x09\x01\x40", "does not fit"),
    ],
)
def test_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(AmqpError, match=reason.replace("[", r"\[")) as caught:
        decode_performative(raw, 0, len(raw))
    assert caught.value.condition == DECODE_ERROR


def test_nesting_in_fields_is_bounded() -> None:
    raw = encode({Symbol("k"): 1})
    value: Any = None
    for _ in range(31):
        value = [value]
    deep = encode(value)
    body = b"\xa1\x01c" + b"\x40" * 8 + b"\xd1" + (4 + 3 + len(deep)).to_bytes(4, "big") + (2).to_bytes(4, "big")
    body += b"\xa3\x01k" + deep
    raw = b"\x00\x53\x10\xd0" + (4 + len(body)).to_bytes(4, "big") + (10).to_bytes(4, "big") + body
    assert "open: properties: nested deeper" in refused(raw)


def test_composites_in_composites_are_bounded() -> None:
    raw = b"\x40"
    for _ in range(2000):  # rejected(error=rejected(error=…
        raw = b"\x00\x53\x25\xd0" + (4 + len(raw)).to_bytes(4, "big") + (1).to_bytes(4, "big") + raw
    assert "rejected: error: rejected: error: " in refused(raw)


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="container_id"):
        Open()  # type: ignore[call-arg]  # wrong on purpose
    wrong: list[tuple[Any, str]] = [
        (Open(container_id=None), "open: container-id is missing"),  # type: ignore[arg-type]  # wrong on purpose
        (Open(container_id="c", max_frame_size=-1), "open: max-frame-size: -1 is not a uint"),
        (Open(container_id="c", channel_max=65536), "open: channel-max: 65536 is not a ushort"),
        (Open(container_id="c", hostname=1), "open: hostname"),  # type: ignore[arg-type]  # wrong on purpose
        (Open(container_id="c", offered_capabilities="A"), "open: offered-capabilities"),  # type: ignore[arg-type]  # wrong on purpose
        (Open(container_id="c", properties={"k": object()}), "open: properties: .*no AMQP form"),
        (Attach(name="n", handle=0, role=True, source=Target()), "attach: source"),  # type: ignore[arg-type]  # wrong on purpose
        (Transfer(handle=0, state=End()), "transfer: state"),  # type: ignore[arg-type]  # wrong on purpose
    ]
    for performative, reason in wrong:
        with pytest.raises(ValueError, match=reason):
            encode_performative(performative)


def test_plain_strings_become_symbols_where_symbols_belong() -> None:
    source = Source(outcomes=("amqp:accepted:list",), capabilities=("queue",), filter={"k": 1})  # type: ignore[arg-type]  # plain strings on purpose
    assert same(
        decode(encode_performative(source))[0].value[-1],
        Array(Symbol, [Symbol("queue")]),
    )
    filters = whole(encode_performative(source)).filter
    assert type(next(iter(filters))) is Symbol
    dynamic = Source(dynamic=True, dynamic_node_properties={"lifetime-policy": DELETE_ON_CLOSE})
    assert whole(encode_performative(dynamic)).dynamic_node_properties == {"lifetime-policy": DELETE_ON_CLOSE}


def test_errors_there_and_back() -> None:
    error = AmqpError(NOT_FOUND, "no such address", {"address": "q"})
    sent = whole(encode_performative(Detach(handle=0, closed=True, error=Error.of(error)))).error
    back = sent.exception()
    assert (back.condition, back.description, back.info) == (NOT_FOUND, "no such address", {"address": "q"})
    assert str(back) == "amqp:not-found: no such address"
    assert str(AmqpError("x:y")) == "x:y"
    assert Error.of(AmqpError("x:y")) == Error(condition=Symbol("x:y"))
