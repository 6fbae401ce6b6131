"""Rights of processes of the suite: by the table of roles, on listeners with `access`.

They are asked in the places of the rights of users (users.py): at an attach, and for the address of a message without
a link of its own, before that address is remembered.
"""

from __future__ import annotations

from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import GATEWAYS, Role
from enmasse.identity.senders import of_role
from enmasse.model.names import MANAGEMENT
from services.router.routing.address_text import LOCAL, MOBILE, ROUTER, parse, strip, tokens


class PeerRights:
    """Rights of one connection. `max_message_size`: bytes, 0: no limit."""

    of_process = True

    def __init__(self, admission: PeerCheck, router_id: str, max_message_size: int) -> None:
        self.max_message_size = max_message_size
        self.sender = of_role(admission.role)
        self.for_clients = admission.role in (*GATEWAYS, Role.LWT, Role.SUBSERV)
        self._admission = admission
        self._router_id = router_id

    @property
    def role(self) -> str:
        """Return the role of the peer."""
        return self._admission.role

    def check_message(self, address: str) -> None:
        """Raise AmqpError unless messages may be sent to `address`."""
        self._check(address, incoming=True)

    def check_recovered(self, address: str) -> None:
        """Do nothing: the attach was checked."""

    def may_serve(self, pattern: str) -> bool:
        """Return whether links to addresses of a pattern, `name` or `name/#`, may be passed on to this peer."""
        return self._admission.may_serve(pattern.removesuffix("/#"))

    def check_attach(self, links: int, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        """Raise AmqpError unless the peer may attach this link. `incoming`: the peer sends. Neither a temporary address
        of its own nor a sender without address needs a right."""
        if not dynamic and not (incoming and address is None):
            self._check(address or "", incoming=incoming)

    def _check(self, address: str, *, incoming: bool) -> None:
        kind, name = parse(address, self._router_id)
        if (name == MANAGEMENT and kind in (MOBILE, LOCAL)) or (
            kind == ROUTER and strip(address).endswith(f"/{MANAGEMENT}")
        ):
            self._admission.check_manage(MANAGEMENT)
            return
        plain = "/".join(tokens(strip(address)))  # as link routes read it
        if incoming:
            self._admission.check_send(plain)
        else:
            self._admission.check_receive(plain)
