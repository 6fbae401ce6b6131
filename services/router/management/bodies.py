"""Converts bodies of entities, as returned by `schema.read_body`, into typed configuration of routing and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from enmasse.identity.roles import Listener
from services.router.management.schema import BAD_REQUEST, VHOST_GROUP, ManagementError, coerce
from services.router.network.configuration import AuthService, ConnectorConfig, ListenerConfig, SslProfile
from services.router.routing.configuration import (
    BALANCED,
    AddressConfig,
    AutoLinkConfig,
    GroupConfig,
    LinkRouteConfig,
    PolicyConfig,
    VhostConfig,
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


def _words(text: Any) -> tuple[str, ...]:
    """Return names that are separated by commas or white space."""
    return tuple(str(text or "").replace(",", " ").split())


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
        vhosts_enabled=body["enableVhostPolicy"],
        default_vhost=body["defaultVhost"],
    )


_UNSUPPORTED = {
    "maxFrameSize": "use the listener's",
    "maxSessions": "use the listener's",
    "maxSessionWindow": "leave it out: memory is bounded all the same",
}


def group_config(vhost: str, name: str, given: Body) -> GroupConfig:
    """Convert the body of a vhost's group. Raises ManagementError 400 for unknown or unsupported attributes."""
    where = f"vhost '{vhost}', group '{name}'"
    attributes = {attribute.name: attribute for attribute in VHOST_GROUP}
    body = {attribute.name: attribute.default for attribute in VHOST_GROUP}
    for key, value in given.items():
        attribute = attributes.get(str(key))
        if attribute is None:
            raise ManagementError(BAD_REQUEST, f"{where}: unknown attribute '{key}'")
        if value is None:
            continue
        try:
            value = body[attribute.name] = coerce(attribute, value)
        except ManagementError as error:
            raise ManagementError(BAD_REQUEST, f"{where}: {error}") from None
        if attribute.kind == "int" and value < 0:
            raise ManagementError(BAD_REQUEST, f"{where}: {key} must not be negative, it is {value}")
        if value and key in _UNSUPPORTED:
            text = f"{where}: {key} is not supported by this router; {_UNSUPPORTED[str(key)]}"
            raise ManagementError(BAD_REQUEST, text)
    if not body["allowUserIdProxy"]:
        text = f"{where}: allowUserIdProxy false is not supported by this router: it does not look at user-ids"
        raise ManagementError(BAD_REQUEST, text)
    for names, pattern in (("sources", "sourcePattern"), ("targets", "targetPattern")):
        if body[names] is not None and body[pattern] is not None:
            raise ManagementError(BAD_REQUEST, f"{where}: give {names} or {pattern}, not both")
    return GroupConfig(
        users=_words(body["users"]),
        remote_hosts=_words(body["remoteHosts"]),
        sources=_words(body["sources"]),
        targets=_words(body["targets"]),
        source_patterns=_words(body["sourcePattern"]),
        target_patterns=_words(body["targetPattern"]),
        max_connections_per_user=body["maxConnectionsPerUser"],
        max_connections_per_host=body["maxConnectionsPerHost"],
        max_message_size=body["maxMessageSize"],
        max_senders=body["maxSenders"],
        max_receivers=body["maxReceivers"],
        dynamic_sources=body["allowDynamicSource"],
        anonymous_senders=body["allowAnonymousSender"],
        waypoint_links=body["allowWaypointLinks"],
        close_connections=body["allowAdminStatusUpdate"],
    )


def vhost_config(body: Body) -> VhostConfig:
    """Return a vhost's settings. Raises ManagementError for groups of a wrong form."""
    hostname: str = body["hostname"]
    groups = body["groups"] or {}
    if not all(isinstance(group, dict) for group in groups.values()):
        raise ManagementError(BAD_REQUEST, f"vhost '{hostname}': groups must be a map of maps")
    return VhostConfig(
        hostname=hostname,
        aliases=_words(body["aliases"]),
        max_connections=body["maxConnections"],
        max_connections_per_user=body["maxConnectionsPerUser"],
        max_connections_per_host=body["maxConnectionsPerHost"],
        max_message_size=body["maxMessageSize"],
        allow_unknown_user=body["allowUnknownUser"],
        groups={str(name): group_config(hostname, str(name), group) for name, group in groups.items()},
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
        policy_vhost=body["policyVhost"],
        access=None if body["access"] is None else Listener(body["access"]),
        sasl_plugin=body["saslPlugin"] or None,
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
