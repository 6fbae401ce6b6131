"""Random packets for property tests: every field of every packet, within what its version and its sender can say."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from enmasse.mqtt import on_wire, properties, reasons
from enmasse.mqtt.packets import (
    NONE,
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
topic = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
level = st.one_of(
    st.just("+"), st.text(st.characters(exclude_characters="\0+#/", exclude_categories=["Cs"]), max_size=5)
)
filter = (
    st.builds(
        lambda levels, many: "/".join([*levels, *(["#"] if many else [])]), st.lists(level, max_size=5), st.booleans()
    )
    .filter(bool)
    .filter(lambda f: not f.startswith("$share"))
)
shared = st.builds(lambda f: f"$share/g/{f}", filter)
binary = st.binary(max_size=40)
u16 = st.integers(0, 0xFFFF)
packet_id = st.integers(1, 0xFFFF)
qos = st.integers(0, 2)

_KINDS: dict[int, st.SearchStrategy[Any]] = {
    on_wire.FLAG: st.integers(0, 1),
    on_wire.U16: u16,
    on_wire.U32: st.integers(0, 0xFFFF_FFFF),
    on_wire.TEXT: text,
    on_wire.BINARY: binary,
    on_wire.TOPIC: topic,
    on_wire.PAIR: st.lists(st.tuples(text, text), min_size=1, max_size=4).map(tuple),
    on_wire.VARINT: st.integers(1, properties.BIGGEST_VARINT),
}


@st.composite
def some_properties(draw: st.DrawFn, allowed: Any) -> Properties:
    values: dict[str, Any] = {}
    for found in draw(st.lists(st.sampled_from(list(allowed.values())), unique=True, max_size=6)):
        if found.kind == on_wire.VARINT:
            most = 4 if allowed is properties.PUBLISH_OF_SERVER else 1
            values[found.field] = tuple(draw(st.lists(_KINDS[found.kind], min_size=1, max_size=most)))
        else:
            value = draw(_KINDS[found.kind])
            values[found.field] = value or 1 if not found.zero else value
    if "auth_data" in values:
        values.setdefault("auth_method", "m")
    return Properties(**values) if values else NONE


def of_version(version: int, allowed: Any) -> st.SearchStrategy[Properties]:
    return some_properties(allowed) if version == V5 else st.just(NONE)


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(st.booleans()):
        will = Will(
            draw(topic), draw(binary), draw(qos), draw(st.booleans()), draw(of_version(version, properties.WILL))
        )
    username = draw(st.none() | text)
    password = draw(st.none() | binary) if version == V5 or username is not None else None
    values = draw(of_version(version, properties.CONNECT))
    return Connect(draw(text), draw(st.booleans()), draw(u16), username, password, will, values, version)


@st.composite
def publishes(draw: st.DrawFn, version: int, of_client: bool) -> Publish:
    allowed = properties.PUBLISH_OF_CLIENT if of_client else properties.PUBLISH_OF_SERVER
    values = draw(of_version(version, allowed))
    name = draw(topic)
    if values.topic_alias is not None and draw(st.booleans()):
        name = ""
    level_of = draw(qos)
    payload = draw(st.one_of(binary, st.binary(min_size=100, max_size=20_000)))
    return Publish(
        name,
        payload,
        level_of,
        draw(st.booleans()),
        bool(level_of) and draw(st.booleans()),
        draw(packet_id) if level_of else 0,
        values,
    )


@st.composite
def acks(draw: st.DrawFn, version: int) -> Packet:
    kinds: list[tuple[Any, frozenset[int]]] = [
        (PubAck, reasons.PUBACK),
        (PubRec, reasons.PUBREC),
        (PubRel, reasons.PUBREL),
        (PubComp, reasons.PUBCOMP),
    ]
    kind, codes = draw(st.sampled_from(kinds))
    packet: Packet
    if version == V311:
        packet = kind(draw(packet_id))
    else:
        packet = kind(draw(packet_id), draw(st.sampled_from(sorted(codes))), draw(some_properties(properties.ACK)))
    return packet


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Packet:
    found = []
    for one in draw(st.lists(st.one_of(filter, shared), min_size=1, max_size=5)):
        if version == V311:
            found.append(Subscription(one, draw(qos)))
        else:
            no_local = draw(st.booleans()) and not one.startswith("$share")
            found.append(Subscription(one, draw(qos), no_local, draw(st.booleans()), draw(st.integers(0, 2))))
    return Subscribe(draw(packet_id), tuple(found), draw(of_version(version, properties.SUBSCRIBE)))


@st.composite
def unsubscribes(draw: st.DrawFn, version: int) -> Packet:
    filters = tuple(draw(st.lists(filter, min_size=1, max_size=5)))
    return Unsubscribe(draw(packet_id), filters, draw(of_version(version, properties.UNSUBSCRIBE)))


@st.composite
def answers(draw: st.DrawFn, version: int) -> Packet:
    values = draw(of_version(version, properties.ACK))
    if draw(st.booleans()):
        legal = sorted(reasons.SUBACK) if version == V5 else [0, 1, 2, 0x80]
        return SubAck(draw(packet_id), tuple(draw(st.lists(st.sampled_from(legal), min_size=1, max_size=5))), values)
    if version == V311:
        return UnsubAck(draw(packet_id))
    codes = draw(st.lists(st.sampled_from(sorted(reasons.UNSUBACK)), min_size=1, max_size=5))
    return UnsubAck(draw(packet_id), tuple(codes), values)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> ConnAck:
    reason = draw(st.sampled_from(sorted(reasons.CONNACK) if version == V5 else range(6)))
    present = not reason and draw(st.booleans())
    return ConnAck(present, reason, draw(of_version(version, properties.CONNACK)))


@st.composite
def ends(draw: st.DrawFn, version: int, of_client: bool) -> Packet:
    if version == V311:
        return Disconnect()
    if of_client:
        codes, allowed = reasons.DISCONNECT_OF_CLIENT, properties.DISCONNECT_OF_CLIENT
    else:
        codes, allowed = reasons.DISCONNECT_OF_SERVER, properties.DISCONNECT_OF_SERVER
    return Disconnect(draw(st.sampled_from(sorted(codes))), draw(some_properties(allowed)))


@st.composite
def auths(draw: st.DrawFn, of_client: bool) -> Packet:
    codes = reasons.AUTH_OF_CLIENT if of_client else reasons.AUTH_OF_SERVER
    values = Properties(
        auth_method=draw(text), auth_data=draw(st.none() | binary), reason_string=draw(st.none() | text)
    )
    return Auth(draw(st.sampled_from(sorted(codes))), values)


def packets(version: int, of_client: bool) -> st.SearchStrategy[Packet]:
    """Any packet but CONNECT and CONNACK."""
    found: list[st.SearchStrategy[Any]] = [publishes(version, of_client), acks(version)]
    if of_client:
        found += [subscribes(version), unsubscribes(version), st.just(PingReq()), ends(version, True)]
    else:
        found += [answers(version), st.just(PingResp())]
        if version == V5:
            found.append(ends(version, False))
    if version == V5:
        found.append(auths(of_client))
    return st.one_of(found)


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, bool, list[Packet]]:
    """(version, whether a client sends it, packets from the first of a connection on)."""
    version = draw(st.sampled_from([V311, V5]))
    of_client = draw(st.booleans())
    first: Packet = draw(connects(version)) if of_client else draw(connacks(version))
    return version, of_client, [first, *draw(st.lists(packets(version, of_client), max_size=8))]
