"""The SASL layer of a connection, before proton's engine takes over: SCRAM-SHA-256, which proton's pip build lacks."""

from __future__ import annotations

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handshake import Handshake
from enmasse.amqp.limits import Limits
from enmasse.amqp.output import Output
from enmasse.amqp.sasl import SaslClient, SaslServer
from enmasse.control.errors import UNAUTHORIZED_ACCESS, ConnectionLost
from enmasse.identity.credentials import Credential, Peers
from enmasse.identity.roles import Peer
from enmasse.identity.scram import SCRAM, of_process, scram
from enmasse.model.users import Verifier

_MAX_FRAME = Limits().max_sasl_frame


class Login:
    """SASL and both protocol headers of one connection: the client's side with a credential, the server's with peers.

    Knows no socket: give it what arrives, write what `output` returns.
    """

    def __init__(self, known: Credential | Peers) -> None:
        self.claimed = ""
        """Server: the name that the client has stated, proved or not."""
        self.identity: Peer | None = None
        """Server: who the client is, once it has proved that."""
        self._data = b""
        self._refused = False
        self._output = Output(_MAX_FRAME)
        sasl: SaslClient | SaslServer
        if isinstance(known, Credential):
            sasl = SaslClient([of_process(known)])
        else:
            self._peers = known
            sasl = SaslServer({SCRAM: scram(self._find)})
        is_client = isinstance(known, Credential)
        self._handshake = Handshake(self._output, sasl, is_client=is_client, max_frame=_MAX_FRAME)
        if is_client:
            self._handshake.start()

    def output(self) -> bytes:
        """Return the bytes to write, also after `receive` has raised."""
        return self._output.take()

    def receive(self, data: bytes) -> bytes | None:
        """Take bytes of the peer. Return those behind its AMQP header; None while that has not come.

        Raises ConnectionLost if either side refuses the other.
        """
        data, pos, again = self._data + data, 0, True
        try:
            while again and not self._handshake.done and not self._refused:
                pos, again = self._handshake.read(data, pos, self._authenticated)
        except AmqpError as error:
            raise ConnectionLost(error.condition, error.description) from None
        self._data = data[pos:]
        if self._refused:
            raise ConnectionLost(UNAUTHORIZED_ACCESS, f"{SCRAM} has failed: unknown name or wrong secret")
        return self._data if self._handshake.done else None

    def _find(self, name: str) -> Verifier | None:
        self.claimed = name
        entry = self._peers.find(name)
        if entry is None:
            return None
        self.identity = Peer(name, entry.role)
        return entry.verifier

    def _authenticated(self, _: str | None, ok: bool) -> None:
        self._handshake.authenticated(ok)
        if not ok:
            self._refused, self.identity = True, None
