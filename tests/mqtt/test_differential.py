"""Our codec beside those of paho-mqtt and amqtt, where these are right.

Where they are not: amqtt 0.12 knows 3.1.1 only, and takes QoS 3, reserved bits, wrong flags, packet identifier 0, a
SUBSCRIBE without a filter, topics with U+0000 and surrogates, a password alone, and bytes behind the last field.
paho-mqtt 2.2 takes a response topic with wildcards, and no maximum packet size beyond 268,435,455. Our tests of
malformed packets say what is right.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import paho.mqtt.client as paho
import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.mqtt.suback import SubackPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsuback import UnsubackPacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from enmasse.mqtt import encode, properties
from enmasse.mqtt.fields import FieldCursor
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Packet,
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
from enmasse.mqtt.reader import Reader
from tests.kit.waiting import DEADLINE
from tests.mqtt import values


async def _amqtt_reads(data: bytes) -> Any:
    reader = BufferReader(data)
    header = await MQTTFixedHeader.from_stream(reader)
    assert header is not None
    return await packet_class(header).from_stream(reader, fixed_header=header)


def amqtt_reads(data: bytes) -> Any:
    return asyncio.run(_amqtt_reads(data))


def amqtt_makes(packet: Packet) -> bytes | None:
    """The packet as amqtt says it; None for those that its builders do not make."""
    made: Any
    if isinstance(packet, Publish):
        topic, number = packet.topic, packet.packet_id or None
        made = PublishPacket.build(topic, packet.payload, number, packet.dup, packet.qos, packet.retain)
    elif isinstance(packet, PubAck | PubRec | PubRel | PubComp):
        kinds: dict[type, Any] = {
            PubAck: PubackPacket,
            PubRec: PubrecPacket,
            PubRel: PubrelPacket,
            PubComp: PubcompPacket,
        }
        made = kinds[type(packet)].build(packet.packet_id)
    elif isinstance(packet, Subscribe):
        made = SubscribePacket.build([(one.filter, one.qos) for one in packet.subscriptions], packet.packet_id)
    elif isinstance(packet, Unsubscribe):
        made = UnsubscribePacket.build(list(packet.filters), packet.packet_id)
    elif isinstance(packet, SubAck):
        made = SubackPacket.build(packet.packet_id, list(packet.codes))
    elif isinstance(packet, UnsubAck):
        made = UnsubackPacket.build(packet.packet_id)
    elif isinstance(packet, ConnAck):
        made = ConnackPacket.build(int(packet.session_present), packet.reason)
    else:
        return None
    return bytes(made.to_bytes())


@given(st.one_of(values.packets(V311, True), values.packets(V311, False), values.connacks(V311)))
def test_amqtt_makes_and_reads_the_same(packet: Packet) -> None:
    ours = encode.encode(packet, V311, True)
    theirs = amqtt_makes(packet)
    if theirs is not None:
        assert theirs == ours
        assert bytes(amqtt_reads(ours).to_bytes()) == ours


@given(values.connects(V311))
def test_amqtt_reads_our_connect(packet: Connect) -> None:
    if packet.client_id == "":
        packet.client_id = "c"  # amqtt makes up another
    ours = encode.encode(packet, V311, True)
    read = amqtt_reads(ours)
    assert (read.client_id, read.clean_session_flag, read.keep_alive) == (
        packet.client_id,
        packet.clean,
        packet.keep_alive,
    )
    assert read.username == packet.username
    if packet.will is not None:
        assert (read.will_topic, bytes(read.will_message)) == (packet.will.topic, packet.will.payload)
        assert (read.will_qos, read.will_retain_flag) == (packet.will.qos, packet.will.retain)


# --- paho: the properties -------------------------------------------------------------------------------------------

PAHO_NAMES = {
    "payload_format": "PayloadFormatIndicator",
    "message_expiry": "MessageExpiryInterval",
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "session_expiry": "SessionExpiryInterval",
    "assigned_client_id": "AssignedClientIdentifier",
    "server_keep_alive": "ServerKeepAlive",
    "auth_method": "AuthenticationMethod",
    "auth_data": "AuthenticationData",
    "request_problem_info": "RequestProblemInformation",
    "will_delay": "WillDelayInterval",
    "request_response_info": "RequestResponseInformation",
    "response_info": "ResponseInformation",
    "server_reference": "ServerReference",
    "reason_string": "ReasonString",
    "receive_maximum": "ReceiveMaximum",
    "topic_alias_maximum": "TopicAliasMaximum",
    "topic_alias": "TopicAlias",
    "maximum_qos": "MaximumQoS",
    "retain_available": "RetainAvailable",
    "maximum_packet_size": "MaximumPacketSize",
    "wildcard_available": "WildcardSubscriptionAvailable",
    "subscription_ids_available": "SubscriptionIdentifierAvailable",
    "shared_available": "SharedSubscriptionAvailable",
}
KINDS = [
    (properties.CONNECT, PacketTypes.CONNECT),
    (properties.CONNACK, PacketTypes.CONNACK),
    (properties.PUBLISH_OF_SERVER, PacketTypes.PUBLISH),
    (properties.WILL, PacketTypes.WILLMESSAGE),
    (properties.ACK, PacketTypes.PUBACK),
    (properties.SUBSCRIBE, PacketTypes.SUBSCRIBE),
    (properties.UNSUBSCRIBE, PacketTypes.UNSUBSCRIBE),
    (properties.AUTH, PacketTypes.AUTH),
]


def to_paho(ours: Properties, kind: int) -> PahoProperties:
    theirs = PahoProperties(kind)
    for field, name in PAHO_NAMES.items():
        value = getattr(ours, field)
        if value is not None:
            setattr(theirs, name, value)
    if ours.user_properties:
        theirs.UserProperty = list(ours.user_properties)
    for one in ours.subscription_ids:
        theirs.SubscriptionIdentifier = one
    return theirs


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), values.some_properties(kind[0]))))
def test_paho_makes_properties_that_we_read_and_the_other_way_round(made: Any) -> None:
    (allowed, kind), ours = made
    if (ours.maximum_packet_size or 0) > properties.BIGGEST_VARINT:
        ours = replace(ours, maximum_packet_size=properties.BIGGEST_VARINT)
    theirs = to_paho(ours, kind)
    raw = theirs.pack()
    cursor = FieldCursor("X", raw, 0, len(raw))
    assert properties.read(cursor, allowed) == ours and cursor.left() == 0
    read, size = PahoProperties(kind).unpack(properties.write(ours, allowed))
    assert read.json() == theirs.json() and size == len(raw)


@given(st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2))
def test_paho_makes_the_same_subscription_options(qos: int, no_local: bool, published: bool, handling: int) -> None:
    theirs = SubscribeOptions(qos, no_local, published, handling).pack()
    ours = encode.encode(Subscribe(1, (Subscription("a", qos, no_local, published, handling),)), V5, True)
    assert ours[-1:] == theirs


# --- paho: whole packets, over a socket -----------------------------------------------------------------------------


class Recorder:
    """A server that notes what paho sends and answers it, in our codec."""

    def __init__(self, *deliver: Publish) -> None:
        self.packets: list[Packet] = []
        self.deliver = deliver
        self.port = 0
        self.done = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Recorder:
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self._thread.join(DEADLINE)

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._connection, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await asyncio.to_thread(self.done.wait)

    async def _connection(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader = Reader()
        while data := await stream.read(65536):
            for packet in reader.feed(data):
                self.packets.append(packet)
                for answer in self._answers(packet):
                    writer.write(encode.encode(answer, reader.version))
        writer.close()

    def _answers(self, packet: Packet) -> list[Packet]:
        if isinstance(packet, Connect):
            return [ConnAck()]
        if isinstance(packet, Subscribe):
            return [SubAck(packet.packet_id, tuple(one.qos for one in packet.subscriptions)), *self.deliver]
        if isinstance(packet, Unsubscribe):
            return [UnsubAck(packet.packet_id, (0,) * len(packet.filters))]
        if isinstance(packet, Publish):
            return [] if not packet.qos else [(PubAck if packet.qos == 1 else PubRec)(packet.packet_id)]
        if isinstance(packet, PubRel):
            return [PubComp(packet.packet_id)]
        return [PubRel(packet.packet_id)] if isinstance(packet, PubRec) else []


@pytest.mark.parametrize("version", [V311, V5])
def test_what_paho_sends_is_read_and_what_we_send_paho_reads(version: int) -> None:
    v5 = version == V5
    rich = Properties(content_type="a/b", correlation_data=b"\0\xff", user_properties=(("k", "v"), ("k", "w")))
    delivered = [
        Publish("d/0", b"zero"),
        Publish("d/1", b"one", 1, True, packet_id=7),
        Publish("d/2", b"\0" * 300, 2, packet_id=65535),
    ]
    if v5:
        delivered[1].properties = rich
    got: list[Any] = []
    with Recorder(*delivered) as server:
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id="device é",
            protocol=paho.MQTTProtocolVersion.MQTTv5 if v5 else paho.MQTTProtocolVersion.MQTTv311,
        )
        client.username_pw_set("user", "sécret")
        client.will_set("w/é", b"gone", 2, True)
        came = threading.Event()
        connected, acked = threading.Event(), threading.Event()

        def on_message(c: Any, u: Any, message: Any) -> None:
            got.append(message)
            if len(got) == 3:
                came.set()

        client.on_message = on_message
        client.on_connect = lambda *a: connected.set()
        client.on_unsubscribe = lambda *a: acked.set()
        client.connect("127.0.0.1", server.port, 30)
        client.loop_start()
        assert connected.wait(DEADLINE)
        client.subscribe([("d/#", 2), ("e/+", 1)] if not v5 else [("d/#", SubscribeOptions(2, True, True, 1))])
        assert came.wait(DEADLINE)
        with_properties = {"properties": to_paho(rich, PacketTypes.PUBLISH)} if v5 else {}
        for qos in (0, 1, 2):
            client.publish(f"p/{qos}", b"x" * (qos * 100), qos, qos == 1, **with_properties).wait_for_publish(60)
        client.unsubscribe(["d/#", "x"])
        assert acked.wait(DEADLINE)
        client.disconnect()
        client.loop_stop()
    assert [(m.topic, m.payload, m.qos, m.retain) for m in got] == [
        (m.topic, m.payload, m.qos, m.retain) for m in delivered
    ]
    if v5:
        assert got[1].properties.json() == to_paho(rich, PacketTypes.PUBLISH).json()
    connect = server.packets[0]
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.keep_alive, connect.username) == ("device é", 30, "user")
    assert connect.password == "sécret".encode() and connect.version == version
    assert connect.will == Will("w/é", b"gone", 2, True)
    published = [packet for packet in server.packets if isinstance(packet, Publish)]
    assert [(p.topic, len(p.payload), p.qos, p.retain) for p in published] == [
        ("p/0", 0, 0, False),
        ("p/1", 100, 1, True),
        ("p/2", 200, 2, False),
    ]
    assert all((p.properties == rich) == v5 for p in published)
    (subscribed,) = [packet for packet in server.packets if isinstance(packet, Subscribe)]
    wanted = (Subscription("d/#", 2, True, True, 1),) if v5 else (Subscription("d/#", 2), Subscription("e/+", 1))
    assert subscribed.subscriptions == wanted
    assert [p.filters for p in server.packets if isinstance(p, Unsubscribe)] == [("d/#", "x")]
    assert {type(p) for p in server.packets} >= {PubAck, PubRec, PubComp, PubRel}
