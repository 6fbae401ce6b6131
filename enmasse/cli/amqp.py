"""What `send` and `receive` share: a connection to a target, and endings by what went wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from typing import Any

from enmasse.aio.client import Client, connect
from enmasse.amqp.errors import NOT_FOUND, AmqpError
from enmasse.cli.common import INTERRUPTED, UNREACHABLE, here, say
from enmasse.cli.target import Target

CONNECT_SECONDS = 10.0


def client_for(target: Target, container: str | None = None) -> Client:
    """A client for the target's server, not connected yet."""
    return connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        ssl=target.tls or None,
        container_id=container,
        timeout=CONNECT_SECONDS,
    )


def run(work: Coroutine[Any, Any, int], target: Target) -> int:
    """The exit status of `work`; what it raises becomes a line on stderr and a status."""
    try:
        return asyncio.run(work)
    except (AmqpError, OSError) as error:
        say(explain(error, target))
        return UNREACHABLE
    except KeyboardInterrupt:
        return INTERRUPTED


def explain(error: AmqpError | OSError, target: Target) -> str:
    """What went wrong, where, and what to do."""
    if isinstance(error, AmqpError):
        known = error.condition == NOT_FOUND and target.offset is not None
        which = f"`enmasse address list{here(target.offset or 0)}` shows which addresses there are."
        return f"{target}: {error}. {which}" if known else f"{target}: {error}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"{target}: {error}"
    return f"cannot connect to {target.host}:{target.port}: {error.strerror or error}. {remedy(error, target)}"


def remedy(error: OSError, target: Target) -> str:
    """What to do where no connection came about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Let SSL_CERT_FILE name the file of its authority, and write the host name that the certificate is for."
    if isinstance(error, ssl.SSLError):
        return "Is this an AMQPS port? AMQP without TLS is amqp://…"
    if target.offset is None:
        return "Does a server run there, on this port?"
    return f"Is `enmasse up{here(target.offset)}` running? --port-offset chooses between suites."
