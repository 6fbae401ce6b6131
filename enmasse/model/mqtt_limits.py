"""Limits of what MQTT clients may use: the setting `limits` of the gateway."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MOST_GATEWAYS = 64
"""MQTT gateways that share ports: of a suite, or of an address space."""
Count = Annotated[int, Meta(ge=1)]
NEVER = 0xFFFFFFFF
U16 = Annotated[int, Meta(ge=1, le=65535)]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a gateway; each is positive."""

    connections: Count = 20_000
    """Clients that are connected at once; more are refused (reason 0x97, in 3.1.1 return code 3)."""
    opening: Count = 500
    """CONNECTs that are being answered at once; more wait."""
    connect_seconds: Count = 10
    """From the socket to the CONNECT."""
    packet_seconds: Count = 20
    """From the first byte of a packet to its last, and one second more for each 32 KiB of it."""
    stall_seconds: Count = 60
    """How long a client may leave unread what was sent to it."""
    memory: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    """Bytes that all clients together may keep waiting: packets that are not complete or cannot be processed yet,
    messages that a client does not take, output that it does not read. Beyond it, the clients that have kept most for
    longest are disconnected (reason 0x97)."""
    max_packet: Annotated[int, Meta(ge=1024, le=268_435_460)] = 1 << 20
    """Bytes of a packet from a client."""
    receive_maximum: U16 = 65535
    """Messages of QoS 1 and 2 of a client of MQTT 5 that are not acknowledged yet. There are clients that send all they
    have queued when they are connected again, whatever the server asks for: a lower number would keep them away."""
    unanswered: U16 = 256
    """Messages of QoS 1 and 2 of a client that wait for an outcome. No more is read from it meanwhile."""
    window: U16 = 256
    """Messages to a client that are not settled yet, from each source; what the client allows, if that is less. Four
    times as many while they are of 1 KiB or less on average."""
    qos_2_window: U16 = 20
    """Messages of QoS 2 to a client of 3.1.1 that are not complete. It cannot say how many it takes: mosquitto as a
    bridge acknowledges and discards those beyond its own `max_inflight_messages`, 20 by default."""
    topic_aliases: Annotated[int, Meta(ge=0, le=65535)] = 16
    """Topic aliases of a client, in each direction."""
    subscriptions: Count = 1000
    """Filters of a client; more are refused (reason 0x97)."""
    client_id: U16 = 1024
    """Bytes of a client identifier."""
    session_expiry: Annotated[int, Meta(ge=0, le=NEVER)] = NEVER
    """The longest time in seconds that a session is kept without a connection; clients of MQTT 5 are informed. NEVER:
    whatever they ask for. Sessions of 3.1.1, which end with no time, have this one."""
    keep_alive: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The longest keep alive of clients of MQTT 5, in seconds; 0: whatever they ask for, also none."""
