"""Facts about the properties of MQTT 5 on the wire (v5 2.2.2.2, table 2-4), which `packets.Properties` states at
each field."""

from __future__ import annotations

from enum import Flag, auto
from typing import Final, NamedTuple

# types
FLAG: Final = 0  # one byte, 0 or 1
U16: Final = 1
U32: Final = 2
VARINT: Final = 3
TEXT: Final = 4
BINARY: Final = 5
PAIR: Final = 6
TOPIC: Final = 7


class In(Flag):
    """Packets that may have a property."""

    WILL = auto()
    PUBLISH_OF_CLIENT = auto()
    PUBLISH_OF_SERVER = auto()
    CONNECT = auto()
    CONNACK = auto()
    ACK = auto()  # PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK
    SUBSCRIBE = auto()
    UNSUBSCRIBE = auto()
    DISCONNECT_OF_CLIENT = auto()
    DISCONNECT_OF_SERVER = auto()
    AUTH = auto()
    PUBLISH = PUBLISH_OF_CLIENT | PUBLISH_OF_SERVER
    DISCONNECT = DISCONNECT_OF_CLIENT | DISCONNECT_OF_SERVER
    MESSAGE = WILL | PUBLISH


class OnWire(NamedTuple):
    """A property: its identifier, its type and the packets that may have it, all others must not."""

    code: int
    kind: int
    title: str
    packets: In
    clause: str = ""  # for a value that must not be 0
    zero: bool = True  # may be 0
