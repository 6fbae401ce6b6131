"""Refuses attributes that this router does not support, with the reason, when an entity is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from enmasse.amqp.sasl.layer import EXTERNAL
from enmasse.identity.annotations import OF_ROUTERS
from enmasse.identity.processes.roles import Listener
from enmasse.model.loopback import is_loopback
from services.router.management.entity_bodies import listener_config
from services.router.management.schema import BAD_REQUEST, NOT_IMPLEMENTED, EntityType, ManagementError
from services.router.network.listeners import offered_mechanisms
from services.router.network.port_settings import ANONYMOUS, NEIGHBOURS, PLAIN, SCRAM, SslProfile
from services.router.routing.connection import INTER_ROUTER

Body = Mapping[str, Any]
Problem = tuple[Callable[[Body], Any], str]
"""Test whether a body requests an unsupported feature, and the feature's name."""

_RESERVED = ("product", "version", "failover-server-list", "network-host", "port", "scheme", "hostname")
_RESERVED_PREFIXES = ("qd.", OF_ROUTERS)
_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_UID_LETTERS, _UID_FINGERPRINTS = "csloun", "125"

_LOGGING: Problem = (
    lambda b: b["messageLoggingComponents"] not in (None, "", "none"),
    "messageLoggingComponents (messages are not logged)",
)
_ANNOTATIONS: Problem = (
    lambda b: b["stripAnnotations"] in ("no", "out") and b["role"] != "inter-router",
    "stripAnnotations other than both or in (router annotations of clients are always taken away)",
)
_VHOST: Problem = (lambda b: b["policyVhost"], "policyVhost (users have permissions instead)")
_LISTENER: tuple[Problem, ...] = (
    _VHOST,
    (lambda b: b["role"] == "edge", "role edge"),
    (lambda b: b["saslPlugin"] and b["role"] != "normal", "saslPlugin of a listener that is not for clients"),
    (lambda b: b["saslPlugin"] and b["http"], "saslPlugin with http"),
    (lambda b: b["space"] and not b["saslPlugin"], "space without saslPlugin"),
    (lambda b: b["multiTenant"], "multiTenant"),
    (lambda b: b["requireEncryption"] and not b["requireSsl"], "requireEncryption (use requireSsl)"),
    (
        lambda b: b["sslProfile"] and not b["requireSsl"],
        "sslProfile without requireSsl (TLS only for those who want it)",
    ),
    (lambda b: b["trustedCertsFile"], "trustedCertsFile (use the sslProfile's caCertFile)"),
    (lambda b: b["http"] and (b["sslProfile"] or b["authenticatePeer"]), "http with sslProfile or authenticatePeer"),
    (lambda b: b["httpRootDir"] and Path(b["httpRootDir"]).is_dir(), "httpRootDir (files over HTTP)"),
    _ANNOTATIONS,
    _LOGGING,
)
_CONNECTOR: tuple[Problem, ...] = (_VHOST, _ANNOTATIONS, _LOGGING)
_PROFILE: tuple[Problem, ...] = ((lambda b: b["uidNameMappingFile"], "uidNameMappingFile"),)
_POLICY: tuple[Problem, ...] = (
    (lambda b: b["enableVhostPolicy"], "enableVhostPolicy (users have permissions instead)"),
    (lambda b: b["enableVhostNamePatterns"], "enableVhostNamePatterns"),
    (lambda b: b["policyDir"], "policyDir"),
)


def _wrong(where: str, text: str) -> ManagementError:
    return ManagementError(BAD_REQUEST, f"{where}: {text}")


def _supported(problems: Iterable[Problem], where: str, body: Body) -> None:
    for asks, text in problems:
        if asks(body):
            raise ManagementError(NOT_IMPLEMENTED, f"{where}: {text} is not supported by this router")


