"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from enmasse.bridge.gateway_ports import GatewayListener
from enmasse.bridge.gateway_settings import GatewaySettings


class HttpListener(GatewayListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port: `http`, `https` (TLS)."""

    kind: Literal["http", "https"]


class HttpGatewaySettings(GatewaySettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[HttpListener]
    allowed_origins: list[str] = field(default_factory=list)
    """Origins of web pages that may send requests, beside those of the host that they are sent to; `*`: all."""
    max_body: Annotated[int, Meta(ge=1024)] = 16 << 20
    """Bytes of the body of a request."""
    max_memory: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    """Bytes of all bodies whose outcome is not known yet."""
    max_connections: Annotated[int, Meta(ge=1)] = 10_000
