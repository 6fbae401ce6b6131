"""Ways in which a receiver of Proton leaves, with messages that it has not settled."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from proton import Condition, ProtonException
from proton.utils import BlockingReceiver

from tests.broker.harness import flush


def detach(receiver: BlockingReceiver) -> None:
    """Detach the link; a durable subscription stays."""
    receiver.link.detach()  # that of the blocking client waits for an answer that closes
    flush(receiver)


def end(receiver: BlockingReceiver) -> None:
    """End the session."""
    session = receiver.link.session
    session.close()
    with contextlib.suppress(ProtonException):  # the blocking client takes the answer for a loss
        receiver.connection.wait(lambda: not session.state & session.REMOTE_ACTIVE)


def close(receiver: BlockingReceiver) -> None:
    """Close the connection."""
    receiver.connection.close()


def complain(receiver: BlockingReceiver) -> None:
    """Close the link with an error; Proton states none in a detach that keeps a durable subscription."""
    receiver.link.condition = Condition("test:unreadable", "this client cannot read the message")
    receiver.close()


def vanish(receiver: BlockingReceiver) -> None:
    """Close the socket without a word, as the kernel does it for a process that was killed."""
    connection = receiver.connection
    connection.conn.transport._selectable.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(ProtonException):
        connection.wait(lambda: connection.disconnected)


IN_ORDER: Final[dict[str, Callable[[BlockingReceiver], None]]] = {"detach": detach, "end": end, "close": close}
LOST: Final[dict[str, Callable[[BlockingReceiver], None]]] = {"complain": complain, "vanish": vanish}
WAYS: Final = {**IN_ORDER, **LOST}
