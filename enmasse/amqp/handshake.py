"""Before AMQP is spoken: protocol headers (OASIS AMQP 1.0, 2.2) and the frames of the SASL layer (5.3.2)."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import decode_performative, encode_performative
from enmasse.amqp.reader import read_frames
from enmasse.amqp.sasl import SaslClient, SaslServer

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_BASIC = Struct(">IBBH").unpack_from
_HEADER = Struct(">IBBH").pack


def read_header(connection: Connection, data: bytes, pos: int) -> int:
    if len(data) - pos < 8:
        head = data[pos:]
        if head != AMQP_HEADER[: len(head)] and head != SASL_HEADER[: len(head)]:
            _wrong_header(connection, head)
        return pos
    header = data[pos : pos + 8]
    sasl = connection.sasl
    if connection.is_client:
        if header == SASL_HEADER and isinstance(sasl, SaslClient) and not sasl.done:
            connection._stage = read_sasl
        elif header == AMQP_HEADER and (sasl is None or sasl.done):
            connection._stage = read_frames
        else:
            _wrong_header(connection, header)
    elif header == SASL_HEADER and isinstance(sasl, SaslServer) and not sasl.done:
        connection._put(SASL_HEADER)
        sasl.start(partial(_send, connection), partial(_sasl_done, connection))
        connection._stage = read_sasl
    elif header == AMQP_HEADER and (not isinstance(sasl, SaslServer) or sasl.done or not sasl.required):
        connection._put(AMQP_HEADER)
        connection._stage = read_frames
    else:
        _wrong_header(connection, header)
    return pos + 8


def _wrong_header(connection: Connection, header: bytes) -> None:
    """Answer with the header that would have been right and close (2.2)."""
    if not connection.is_client:
        sasl = connection.sasl
        connection._put(
            SASL_HEADER if isinstance(sasl, SaslServer) and sasl.required and not sasl.done else AMQP_HEADER
        )
    raise AmqpError(errors.NOT_IMPLEMENTED, f"the peer speaks another protocol: its header is {header!r}")


def read_sasl(connection: Connection, data: bytes, pos: int) -> int:
    end = len(data)
    sasl = connection.sasl
    assert sasl is not None
    while end - pos >= 8 and not sasl_waits(connection):
        size, doff, frame_type, _ = _BASIC(data, pos)
        if size > connection.limits.max_sasl_frame or size < 8 or doff < 2 or 4 * doff > size or frame_type != 1:
            raise AmqpError(errors.FRAMING_ERROR, f"not a SASL frame: {size} bytes of type {frame_type}")
        if pos + size > end:
            break
        performative, _ = decode_performative(data, pos + 4 * doff, pos + size)
        pos += size
        if isinstance(sasl, SaslClient):
            answer = sasl.receive(performative)
            if answer is not None:
                _send(connection, answer)
            if sasl.done:
                connection._stage = read_header
                connection._put(AMQP_HEADER)
                connection._send_open()
                break
        else:
            sasl.receive(performative)
            if sasl.done or connection.finished:
                break
    return pos


def sasl_waits(connection: Connection) -> bool:
    """An authenticator is still asking: what the client has pipelined must wait."""
    return isinstance(connection.sasl, SaslServer) and connection.sasl.waits and connection._stage is read_sasl


def _send(connection: Connection, performative: Any) -> None:
    body = encode_performative(performative)
    connection._put(_HEADER(len(body) + 8, 2, 1, 0) + body)


def _sasl_done(connection: Connection, user: str | None, ok: bool) -> None:
    """The server's exchange has ended; the outcome has been sent. May come long after the last frame."""
    if ok:
        connection.user = user
        connection._stage = read_header
        if connection._pending and not connection._receiving:
            connection.receive(b"")  # what came while the authenticator was asking
    else:
        connection._give_up(AmqpError(errors.UNAUTHORIZED_ACCESS, "authentication failed"))
