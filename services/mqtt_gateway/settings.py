"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from enmasse.bridge.gateway_settings import GatewaySettings
from enmasse.model.mqtt_limits import Limits
from services.mqtt_gateway.network.listeners import ListenerSettings


class MqttGatewaySettings(GatewaySettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[ListenerSettings]
    limits: Limits = field(default_factory=Limits)
    allowed_origins: list[str] = field(default_factory=list)
    """Origins of web pages that may connect by WebSocket, beside those of the host that they connect to; `*`: all."""
    unauthorized_publish: Literal["close", "drop"] = "close"
    """Effect of a publish of a client of 3.1.1 without permission, which cannot be answered: its connection is closed,
    or the message is acknowledged, dropped and counted."""