def _numbers(kind: EntityType, where: str, body: Body) -> None:
    for attribute in kind.attributes:
        value = body.get(attribute.name)
        least = 1 if attribute.name in ("maxSessions", "maxSessionFrames") else 0
        if attribute.kind == "int" and value is not None and value < least:
            raise _wrong(where, f"{attribute.name} must be at least {least}, it is {value}")


def _open_properties(where: str, body: Body) -> None:
    given = body["openProperties"] or {}
    for key in given:
        if key in _RESERVED or str(key).startswith(_RESERVED_PREFIXES):
            raise _wrong(where, f"Reserved key '{key}' not allowed in openProperties")
    if given and body["role"] in NEIGHBOURS:
        raise _wrong(where, f"openProperties not allowed for role {body['role']}")


def _known_mechanisms(where: str, body: Body, known: tuple[str, ...], more: str = "") -> list[str]:
    wanted = (body["saslMechanisms"] or "").split()
    for name in wanted:
        if name not in known:
            text = f"saslMechanisms: {name} is not supported by this router, it knows {', '.join(known)}{more}"
            raise ManagementError(NOT_IMPLEMENTED, f"{where}: {text}")
    return wanted


def check_role(where: str, body: Body, mode: str) -> None:
    """Check a role. Raises ManagementError 400 if a router of this mode does not have it."""
    if mode == "standalone" and body["role"] in NEIGHBOURS:
        text = f"role {body['role']} needs a router of mode interior; this one is standalone: it knows no other routers"
        raise _wrong(where, text)


def check_listener(
    kind: EntityType, where: str, body: Body, profile: Callable[[str], SslProfile], *, knows_peers: bool = False
) -> None:
    """Check a listener. Raises ManagementError: 400 for contradictions, 501 for unsupported features. `profile` finds
    an SSL profile; its error for an unknown one is passed on. `knows_peers`: the router has a file of peers."""
    _supported(_LISTENER, where, body)
    _numbers(kind, where, body)
    _open_properties(where, body)
    _check_neighbours(where, body)
    if body["requireSsl"] and not body["sslProfile"]:
        raise _wrong(where, "requireSsl needs an sslProfile")
    certificates = bool(body["sslProfile"]) and bool(profile(body["sslProfile"]).ca_cert_file)
    if _is_for_peers(where, body, knows_peers):
        if not certificates and EXTERNAL in body["saslMechanisms"]:
            raise _wrong(where, "saslMechanisms EXTERNAL with access needs an sslProfile with caCertFile")
        return
    if body["saslPlugin"]:  # it states which mechanisms there are
        return
    wanted = _known_mechanisms(
        where, body, (ANONYMOUS, EXTERNAL), "; names and passwords come with an authentication service (saslPlugin)"
    )
    if EXTERNAL in wanted and not certificates:
        raise _wrong(where, "saslMechanisms EXTERNAL needs an sslProfile with caCertFile, and requireSsl")
    if body["authenticatePeer"] and not offered_mechanisms(listener_config("", body), certificates=certificates):
        raise _wrong(
            where,
            "authenticatePeer would let no client in: it needs EXTERNAL among saslMechanisms, requireSsl, and an "
            "sslProfile with caCertFile",
        )


def _check_neighbours(where: str, body: Body) -> None:
    """Check the listener for other routers. A router is believed whatever it states, so it has to prove that it is
    one, unless only processes of this machine can connect. Raises ManagementError 400."""
    mesh = body["role"] == INTER_ROUTER
    if body["access"] is not None and mesh != (body["access"] == Listener.MESH):
        raise _wrong(where, f"role {INTER_ROUTER} and access {Listener.MESH} belong together")
    if mesh and not body["authenticatePeer"] and not is_loopback(body["host"]):
        text = (
            f"a listener with role {INTER_ROUTER} that other machines reach needs authenticatePeer true, with access "
            f"{Listener.MESH} or an sslProfile with caCertFile, because routers are believed"
        )
        raise _wrong(where, text)


