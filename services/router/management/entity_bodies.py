"""Converts bodies of entities, as returned by `schema.read_body`, into typed configuration of routing and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from enmasse.identity.processes.roles import Listener
from services.router.management.schema import BAD_REQUEST, ManagementError
from services.router.network.port_settings import AuthService, ConnectorConfig, ListenerConfig, SslProfile
from services.router.routing.configuration import (
    BALANCED,
    AddressConfig,
    AutoLinkConfig,
    LinkRouteConfig,
    PolicyConfig,
)
from services.router.routing.connection import DEFAULT_CAPACITY

Body = Mapping[str, Any]
T = TypeVar("T")


def checked(make: Callable[[], T]) -> T:
    """Return the result of `make`; its ValueError becomes ManagementError 400."""
    try:
        return make()
    except ValueError as error:
        raise ManagementError(BAD_REQUEST, str(error)) from None


def address_config(identity: int, body: Body) -> AddressConfig:
    """Convert the body of an address. Raises ManagementError 400, like the functions below."""
    ingress, egress = body["ingressPhase"], body["egressPhase"]
    config = checked(
        lambda: AddressConfig(
            identity,
            body["name"] or f"router.config.address/{identity}",
            body["prefix"],
            body["pattern"],
            body["distribution"] or BALANCED,
            0 if ingress is None else ingress,
            (1 if body["waypoint"] else 0) if egress is None else egress,
            -1 if body["priority"] is None else body["priority"],
        )
    )
    if body["fallback"]:
        if config.ingress_phase or config.egress_phase:
            raise ManagementError(
                BAD_REQUEST, "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
            )
        raise ManagementError(BAD_REQUEST, "Fallback addresses are not supported by this router")
    return config


def link_route_config(identity: int, body: Body) -> LinkRouteConfig:
    """Return the link route that a body states. Raises ManagementError."""
    return checked(
        lambda: LinkRouteConfig(
            identity,
            body["name"] or f"router.config.linkRoute/{identity}",
            body["direction"],
            body["prefix"],
            body["pattern"],
            body["connection"],
            body["containerId"],
            body["addExternalPrefix"],
            body["delExternalPrefix"],
        )
    )


def auto_link_config(identity: int, body: Body) -> AutoLinkConfig:
    """Return the auto-link that a body states. Raises ManagementError."""
    config = checked(
        lambda: AutoLinkConfig(
            identity,
            body["name"] or f"router.config.autoLink/{identity}",
            body["address"],
            body["direction"],
            body["phase"],
            body["connection"],
            body["containerId"],
            body["externalAddress"],
        )
    )
    if body["fallback"]:
        raise ManagementError(BAD_REQUEST, "Fallback auto-links are not supported by this router")
    return config


def policy_config(body: Body) -> PolicyConfig:
    """Return the settings of the policy entity."""
    return PolicyConfig(
        max_connections=body["maxConnections"],
        max_message_size=body["maxMessageSize"],
    )


def _endpoint(name: str, body: Body) -> dict[str, Any]:
    return {
        "name": name,
        "role": body["role"],
        "host": body["host"],
        "port": body["port"],
        "family": body["socketAddressFamily"],
        "ssl_profile": body["sslProfile"],
        "sasl_mechanisms": tuple((body["saslMechanisms"] or "").split()),
        "max_frame_size": body["maxFrameSize"],
        "max_sessions": body["maxSessions"],
        "max_session_frames": body["maxSessionFrames"],
        "idle_timeout": body["idleTimeoutSeconds"],
        "link_capacity": body["linkCapacity"] or DEFAULT_CAPACITY,
        "cost": body["cost"],
        "properties": {str(key): value for key, value in (body["openProperties"] or {}).items()},
        "management": body["management"],
    }


def listener_config(name: str, body: Body) -> ListenerConfig:
    """Return the listener that a body states."""
    return ListenerConfig(
        **_endpoint(name, body),
        authenticate_peer=body["authenticatePeer"],
        handshake_timeout=body["initialHandshakeTimeoutSeconds"],
        failover_urls=body["failoverUrls"] or "",
        access=None if body["access"] is None else Listener(body["access"]),
        sasl_plugin=body["saslPlugin"] or None,
        space=body["space"] or None,
        shared=body["shared"],
        http=body["http"],
        healthz=body["healthz"],
        metrics=body["metrics"],
    )


def connector_config(name: str, body: Body) -> ConnectorConfig:
    """Return the connector that a body states."""
    return ConnectorConfig(
        **_endpoint(name, body),
        verify_hostname=body["verifyHostname"],
        sasl_username=body["saslUsername"],
        sasl_password=body["saslPassword"],
    )


def auth_service(name: str, body: Body) -> AuthService:
    """Return the authentication service that a body states."""
    return AuthService(
        name=name, host=body["host"], port=body["port"], realm=body["realm"], ssl_profile=body["sslProfile"]
    )


def ssl_profile(name: str, body: Body) -> SslProfile:
    """Return the TLS profile `name`; its files are not read yet."""
    return SslProfile(
        name=name,
        ca_cert_file=body["caCertFile"],
        cert_file=body["certFile"],
        private_key_file=body["privateKeyFile"],
        password="file:" + body["passwordFile"] if body["passwordFile"] else body["password"],
        ciphers=body["ciphers"],
        protocols=tuple((body["protocols"] or "").split()),
        uid_format=body["uidFormat"],
    )
