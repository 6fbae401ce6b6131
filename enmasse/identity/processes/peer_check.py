"""One accepted connection at an inner listener: who its peer is, and what it may do by the table of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from enmasse.amqp.codec.errors import CONNECTION_FORCED, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.sasl import layer
from enmasse.amqp.sasl.layer import Exchange, SaslServer, ServerMechanism
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import PeerEntry, Peers
from enmasse.identity.processes.process_certificates import common_name, peer_of
from enmasse.identity.processes.refusals import log_refusal
from enmasse.identity.processes.roles import Access, Listener, Peer
from enmasse.identity.processes.scram import SCRAM, proves, scram
from enmasse.model.users import Verifier

EXTERNAL, PLAIN = "EXTERNAL", "PLAIN"
_WITHDRAWN = "is no longer among the peers, or has another secret"
_NOT_HERE = "may not connect here"
_MOST_LOGGED = 100
"""Refusals of one connection that are logged; the same one is logged once."""


class PeerCheck:
    """Authenticates the peer of one connection, and checks what it asks for. Refusals are logged."""

    def __init__(
        self,
        listener: Listener,
        peers: Peers | None,
        address: str,
        certificate: Mapping[str, Any] | None = None,
        *,
        before_open: bool = False,
    ) -> None:
        """`peers`: None if the peer proves itself by its `certificate`, which TLS has verified, as from
        `ssl.SSLSocket.getpeercert`. `address`: host:port of the peer. `before_open`: a peer for whose role the listener
        is not cannot authenticate; otherwise it is refused when it opens its connection."""
        self.close: Callable[[AmqpError], None] | None = None
        """Closes the connection."""
        self._listener = listener
        self._peers = peers
        self._before_open = before_open
        self._address = address
        self._certificate = certificate
        self._claimed = ""
        self._failure = ""
        self._found: PeerEntry | None = None
        """The entry that the peer has to prove, or has proved."""
        self._peer: Peer | None = None
        self._access = Access()
        self._logged: set[str] = set()

    def sasl(self, *, plain: bool = False) -> SaslServer:
        """Return the SASL layer of the connection, which cannot be skipped: EXTERNAL for certificates, or
        SCRAM-SHA-256, and if asked for PLAIN, for tools of operators that know no other mechanism."""
        if self._peers is None:
            return SaslServer({EXTERNAL: layer.external(self._certified)})
        mechanisms: dict[str, Callable[[], ServerMechanism]] = {SCRAM: scram(self._find)}
        if plain:
            mechanisms[PLAIN] = layer.plain(self._check_plain)
        return SaslServer(mechanisms)

    def _check_plain(self, exchange: Exchange, name: str, secret: str) -> None:
        known = self._find(name)
        is_operator = self._found is not None and self._found.role is roles.Role.OPERATOR
        if is_operator and known is not None and proves(secret, known):
            exchange.succeed(name)
        else:
            exchange.fail()

    def certified(self) -> Peer:
        """Return the peer by its certificate, on a listener whose SASL is that of users. Raises AmqpError if it has no
        certificate of a process that may connect."""
        return self.opened(self._certified())

    def _certified(self) -> str | None:
        self._claimed = common_name(self._certificate)
        peer = peer_of(self._certificate)
        if peer is None:
            self._failure = "the common name of its certificate is not ROLE/NAME"
        return None if peer is None else peer.name

    def _find(self, name: str) -> Verifier | None:
        self._claimed = name
        assert self._peers is not None
        self._found = self._peers.find(name)
        if self._before_open and self._found is not None and self._found.role not in roles.TABLE[self._listener]:
            self._failure, self._found = _NOT_HERE, None
        return None if self._found is None else self._found.verifier

    def opened(self, user: str | None) -> Peer:
        """Return the peer, which has authenticated as `user` and opens its connection. Raises AmqpError if the listener
        is not for its role."""
        peer = self._proved(user)
        if peer is None or user is None:
            raise self.refusal(self._failure or "has not authenticated")
        self._peer = peer
        access = roles.access(self._listener, peer)
        if access is None:
            raise self.refusal(_NOT_HERE)
        if self._peers is not None and self._found is not None:
            if self._peers.find(user) != self._found:
                raise self.refusal(_WITHDRAWN)
            self._peers.opened(self, user, self._found, self._withdrawn)
        self._access = access
        return peer

    def _proved(self, user: str | None) -> Peer | None:
        if self._peers is None:
            peer = peer_of(self._certificate)
        else:
            peer = None if self._found is None else Peer(self._claimed, self._found.role)
        return peer if peer is not None and peer.name == user else None

    def _withdrawn(self) -> None:
        """End the connection: its peer is no longer among the peers."""
        if self._peers is not None:
            self._peers.ended(self)
        if self.close is not None:
            self.close(self.refusal(_WITHDRAWN))

    def ended(self, error: AmqpError | None) -> None:
        """Forget the connection, which has ended. Log one without authentication, unless its peer just left."""
        if self._peers is not None:
            self._peers.ended(self)
        self.close = None
        if self._peer is None and error is not None and error.condition != CONNECTION_FORCED:
            self._log(self._failure or error.description)

    @property
    def role(self) -> str:
        """Return the role of the peer, empty while it is not known."""
        return "" if self._peer is None else self._peer.role

    def check_send(self, address: str) -> None:
        """Raise AmqpError unless the peer may send to this address."""
        self._check(roles.may_send, "send to", address)

    def check_receive(self, address: str) -> None:
        """Raise AmqpError unless the peer may receive from this address."""
        self._check(roles.may_receive, "receive from", address)

    def check_manage(self, node: str) -> None:
        """Raise AmqpError unless the peer may use this management node."""
        self._check(lambda access, _: access.manage, "use", node)

    def may_serve(self, node: str) -> bool:
        """Return whether links of others to this node may be passed on to the peer."""
        return node in self._access.serve

    def _check(self, allowed: Callable[[Access, str], bool], what: str, address: str) -> None:
        if not allowed(self._access, address):
            raise self.refusal(f"may not {what} {address}")

    def refusal(self, reason: str) -> AmqpError:
        """Return the error that refuses something, and log it."""
        self._log(reason)
        who = f"{self._peer.name} ({self._peer.role})" if self._peer is not None else "an unknown peer"
        return AmqpError(UNAUTHORIZED_ACCESS, f"{who} {reason}")

    def _log(self, reason: str) -> None:
        if reason not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(reason)
            log_refusal(self._peer, self._address, reason, claimed=self._claimed)
