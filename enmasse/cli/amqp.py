"""What `send` and `receive` share: a connection to a target, and endings by what went wrong."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Coroutine
from typing import Any

import click

from enmasse.amqp.client import Client, connect
from enmasse.amqp.errors import NOT_FOUND, AmqpError
from enmasse.cli.target import Target

TIMED_OUT, UNREACHABLE, INTERRUPTED = 3, 4, 130
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
    except AmqpError as error:
        reason = f"{target}: {error}"
        if error.condition == NOT_FOUND:
            reason += ". `enmasse address list` shows which addresses there are."
    except TimeoutError as error:
        reason = f"{target}: {error}"
    except OSError as error:
        reason = f"cannot connect to {target.host}:{target.port}: {error.strerror or error}. {remedy(error)}"
    except KeyboardInterrupt:
        return INTERRUPTED
    click.echo(reason, err=True)
    return UNREACHABLE


def remedy(error: OSError) -> str:
    """What to do where no connection came about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Let SSL_CERT_FILE name the file of its authority, and write the host name that the certificate is for."
    if isinstance(error, ssl.SSLError):
        return "Is this an AMQPS port? AMQP without TLS is amqp://…"
    return "Is `enmasse up` running, and with this --port-offset?"


def leave(status: int) -> None:
    """End the command. A pipe that nobody reads any more is no reason for a traceback."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    sys.exit(status)
