"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from enmasse.bridge.gateway_ports import GatewayListener
from enmasse.bridge.gateway_settings import GatewaySettings


class CoapListener(GatewayListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of UDP: `coap`."""

    kind: Literal["coap"]


class CoapGatewaySettings(GatewaySettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[CoapListener]
    max_body: Annotated[int, Meta(ge=1024)] = 1 << 20
    """Bytes of a message."""
    max_memory: Annotated[int, Meta(ge=1 << 18)] = 64 << 20
    """Bytes of messages that come in blocks or have no outcome, and again of messages that wait for observers."""
    max_remembered: Annotated[int, Meta(ge=1 << 16)] = 128 << 20
    """Bytes of endpoints and of requests, which are remembered to recognise their repetition."""
