"""Links that peers may attach here, by the table of roles (docs/identity.md)."""

from __future__ import annotations

from enmasse.amqp.codec.errors import AmqpError
from enmasse.control import ControlLink
from enmasse.control.errors import UNAUTHORIZED_ACCESS
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Role

USERS = "users"
"""The feed of users, with hashes of passwords: also a listener without peers refuses it."""


def admitted(link: ControlLink, address: str) -> bool:
    """Return whether the peer may attach this link to a feed or target; refuse the link otherwise."""
    admission, identity = link.connection.admission, link.connection.identity
    if admission is None or identity is None:
        if address == USERS:
            link.refuse(UNAUTHORIZED_ACCESS, "only an authenticated process may receive users: they have hashes")
            return False
        return True
    try:
        if link.is_sender:
            admission.check_receive(address)
        else:
            admission.check_send(address)
            _check_name(admission, identity.role, link.name, address)
    except AmqpError as error:
        link.refuse(error.condition, error.description)
        return False
    return True


def _check_name(admission: PeerCheck, role: Role, name: str, target: str) -> None:
    """Raise AmqpError unless a reporter reports for its own role."""
    own = {"readiness": str(role), "placements": f"{role}/placements", "bound": str(role)}.get(target)
    if own is not None and name != own:
        raise admission.refusal(f"may not report to {target} as {name[:100]}")
