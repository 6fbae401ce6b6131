"""The suite's processes as users of Artemis: who they are, by secret or certificate, and what their roles may do. Pure.

Rights are those of the embedded broker's listener in the table of roles (enmasse/identity/processes/roles.py), as far
as Artemis can express them (docs/engines.md).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from enmasse.identity.processes.credentials import PeerEntry
from enmasse.identity.processes.process_certificates import CA, CERT, KEY
from enmasse.identity.processes.roles import TABLE, Listener

USERS, ROLES = "artemis.users", "artemis.roles"
"""Files of the users and of their roles, which Artemis reads again when they have changed."""
STORE = "artemis.certificate"
"""File that names those of the broker's certificate and key."""
MANAGEMENT = "activemq.management"
NAMESPACE = "temporary"
"""Stands for the names of temporary queues in settings."""
_SEND = ("createAddress", "send")
_RECEIVE = (
    "createAddress", "consume", "browse",
    "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue", "deleteAddress",
)  # fmt: skip
"""Addresses are made for levels below a topic, where the controller allows it; queues for subscriptions. The last queue
of such a level takes its address along, as a durable subscription does that moves to another topic."""
_TEMPORARY = (*_SEND, *_RECEIVE)
"""Rights at the temporary queues of replies, of which each has a random name."""


def files(peers: Mapping[str, PeerEntry]) -> dict[str, str]:
    """Return name → text of the files of users and roles."""
    known = {name: entry for name, entry in peers.items() if entry.role in TABLE[Listener.BROKER]}
    members: dict[str, list[str]] = {}
    for name, entry in known.items():
        members.setdefault(entry.role, []).append(name)
    return {
        USERS: "".join(f"{name} = ENC({_verifier(entry)})\n" for name, entry in known.items()),
        ROLES: "".join(f"{role} = {','.join(names)}\n" for role, names in members.items()),
    }


def login(folder: str) -> str:
    """Return the text of `login.config`. `folder`: that of the two files."""
    base = folder.replace("\\", "\\\\").replace('"', '\\"')
    package = "org.apache.activemq.artemis.spi.core.security.jaas"
    return (
        f'scram {{ {package}.SCRAMPropertiesLoginModule required reload=true baseDir="{base}"'
        f' org.apache.activemq.jaas.properties.user="{USERS}" org.apache.activemq.jaas.properties.role="{ROLES}"; }};\n'
        f"activemq {{ {package}.SCRAMLoginModule required; }};\n"
    )


def certificate_files(folder: str) -> dict[str, str]:
    """Name → text of the files that name the broker's certificate in `folder`, and the users of certificates: each role
    is one, which has the subjects with its name before the `/`."""
    roles = [str(role) for role in TABLE[Listener.BROKER]]
    return {
        STORE: f"source.certificate={folder}/{CERT}\nsource.key={folder}/{KEY}\n",
        USERS: "".join(f"{role} = /^CN={role}[/][^,+]+$/\n" for role in roles),
        ROLES: "".join(f"{role} = {role}\n" for role in roles),
    }


def certificate_acceptor(folder: str, etc: str) -> dict[str, str]:
    """Return the parameters of an acceptor: TLS with certificates on both sides, and SASL EXTERNAL."""
    return {
        "sslEnabled": "true",
        "keyStoreType": "PEMCFG",
        "keyStorePath": f"{etc}/{STORE}",
        "trustStoreType": "PEMCA",
        "trustStorePath": f"{folder}/{CA}",
        "needClientAuth": "true",
        "sslAutoReload": "true",
        "enabledProtocols": "TLSv1.2,TLSv1.3",
        "saslMechanisms": "EXTERNAL",
    }


def certificate_login(etc: str) -> str:
    """Return the text of `login.config`. `etc`: the folder of `certificate_files`."""
    return (
        "activemq { org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required"
        f' baseDir="{etc}" org.apache.activemq.jaas.textfiledn.user="{USERS}"'
        f' org.apache.activemq.jaas.textfiledn.role="{ROLES}"; }};\n'
    )


def security_settings() -> str:
    """Return the elements of broker.xml with the rights of all roles."""
    table = TABLE[Listener.BROKER]
    managers = [str(role) for role, access in table.items() if access.manage]
    everyone = [str(role) for role in table]
    matches: dict[str, dict[str, list[str]]] = {
        "#": _rights("#"),
        "$sub/#": _rights("$sub/#"),
        f"{NAMESPACE}/#": dict.fromkeys(_TEMPORARY, everyone),
        MANAGEMENT: {"send": managers, "manage": managers},
    }
    return "\n".join(
        f'<security-setting match="{match}">'
        + "".join(f'<permission type="{kind}" roles="{",".join(roles)}"/>' for kind, roles in rights.items())
        + "</security-setting>"
        for match, rights in matches.items()
    )


def _rights(pattern: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role, access in TABLE[Listener.BROKER].items():
        kinds = {*(_SEND if pattern in access.send else ()), *(_RECEIVE if pattern in access.recv else ())}
        for kind in sorted(kinds):
            found.setdefault(kind, []).append(role)
    return found


def _verifier(entry: PeerEntry) -> str:
    known = entry.verifier
    salt, server, stored = (b64encode(each).decode() for each in (known.salt, known.server_key, known.stored_key))
    return f"{salt}:{known.iterations}:{server}:{stored}"
