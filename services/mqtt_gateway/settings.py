"""The gateway's settings (docs/contracts.md)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from enmasse.model.mqtt_limits import Limits
from enmasse.process import settings
from services.mqtt_gateway.network.listeners import ListenerSettings


class GatewaySettings(settings.RoutedSettings, frozen=True, kw_only=True):
    """`name` is its container-id."""

    listeners: list[ListenerSettings]
    limits: Limits = field(default_factory=Limits)
    allowed_origins: list[str] = field(default_factory=list)
    """Origins of web pages that may connect by WebSocket, beside those of the host that they connect to; `*`: all."""
    authserv: settings.HostPort | None = None
    """The authentication service, which clients log in at as soon as there are users; None: every client may do
    everything."""
    logins: settings.HostPort | None = None
    """The listener for passwords of the authentication service, which needs `credential`; None: a connection to
    `authserv` for each login."""
    authserv_ca: str | None = None
    """File in PEM with the authority of its certificate; None: no TLS, on loopback only."""
    unauthorized_publish: Literal["close", "drop"] = "close"
    """Effect of a publish of a client of 3.1.1 without permission, which cannot be answered: its connection is closed,
    or the message is acknowledged, dropped and counted."""
