"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from msgspec import field

from enmasse import settings
from services.mqtt_gateway.network.listeners import ListenerSettings
from services.mqtt_gateway.protocol.limits import Limits


class GatewaySettings(settings.RoutedSettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[ListenerSettings]
    limits: Limits = field(default_factory=Limits)
    allowed_origins: list[str] = field(default_factory=list)
    """Origins of web pages that may connect by WebSocket, beside those of the host that they connect to; `*`: all."""
