"""The SASL layer of a connection, before proton's engine takes over: proton's pip build lacks SCRAM-SHA-256."""

from __future__ import annotations

from enmasse.amqp.codec.errors import UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.limits import Limits
from enmasse.amqp.output import Output
from enmasse.amqp.sasl.handshake import Handshake
from enmasse.amqp.sasl.layer import SaslClient
from enmasse.control.errors import ConnectionLost
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.scram import of_process

_MAX_FRAME = Limits().max_sasl_frame
_FAILED = "authentication has failed: unknown name, wrong secret, or a certificate without a role"


class SaslLayer:
    """SASL and both protocol headers of one connection: the client's side with a credential, the server's with an
    admission.

    Knows no socket: give it what arrives, write what `output` returns.
    """

    def __init__(self, known: AnyCredential | PeerCheck) -> None:
        self.admission = known if isinstance(known, PeerCheck) else None
        self.user: str | None = None
        """Server: the name of the client, which has proved it."""
        self._data = b""
        self._refused = False
        self._output = Output(_MAX_FRAME)
        sasl = known.sasl() if isinstance(known, PeerCheck) else SaslClient([of_process(known)])
        is_client = self.admission is None
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
            while again and not self._handshake.done:
                pos, again = self._handshake.read(data, pos, self._authenticated)
                if self._refused:
                    raise AmqpError(UNAUTHORIZED_ACCESS, _FAILED)
        except AmqpError as error:
            if self.admission is not None:
                self.admission.ended(error)
            raise ConnectionLost(error.condition, error.description) from None
        self._data = data[pos:]
        return self._data if self._handshake.done else None

    def _authenticated(self, user: str | None, ok: bool) -> None:
        self._handshake.authenticated(ok)
        self._refused, self.user = not ok, user
