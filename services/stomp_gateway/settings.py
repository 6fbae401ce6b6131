"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from enmasse.bridge.gateway_settings import GatewaySettings


class StompListener(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port: `stomp`, `stomps` (TLS), `stompws` (WebSocket), `stompwss` (over TLS). `cert`, `key`: files in PEM, for
    TLS. `client_ca`: file in PEM with the authority of clients' certificates; None: clients are not asked for one.
    `shared`: other gateways listen there too. `space`: address space of all clients of this port; None: each says
    which."""

    kind: Literal["stomp", "stomps", "stompws", "stompwss"]
    host: str
    port: int
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    shared: bool = False
    space: str | None = None


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
