"""The control packets (3) and the properties of MQTT 5 (v5 2.2.2) as plain values. Nothing is checked in making them:
`reader` checks what comes, `encode` what goes out."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

V311: Final = 4  # the protocol level is the name of the version everywhere (v3.1.1 3.1.2.2)
V31: Final = 3
V5: Final = 5
BRIDGE: Final = 0x80
"""Bit that brokers such as mosquitto set in the protocol level of 3.1.1 when they connect as a bridge."""

NEVER: Final = 0xFFFF_FFFF
"""A session expiry interval that does not end (v5 3.1.2.11.2)."""

UserProperties: TypeAlias = tuple[tuple[str, str], ...]


class Properties(Struct, frozen=True, kw_only=True, gc=False, repr_omit_defaults=True):
    """The properties of a packet or of a will; None, or an empty tuple, is absent. Intervals in seconds."""

    payload_format: int | None = None  # 1: the payload is UTF-8
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    request_problem_info: int | None = None
    will_delay: int | None = None
    request_response_info: int | None = None
    response_info: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: UserProperties = ()  # in the order they came
    maximum_packet_size: int | None = None
    wildcard_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


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
