"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from enmasse.bridge.gateway_ports import GatewayListener
from enmasse.bridge.gateway_settings import GatewaySettings


class StompListener(GatewayListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port: `stomp`, `stomps` (TLS), `stompws` (WebSocket), `stompwss` (over TLS)."""

    kind: Literal["stomp", "stomps", "stompws", "stompwss"]


class StompGatewaySettings(GatewaySettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[StompListener]
    allowed_origins: list[str] = field(default_factory=list)
    """Origins of web pages that may connect by WebSocket, beside those of the gateway's own host; `*`: all."""
    max_body: Annotated[int, Meta(ge=1024)] = 16 << 20
    """Bytes of the body of a frame."""
    max_memory: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    """Bytes of all frames that are not complete."""
    max_connections: Annotated[int, Meta(ge=1)] = 10_000