def check_plugin(where: str, body: Body, *, known: bool, knows_users: bool) -> None:
    """Check the authentication service of a listener. Raises ManagementError 400. `known`: there is an entity of this
    name; `knows_users`: the router follows the users of the configuration service."""
    if not known:
        raise _wrong(where, f"there is no authServicePlugin '{body['saslPlugin']}'")
    if not knows_users:
        raise _wrong(where, "saslPlugin needs the setting configserv of this router's configuration file")


def _is_for_peers(where: str, body: Body, knows_peers: bool) -> bool:
    """Return whether a listener is for processes of the suite: then SCRAM-SHA-256 is offered, and for operators, if it
    is configured, PLAIN; or EXTERNAL, by certificates of the authorities of its sslProfile."""
    wanted = (body["saslMechanisms"] or "").split()
    if SCRAM not in wanted and body["access"] is None:
        return False
    if body["saslPlugin"]:
        if body["access"] is not None:
            raise _wrong(where, "access is for processes of the suite, saslPlugin for users: give one of them")
        return False
    if wanted == [EXTERNAL] and body["requireSsl"] and body["authenticatePeer"] and not body["http"]:
        return True
    alone = wanted == [SCRAM] or (wanted == [SCRAM, PLAIN] and body["access"] == "operators")
    if not alone or not body["authenticatePeer"] or body["access"] is None or body["http"]:
        text = (
            f"saslMechanisms {SCRAM} (alone, or with {PLAIN} for operators), or {EXTERNAL} with requireSsl, "
            "authenticatePeer true and access belong together, without http"
        )
        raise _wrong(where, text)
    if not knows_peers:
        raise _wrong(where, f"saslMechanisms {SCRAM} needs the setting peers of this router's configuration file")
    return True


def check_connector(kind: EntityType, where: str, body: Body, *, has_credential: bool = False) -> None:
    """As check_listener. Raises ManagementError. `has_credential`: the router has a name and a secret of its own."""
    _supported(_CONNECTOR, where, body)
    _numbers(kind, where, body)
    _open_properties(where, body)
    wanted = _known_mechanisms(where, body, (ANONYMOUS, EXTERNAL, PLAIN, SCRAM))
    if SCRAM in wanted and not body["saslUsername"] and not has_credential:
        text = f"saslMechanisms {SCRAM} needs saslUsername and saslPassword, or the setting credential of this router"
        raise _wrong(where, text)
    if PLAIN in wanted and not body["saslUsername"]:
        raise _wrong(where, "saslMechanisms PLAIN needs saslUsername and saslPassword")
    if EXTERNAL in wanted and not body["sslProfile"]:
        raise _wrong(where, "saslMechanisms EXTERNAL needs an sslProfile with certFile")
    if body["saslUsername"] and wanted and PLAIN not in wanted and SCRAM not in wanted:
        raise _wrong(where, f"saslUsername has no use with saslMechanisms {' '.join(wanted)}")


def check_profile(body: Body) -> None:
    """Check a TLS profile, like check_listener. Files are read when the profile is used. Raises ManagementError."""
    where = f"sslProfile '{body['name']}'"
    _supported(_PROFILE, where, body)
    for word in str(body["protocols"] or "").split():
        if word not in _TLS_VERSIONS:
            text = f"protocols: {word} is not supported by this router, it knows {', '.join(_TLS_VERSIONS)}"
            raise ManagementError(NOT_IMPLEMENTED, f"{where}: {text}")
    letters = body["uidFormat"]
    if letters is not None:
        known = all(letter in _UID_LETTERS + _UID_FINGERPRINTS for letter in letters)
        digests = sum(letter in _UID_FINGERPRINTS for letter in letters)
        if not letters or not known or digests > 1 or len(set(letters)) < len(letters):
            raise _wrong(
                where, f"uidFormat '{letters}' must be letters of {_UID_LETTERS} and one of 1, 2, 5, each once"
            )


def check_policy(body: Body) -> None:
    """As check_listener."""
    _supported(_POLICY, "policy", body)
