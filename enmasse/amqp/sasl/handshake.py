"""Before AMQP is spoken: protocol headers (OASIS AMQP 1.0, 2.2) and the frames of the SASL layer (5.3.2)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import SaslResponse, decode_performative, encode_performative
from enmasse.amqp.output import Output
from enmasse.amqp.sasl.layer import SaslClient, SaslServer
from enmasse.first_bytes import as_text, spoken

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_BASIC = Struct(">IBBH").unpack_from
_WITHOUT_SASL = (
    "the client does not log in (it speaks AMQP without SASL), and this server has users: give the client a user and a "
    "password, or the user name 'anonymous' if clients without a user may connect"
)
_AT_HEADER, _AT_SASL, _DONE, _REFUSED = "header", "sasl", "done", "refused"


class Handshake:
    """Input before the first AMQP frame, and the answers to it. `done`: AMQP frames follow."""

    __slots__ = ("_at", "_is_client", "_max_frame", "_output", "may_open", "sasl", "started")

    def __init__(
        self, output: Output, sasl: SaslServer | SaslClient | None, *, is_client: bool, max_frame: int
    ) -> None:
        """`max_frame`: bytes of a SASL frame."""
        self.sasl = sasl
        self.started = False
        self.may_open = False
        """Client: the AMQP header has been sent, the open may follow."""
        self._output = output
        self._is_client = is_client
        self._max_frame = max_frame
        self._at = _AT_HEADER

    @property
    def done(self) -> bool:
        """Return True if frames of AMQP are next."""
        return self._at is _DONE

    @property
    def waits(self) -> bool:
        """An authenticator is still asking: what the client has pipelined must wait."""
        return self._at is _AT_SASL and isinstance(self.sasl, SaslServer) and self.sasl.waits

    @property
    def reads_header(self) -> bool:
        """Return True if a protocol header of 8 bytes comes next."""
        return self._at is _AT_HEADER

    def start(self) -> None:
        """Client: speak first."""
        self.started = True
        if isinstance(self.sasl, SaslClient):
            self._output.put(SASL_HEADER)
        else:
            self._speak_amqp()

    def read(self, data: bytes, pos: int, authenticated: Callable[[str | None, bool], None]) -> tuple[int, bool]:
        """Go on from `pos`: where it got, and whether there may be more to do at once. `authenticated(user, ok)` is
        called when a server's SASL exchange has ended, which may be long after this. Raises AmqpError."""
        at = self._at
        pos = self._read_header(data, pos, authenticated) if at is _AT_HEADER else self._read_sasl(data, pos)
        return pos, self._at is not at

    def authenticated(self, ok: bool) -> None:
        """Note that the server's SASL exchange has ended and its outcome was sent."""
        self._at = _AT_HEADER if ok else _REFUSED

    def answer_challenge(self, response: bytes) -> None:
        """Client: answer a challenge that its mechanism has not answered."""
        if self._at is _AT_SASL:
            self._send(SaslResponse(response=response))

    def _read_header(self, data: bytes, pos: int, authenticated: Callable[[str | None, bool], None]) -> int:
        if len(data) - pos < 8:
            head = data[pos:]
            if head != AMQP_HEADER[: len(head)] and head != SASL_HEADER[: len(head)]:
                self._wrong_header(head)
            return pos
        header = data[pos : pos + 8]
        sasl = self.sasl
        if self._is_client:
            if header == SASL_HEADER and isinstance(sasl, SaslClient) and not sasl.done:
                self._at = _AT_SASL
            elif header == AMQP_HEADER and (sasl is None or sasl.done):
                self._at = _DONE
            else:
                self._wrong_header(header)
        elif header == SASL_HEADER and isinstance(sasl, SaslServer) and not sasl.done:
            self._output.put(SASL_HEADER)
            sasl.start(self._send, authenticated)
            self._at = _AT_SASL
        elif header == AMQP_HEADER and (not isinstance(sasl, SaslServer) or sasl.done or not sasl.required):
            self._output.put(AMQP_HEADER)
            self._at = _DONE
        else:
            self._wrong_header(header)
        return pos + 8

    def _wrong_header(self, header: bytes) -> None:
        """Answer with the header that would have been right and close (2.2)."""
        if not self._is_client:
            sasl = self.sasl
            wants_sasl = isinstance(sasl, SaslServer) and sasl.required and not sasl.done
            self._output.put(SASL_HEADER if wants_sasl else AMQP_HEADER)
            if wants_sasl and header == AMQP_HEADER:
                raise AmqpError(errors.NOT_IMPLEMENTED, _WITHOUT_SASL)
        raise AmqpError(
            errors.NOT_IMPLEMENTED,
            f"the peer speaks {spoken(header) or 'another protocol'}: its header is {as_text(header)}",
        )

    def _read_sasl(self, data: bytes, pos: int) -> int:
        end = len(data)
        sasl = self.sasl
        assert sasl is not None
        while end - pos >= 8 and self._at is _AT_SASL and not self.waits:
            size, doff, frame_type, _ = _BASIC(data, pos)
            if size > self._max_frame or size < 8 or doff < 2 or 4 * doff > size or frame_type != 1:
                raise AmqpError(errors.FRAMING_ERROR, f"not a SASL frame: {size} bytes of type {frame_type}")
            if pos + size > end:
                break
            performative, _ = decode_performative(data, pos + 4 * doff, pos + size)
            pos += size
            if isinstance(sasl, SaslClient):
                answer = sasl.receive(performative)
                if answer is not None:
                    self._send(answer)
                if sasl.done:
                    self._at = _AT_HEADER
                    self._speak_amqp()
            else:
                sasl.receive(performative)
        return pos

    def _speak_amqp(self) -> None:
        """Client: AMQP begins; the open need not wait for the server's header."""
        self._output.put(AMQP_HEADER)
        self.may_open = True

    def _send(self, performative: Any) -> None:
        body = encode_performative(performative)
        self._output.put(HEADER(len(body) + 8, 2, 1, 0) + body)
