"""Logins of the suite's processes at listeners of Qpid Dispatch, which knows no roles: it relays their SASL exchanges
to a port for each of its listeners, and enforces the addresses that the answer states (docs/contracts.md, "authserv").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.layer import SaslServer
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import Peers
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Listener, Peer
from services.authserv.authz import AUTHZ, NOTHING, allows_every_address, of_process

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection


class ProcessLogin(Handler):
    """Login of one process at `listener` of a router, which has connected from `address` (host:port)."""

    def __init__(
        self, listener: Listener, peers: Peers, address: str, soon: Callable[[Callable[[], None]], Any]
    ) -> None:
        self._listener = listener
        self._admission = PeerCheck(listener, peers, address, before_open=True)
        self._soon = soon

    def sasl(self) -> SaslServer:
        """Return the SASL layer of the connection."""
        return self._admission.sasl(plain=self._listener is Listener.OPERATORS)

    def on_open(self, c: Connection) -> None:
        """State name and rights of the process, then close. A router lets it in whatever follows the outcome, so a
        refusal is that it may do nothing."""
        stated: dict[Any, Any] = {Symbol("address-authz"): NOTHING}
        with contextlib.suppress(AmqpError):  # withdrawn meanwhile, which is logged
            stated = self._stated(self._admission.opened(c.user))
        c.open_fields.offered_capabilities = (Symbol(AUTHZ),)
        c.open_fields.properties = {**(c.open_fields.properties or {}), **stated}
        self._soon(c.close)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """Log a failed login."""
        self._admission.ended(error)

    def _stated(self, peer: Peer) -> dict[Any, Any]:
        found: dict[Any, Any] = {
            Symbol("authenticated-identity"): {"sub": peer.name, "preferred_username": peer.name},
            Symbol("groups"): [str(peer.role)],
        }
        access = roles.access(self._listener, peer)
        assert access is not None
        # Links between routers have no addresses that it could compare. With the property, even with one that allows
        # every address, a router forbids to close connections of others, and to make link routes.
        if self._listener is not Listener.MESH and not allows_every_address(access):
            found[Symbol("address-authz")] = of_process(access)
        return found
