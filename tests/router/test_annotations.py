"""Annotations of routers, and those that are facts to the suite: no client may inject them; others pass as they are."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol, ulong
from proton.reactor import AtMostOnce
from proton.utils import SendException

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Described, Symbol, ULong
from enmasse.amqp.messages.scan import find_to
from enmasse.identity.annotations import FACTS
from services.router.routing.links.annotations import Stripper, complete
from tests.router.harness import LINK_ROUTE, PREFIX, Broker, Management, RouterProcess, post, pump, pump_until, wait_for
from tests.router.world import World


def stripped(payload: bytes) -> bytes:
    return Stripper().strip(payload)


OWN: dict[Any, Any] = {symbol("x-opt-qd.to"): "elsewhere", symbol("x-opt-qd.trace"): ["r9"], symbol("x-opt-qd."): 0}
FORGED: dict[Any, Any] = OWN | {symbol(each.name + "ADDRESS" * each.is_prefix): "elsewhere" for each in FACTS}
FILLING: dict[Any, Any] = {symbol(f"x-opt-filling-{n:04}"): "x" * 100 for n in range(1500)}
OTHERS: dict[Any, Any] = {symbol("x-opt-mine"): "kept", ulong(7): [1, 2, 3]}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("others", [{}, OTHERS])
@pytest.mark.parametrize("size", [10, 100_000, 300_000])
@pytest.mark.parametrize("kind", ["balanced", "multicast", "relay"])
def test_what_a_client_injects_nobody_receives(
    router: RouterProcess, address: str, multicast: str, kind: str, size: int, others: dict[Any, Any], durable: bool
) -> None:
    to = multicast if kind == "multicast" else address
    connection = router.connect()
    receivers = [connection.create_receiver(to, credit=2, name=f"r{i}") for i in range(2 if kind == "multicast" else 1)]
    sender = connection.create_sender(None if kind == "relay" else to)
    sent = Message(address=to, durable=durable, annotations={**others, **FORGED}, body="x" * size, properties={"p": 1})
    sent.instructions = {symbol("hop"): 1}
    post(sender, sent)
    plain = Message(address=to, durable=durable, body="x" * size, annotations=OTHERS)
    post(sender, plain)
    for receiver in receivers:
        got = receiver.receive()
        assert (got.annotations or {}) == others
        assert (got.body, got.properties, got.durable, got.instructions) == (
            sent.body,
            sent.properties,
            durable,
            sent.instructions,
        )
        assert receiver.receive().annotations == OTHERS
    connection.close()


def test_a_broker_gives_none_on(router: RouterProcess, management: Management, broker: Broker) -> None:
    connector, address, auto_link = (
        PREFIX + "connector",
        PREFIX + "router.config.address",
        PREFIX + "router.config.autoLink",
    )
    management.create(connector, "b", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(address, "annotated", pattern="annotated", waypoint=True)
    management.create(auto_link, "annotated-in", address="annotated", direction="in", containerId="b0")
    connection = router.connect()
    receiver = connection.create_receiver("annotated", credit=1)
    wait_for(lambda: broker.link("annotated", sender=True))
    broker.put("annotated", Message(annotations={**OTHERS, **OWN}, body="stored"))
    got = receiver.receive()
    assert (got.body, got.annotations) == ("stored", OTHERS)
    receiver.accept()
    connection.close()
    for kind, name in ((auto_link, "annotated-in"), (address, "annotated"), (connector, "b")):
        management.delete(kind, name)


@pytest.mark.parametrize("settled", [False, True])
def test_a_client_injects_none_by_a_routed_link(
    router: RouterProcess, management: Management, broker: Broker, settled: bool
) -> None:
    """Of whichever size, also into what is forwarded while it arrives, and among what has none."""
    connector = PREFIX + "connector"
    management.create(connector, "b", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(LINK_ROUTE, "forged", prefix="forged", direction="in", containerId="b0")
    wait_for(lambda: management.one(LINK_ROUTE, "forged")["operStatus"] == "active")
    connection = router.connect()
    options = [AtMostOnce()] if settled else None
    sender = connection.create_sender("forged", options=options)
    sizes = [10, 100_000, 300_000, 10]
    for size in sizes:
        for durable in (False, True):
            for stated in ({**OTHERS, **FORGED}, OTHERS, None):
                sender.send(Message(annotations=stated, durable=durable, body={"x": "x" * size}))
    wanted = [(size, stated) for size in sizes for _ in range(2) for stated in (OTHERS, OTHERS, None)]
    pump_until(lambda: len(broker.stored.get("forged", ())) == len(wanted), "all messages", connection)
    sizes_found = [len(each["x"]) for each in broker.stored["forged"]]
    assert list(zip(sizes_found, broker.annotations["forged"], strict=True)) == wanted
    if not settled:
        with pytest.raises(SendException):
            sender.send(Message(annotations={**FILLING, **FORGED}, body={"x": "x" * 200_000}))
        sender.send(Message(body={"x": "next"}))
        assert broker.stored["forged"][len(wanted) :] == [{"x": "next"}]
    connection.close()
    management.delete(LINK_ROUTE, "forged")
    management.delete(connector, "b")


@pytest.mark.parametrize("kind", ["balanced", "relay"])
def test_annotations_that_hide_others_behind_many_are_refused(router: RouterProcess, address: str, kind: str) -> None:
    """Of what is forwarded while it arrives: the router does not wait for more than 64 KiB of them."""
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=2)
    sender = connection.create_sender(None if kind == "relay" else address)
    large = Message(address=address, annotations={**FILLING, **FORGED}, body="x" * 200_000)
    with pytest.raises(SendException):
        sender.send(large)
    post(sender, Message(address=address, body="next"))
    assert receiver.receive().body == "next"
    connection.close()


def test_a_routed_link_passes_every_byte(router: RouterProcess, management: Management, broker: Broker) -> None:
    connector = PREFIX + "connector"
    management.create(connector, "b", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(LINK_ROUTE, "bytes", prefix="bytes", direction="out", containerId="b0")
    wait_for(lambda: management.one(LINK_ROUTE, "bytes")["operStatus"] == "active")
    connection = router.connect()
    receiver = connection.create_receiver("bytes", credit=1)
    broker.put("bytes", Message(annotations=OWN, body="x"))
    assert receiver.receive().annotations == OWN
    receiver.accept()
    pump(connection)
    connection.close()
    management.delete(LINK_ROUTE, "bytes")
    management.delete(connector, "b")


@pytest.mark.parametrize("value", ["no", "out"])
def test_to_keep_them_is_refused(management: Management, value: str) -> None:
    for kind in ("listener", "connector"):
        body = {"host": "127.0.0.1", "port": "1", "stripAnnotations": value}
        status, text, _ = management.call("CREATE", body, type=PREFIX + kind, name="bad")
        assert status == 501 and "stripAnnotations" in text


def test_names_that_readers_find_elsewhere_are_made_others() -> None:
    """What cannot be decoded, and a header that has more than it should: a broker may find the annotations all the
    same."""
    stripper = Stripper(client=True)
    forged = encode(Described(ULong(0x72), {Symbol("x-opt-death"): 1, Symbol("k"): 1}))
    for front in (
        forged[:3] + b"\xc1\xff" + forged[5:],
        forged + forged,
        CLEAN + forged,
        encode(Described(ULong(0x72), {1: 1, Symbol("x-opt-death"): 1})),
        b"\x00\x53\x70\xc0" + bytes([len(forged) + 1]) + b"\x00" + forged,
    ):
        changed = stripper.strip(front + BODY)
        assert b"x-opt-death" not in changed and len(changed) == len(front + BODY), front
        assert stripper.strip(changed) == changed


HEADER = encode(Described(ULong(0x70), [True]))
ROUTERS = encode(Described(ULong(0x72), {Symbol("x-opt-qd.to"): "a", Symbol("k"): 1}))
CLEAN = encode(Described(ULong(0x72), {Symbol("k"): 1}))
BODY = encode(Described(ULong(0x75), b"body"))


def unusual(section: bytes) -> bytes:
    """The same section with its descriptor in eight bytes."""
    assert section[1] == 0x53
    return b"\x00\x80" + section[2].to_bytes(8, "big") + section[3:]


@pytest.mark.parametrize("form", [bytes, unusual])
@pytest.mark.parametrize("header", [b"", HEADER, b"\x00\x53\x70\x45"])
def test_in_every_encoding(header: bytes, form: Any) -> None:
    head = form(header) if header else b""
    assert stripped(head + form(ROUTERS) + BODY) == head + CLEAN + BODY
    whole = head + form(CLEAN) + BODY
    assert stripped(whole) is whole


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"", HEADER, b"\x00\x53\x70\x45", b"\x00"]),
            st.sampled_from([b"", CLEAN, ROUTERS, b"\x00Srx-opt-qd."]),
            st.sampled_from([b"", BODY, BODY + b"x-opt-qd.", b"\x00\x53\x73\x45" + BODY]),
        )
    )
)
def test_what_is_remembered_of_a_link_changes_no_other_message(parts: list[tuple[bytes, bytes, bytes]]) -> None:
    stripper = Stripper()
    for each in parts:
        payload = b"".join(each)
        assert stripper.strip(payload) == stripped(payload)


def test_what_only_looks_like_one_is_left_alone() -> None:
    for payload in (
        BODY + b"x-opt-qd.",
        encode(Described(ULong(0x75), b"x-opt-qd.to")),
        b"",
        b"\x00Srx-opt-qd.",
        b"\x00",
    ):
        assert stripped(payload) is payload


def test_the_beginning_is_complete_when_the_bare_message_has_begun() -> None:
    head = HEADER + ROUTERS
    assert [complete((head + BODY)[:n]) for n in range(len(head) + 1)] == [False] * (len(head) + 1)
    assert complete(head + BODY) and complete(BODY)


_FRONT = Message(annotations={**OTHERS, **OWN}, properties={"p": 1}, body="x").encode()
_UNKNOWN_SECTION = bytes.fromhex("005370d0000000050000000141005332d1000000070000000241415373d0000000")


@settings(deadline=None, max_examples=500)
@given(
    st.sampled_from([_FRONT, _UNKNOWN_SECTION, b"\0Sr" + b"\xd0\0\0\0\xff\0\0\0\1" * 2000]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=5),
    st.integers(0, 80),
)
def test_what_cannot_be_decoded_ends_no_connection(front: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    """What a router reads or takes away of a message is refused with an AMQP error at most."""
    data = bytearray(front)
    for at, value in changes:
        data[min(at, len(data) - 1)] = value
    message = bytes(data[: len(data) - cut]) if cut < len(data) else b""
    assert isinstance(stripped(message), bytes)
    with contextlib.suppress(AmqpError):
        find_to(message)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x77\xa1\x09x",
        b"\x00\x53\x77\x40\x00\x53\x73\x45",
        b"\x00\x53\x75\xa0\x01x\xff\xff\xff",
        b"\x00\x53\x73\xc0\x07\x03\x40\x40\xa1\x02\xff\xfe\x00\x53\x75\xa0\x01x",
    ],
    ids=["a body that is cut off", "properties behind the body", "garbage behind the body", "a `to` that is not UTF-8"],
)
def test_what_the_router_does_not_look_at_is_passed_on_as_it_came(payload: bytes) -> None:
    world = World()
    came: list[bytes] = []
    world.receiver.on_delivery = lambda link, delivery_id, settled, payload, *_: came.append(payload)
    world.sender.send(payload, object())
    world.pump()
    assert came == [payload]
