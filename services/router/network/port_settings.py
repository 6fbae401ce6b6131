"""Configuration of ports and connections. Times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from enmasse.identity.processes.roles import Listener
from enmasse.model.loopback import is_loopback
from services.router.routing.connection import DEFAULT_CAPACITY, INTER_ROUTER, NORMAL

ANONYMOUS, PLAIN, SCRAM = "ANONYMOUS", "PLAIN", "SCRAM-SHA-256"
EDGE = "edge"
NEIGHBOURS = (INTER_ROUTER, EDGE)
"""Roles of connections between routers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Attributes common to listeners and connectors.

    `port` is a number or the name of a service, `family` is IPv4, IPv6 or None (any). `sasl_mechanisms` empty: all
    applicable ones. `max_session_frames` None: the limit follows from the memory bounds. `properties`: of our Open.
    `cost`: of a connection to another router.
    """

    name: str
    role: str = NORMAL
    host: str = ""
    port: str = "amqp"
    family: str | None = None
    ssl_profile: str | None = None
    sasl_mechanisms: tuple[str, ...] = ()
    max_frame_size: int = 16384
    max_sessions: int = 32768
    max_session_frames: int | None = None
    idle_timeout: int = 16
    link_capacity: int = DEFAULT_CAPACITY
    cost: int = 1
    properties: Mapping[str, Any] = field(default_factory=dict)
    management: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig(EndpointConfig):
    """A port. `http`: it serves /healthz and /metrics (each if enabled) instead of AMQP. `handshake_timeout` 0: the
    engine's default. `access`: the listener is for processes of the suite, which authenticate and have the rights of
    their roles there. `sasl_plugin`: the listener is for users, whom this authentication service knows. `space`: the
    address space of all of its clients; None: each client chooses. `shared`: other routers of this machine listen at
    the port too."""

    authenticate_peer: bool = False
    handshake_timeout: int = 0
    failover_urls: str = ""
    access: Listener | None = None
    sasl_plugin: str | None = None
    space: str | None = None
    shared: bool = False
    http: bool = False
    healthz: bool = True
    metrics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig(EndpointConfig):
    """A connection that the router makes. `sasl_password`: see secrets.py."""

    verify_hostname: bool = True
    sasl_username: str | None = None
    sasl_password: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthService:
    """An authentication service. `realm`: what it is asked for, beside the address of the client."""

    name: str
    host: str
    port: str
    realm: str | None = None
    ssl_profile: str | None = None

    @property
    def protected(self) -> bool:
        """Return whether no other machine can read what is sent to the service."""
        return self.ssl_profile is not None or is_loopback(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class SslProfile:
    """Certificate files and TLS options. `password`: see secrets.py. `protocols` empty: TLS 1.2 and newer.
    `uid_format`: letters that select the parts of a certificate that form the user's name; None: its distinguished
    name."""

    name: str
    ca_cert_file: str | None = None
    cert_file: str | None = None
    private_key_file: str | None = None
    password: str | None = None
    ciphers: str | None = None
    protocols: tuple[str, ...] = ()
    uid_format: str | None = None
