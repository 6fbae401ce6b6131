"""The control packets (3) and the properties of MQTT 5 (v5 2.2.2) as plain values. Nothing is checked in making them:
`reader` checks what comes, `encode` what goes out."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Struct

from enmasse.mqtt.on_wire import BINARY, FLAG, PAIR, TEXT, TOPIC, U16, U32, VARINT, In, OnWire

V311: Final = 4  # the protocol level is the name of the version everywhere (v3.1.1 3.1.2.2)
V31: Final = 3
V5: Final = 5
BRIDGE: Final = 0x80
"""Bit that brokers such as mosquitto set in the protocol level of 3.1.1 when they connect as a bridge."""

NEVER: Final = 0xFFFF_FFFF
"""A session expiry interval that does not end (v5 3.1.2.11.2)."""

UserProperties: TypeAlias = tuple[tuple[str, str], ...]


class Properties(Struct, frozen=True, kw_only=True, gc=False, repr_omit_defaults=True):
    """The properties of a packet or of a will, and what each is on the wire; None, or an empty tuple, is absent.
    Intervals in seconds. They are sent in the order of these fields. A subscription identifier stands in no PUBLISH of
    a client (v5 MQTT-3.3.4-6), a session expiry interval in no DISCONNECT of a server (v5 MQTT-3.14.2-2)."""

    # 1: the payload is UTF-8
    payload_format: Annotated[int | None, OnWire(1, FLAG, "payload format indicator", In.MESSAGE)] = None
    message_expiry: Annotated[int | None, OnWire(2, U32, "message expiry interval", In.MESSAGE)] = None
    content_type: Annotated[str | None, OnWire(3, TEXT, "content type", In.MESSAGE, "v5 MQTT-3.3.2-19")] = None
    response_topic: Annotated[str | None, OnWire(8, TOPIC, "response topic", In.MESSAGE, "v5 MQTT-3.3.2-14")] = None
    correlation_data: Annotated[bytes | None, OnWire(9, BINARY, "correlation data", In.MESSAGE)] = None
    subscription_ids: Annotated[
        tuple[int, ...],
        OnWire(11, VARINT, "subscription identifier", In.PUBLISH_OF_SERVER | In.SUBSCRIBE, "v5 3.8.2.1.2", zero=False),
    ] = ()
    session_expiry: Annotated[
        int | None, OnWire(17, U32, "session expiry interval", In.CONNECT | In.CONNACK | In.DISCONNECT_OF_CLIENT)
    ] = None
    assigned_client_id: Annotated[str | None, OnWire(18, TEXT, "assigned client identifier", In.CONNACK)] = None
    server_keep_alive: Annotated[int | None, OnWire(19, U16, "server keep alive", In.CONNACK)] = None
    auth_method: Annotated[str | None, OnWire(21, TEXT, "authentication method", In.CONNECT | In.CONNACK | In.AUTH)] = (
        None
    )
    auth_data: Annotated[bytes | None, OnWire(22, BINARY, "authentication data", In.CONNECT | In.CONNACK | In.AUTH)] = (
        None
    )
    request_problem_info: Annotated[int | None, OnWire(23, FLAG, "request problem information", In.CONNECT)] = None
    will_delay: Annotated[int | None, OnWire(24, U32, "will delay interval", In.WILL)] = None
    request_response_info: Annotated[int | None, OnWire(25, FLAG, "request response information", In.CONNECT)] = None
    response_info: Annotated[str | None, OnWire(26, TEXT, "response information", In.CONNACK)] = None
    server_reference: Annotated[
        str | None, OnWire(28, TEXT, "server reference", In.CONNACK | In.DISCONNECT_OF_SERVER)
    ] = None
    reason_string: Annotated[
        str | None, OnWire(31, TEXT, "reason string", In.CONNACK | In.ACK | In.DISCONNECT | In.AUTH)
    ] = None
    receive_maximum: Annotated[
        int | None, OnWire(33, U16, "receive maximum", In.CONNECT | In.CONNACK, "v5 3.1.2.11.3", zero=False)
    ] = None
    topic_alias_maximum: Annotated[int | None, OnWire(34, U16, "topic alias maximum", In.CONNECT | In.CONNACK)] = None
    topic_alias: Annotated[int | None, OnWire(35, U16, "topic alias", In.PUBLISH, "v5 MQTT-3.3.2-8", zero=False)] = None
    maximum_qos: Annotated[int | None, OnWire(36, FLAG, "maximum QoS", In.CONNACK)] = None
    retain_available: Annotated[int | None, OnWire(37, FLAG, "retain available", In.CONNACK)] = None
    user_properties: Annotated[UserProperties, OnWire(38, PAIR, "user property", ~In(0))] = ()  # in the order they came
    maximum_packet_size: Annotated[
        int | None, OnWire(39, U32, "maximum packet size", In.CONNECT | In.CONNACK, "v5 3.1.2.11.4", zero=False)
    ] = None
    wildcard_available: Annotated[int | None, OnWire(40, FLAG, "wildcard subscription available", In.CONNACK)] = None
    subscription_ids_available: Annotated[
        int | None, OnWire(41, FLAG, "subscription identifiers available", In.CONNACK)
    ] = None
    shared_available: Annotated[int | None, OnWire(42, FLAG, "shared subscription available", In.CONNACK)] = None


NONE: Final = Properties()
"""No properties. One object, so that a quick path can compare: `packet.properties is NONE`."""


class Will(Struct, gc=False):
    """The will message of a CONNECT."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


class Connect(Struct, gc=False):
    """CONNECT. `version`: V311 or V5; `clean`: Clean Session or Clean Start; `keep_alive`: seconds, 0 turns it off;
    `bridge`: the client is a broker that has set the bridge bit in its protocol level (3.1.1)."""

    client_id: str = ""
    clean: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NONE
    version: int = V5
    bridge: bool = False


class ConnAck(Struct, gc=False):
    """`reason` is one of `reasons`, in 3.1.1 a return code (`reasons.v3_return_code`)."""

    session_present: bool = False
    reason: int = 0
    properties: Properties = NONE


class Publish(Struct, gc=False):
    """`packet_id` is 0 at QoS 0. `topic` is "" only if a topic alias stands for it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NONE


class PubAck(Struct, gc=False):
    """Acknowledgement of a QoS 1 PUBLISH."""

    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class PubRec(Struct, gc=False):
    """First answer to a QoS 2 PUBLISH."""

    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class PubRel(Struct, gc=False):
    """Answer to a PUBREC."""

    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class PubComp(Struct, gc=False):
    """Answer to a PUBREL: the exchange has ended."""

    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class Subscription(Struct, gc=False, frozen=True):
    """One filter of a SUBSCRIBE with its options (v5 3.8.3.1); all but `qos` are MQTT 5's."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, gc=False):
    """SUBSCRIBE: filters with their options."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NONE


class SubAck(Struct, gc=False):
    """Answer to a SUBSCRIBE, with a code for each filter."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NONE


class Unsubscribe(Struct, gc=False):
    """UNSUBSCRIBE: filters."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE


class UnsubAck(Struct, gc=False):
    """`codes` is empty in 3.1.1."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NONE


class PingReq(Struct, gc=False):
    """PINGREQ, which a client sends to show that it is alive."""


class PingResp(Struct, gc=False):
    """Answer to a PINGREQ."""


class Disconnect(Struct, gc=False):
    """DISCONNECT, with a reason from MQTT 5 on."""

    reason: int = 0
    properties: Properties = NONE


class Auth(Struct, gc=False):
    """AUTH of MQTT 5."""

    reason: int = 0
    properties: Properties = NONE


Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
