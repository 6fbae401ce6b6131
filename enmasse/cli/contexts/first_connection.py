"""First connection of a command: it waits while the suite on this machine restarts a router or gateway."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError, LoginError
from enmasse.cli.contexts.http import is_other_suite, public_ports
from enmasse.network.backoff import LOOK, Backoff

T = TypeVar("T")

RESTART_SECONDS = 5.0
"""Longest time that a command waits for a port of a running suite; a router that died is back within half a second."""


class NotListening(ConnectionRefusedError):
    """The suite runs, but nothing listened on the port for RESTART_SECONDS."""


async def opened(open: Callable[[], Awaitable[T]], port: int, offset: int | None) -> T:
    """Return the result of `open`. If a port of the running suite refuses the connection, or it is lost before the
    server has answered, call `open` again for RESTART_SECONDS.

    `offset` selects the suite; None is a server that the user named, to which there is one attempt. Raises NotListening
    if the port stays closed while the suite runs, ConnectionRefusedError if the port is that of a suite with another
    offset, and otherwise what `open` raises.
    """
    if offset is not None and await asyncio.to_thread(is_other_suite, offset):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    deadline, backoff = math.inf, Backoff(LOOK)
    while True:
        try:
            return await open()
        except (OSError, AmqpError) as error:
            if offset is None or not _died(error) or not await asyncio.to_thread(_has_port, port, offset):
                raise
            deadline = min(deadline, time.monotonic() + RESTART_SECONDS)  # a process that hangs is ended after a while
            delay = backoff.wait()
            if time.monotonic() + delay > deadline:
                if isinstance(error, ConnectionRefusedError):
                    raise NotListening(error.errno, error.strerror) from None
                raise
        await asyncio.sleep(delay)


def _died(error: OSError | AmqpError) -> bool:
    """Return whether nothing listens, the process that did has ended before it answered, or logins cannot be checked at
    the moment."""
    from enmasse.aio.mqtt import Disconnected

    if isinstance(error, LoginError):
        return error.temporary  # as in the moment in which the first user is added
    if isinstance(error, AmqpError):
        return error.condition == CONNECTION_FORCED
    if isinstance(error, Disconnected):
        return error.packet is None and error.reason is None
    return isinstance(error, ConnectionRefusedError | ConnectionResetError)


def _has_port(port: int, offset: int) -> bool:
    """Return True if the suite runs and `port` is one of its public ports."""
    return port in (public_ports(offset) or ())
