"""Shared by `send` and `receive`: the client, and the exit status and message for each error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import NOT_FOUND, UNAUTHORIZED_ACCESS, AmqpError, LoginError
from enmasse.cli.common import INTERRUPTED, UNREACHABLE, report
from enmasse.cli.contexts.first_connection import opened
from enmasse.cli.contexts.hints import addresses_of, cause, of_space_user, remedy
from enmasse.cli.contexts.http import SecretUnreadable, operator_credential
from enmasse.cli.contexts.remote import RemoteAddress
from enmasse.cli.contexts.user_password import HOW_TO_LOG_IN
from enmasse.errors import marked
from enmasse.identity.processes.credentials import Credential
from enmasse.model.names import WireName, address_name
from enmasse.text import did_you_mean, offset_option

CONNECT_SECONDS = 15.0
"""Longer than the 10 s after which the server answers a login that cannot be checked."""
_REFUSALS = (
    errors.ILLEGAL_STATE, errors.INVALID_FIELD, errors.NOT_ALLOWED, errors.NOT_IMPLEMENTED,
    errors.PRECONDITION_FAILED, errors.RESOURCE_LIMIT_EXCEEDED, errors.RESOURCE_LOCKED, errors.STOLEN,
)  # fmt: skip
"""Conditions with which an address refuses what a link asks of it."""


class NotOpened(AmqpError):
    """The server did not open the connection: no address has refused anything."""


@asynccontextmanager
async def connected(
    remote: RemoteAddress, container: str | None = None, credential: Credential | None = None
) -> AsyncIterator[Client]:
    """Open a connection to the server of `remote`, and close it at the end. A restart of the suite's router is waited
    for. Raises OSError, TimeoutError or AmqpError.
    """
    if remote.by_operator:
        credential = await asyncio.to_thread(operator, remote)

    async def opening() -> Client:
        return await connect(  # one for each attempt: its login is used up when the connection is lost
            host=remote.host,
            port=remote.port,
            user=remote.user,
            password=remote.password,
            ssl=remote.context(),
            external=remote.certified,
            container_id=container,
            credential=credential,
            space=remote.space,
            timeout=CONNECT_SECONDS,
        ).open(CONNECT_SECONDS)

    try:
        client = await opened(opening, remote.port, remote.offset)
    except LoginError:
        raise
    except AmqpError as error:
        raise NotOpened(error.condition, error.description, error.info) from None
    try:
        yield client
    finally:
        await client.close()


def operator(remote: RemoteAddress) -> Credential | None:
    """Return the credential of the operator of this machine. Raises LoginError if this user cannot read it."""
    try:
        return operator_credential(remote.offset or 0)
    except SecretUnreadable as error:
        raise LoginError(f"{error}, or as a user of the address space") from None


def run(work: Coroutine[Any, Any, int], remote: RemoteAddress) -> int:
    """Return the exit status of `work`; an exception becomes a line on stderr and a status."""
    try:
        return asyncio.run(work)
    except (AmqpError, OSError) as error:
        report(failure(error, remote))
        return UNREACHABLE
    except KeyboardInterrupt:
        return INTERRUPTED


def failure(error: AmqpError | OSError, remote: RemoteAddress) -> str:
    """Return the error, a remedy and the id."""
    text = explain(error, remote)
    if isinstance(error, AmqpError) and error.condition == NOT_FOUND:
        return marked("address.name.unknown", text)
    if isinstance(error, AmqpError) and error.condition in _REFUSALS and not isinstance(error, NotOpened):
        return marked("address.request.refused", text)
    return marked("server.connection.failed", refusal(error, remote) or text)


def refusal(error: AmqpError | OSError, remote: RemoteAddress) -> str | None:
    """Return the error with its id if the server refused the user, None for other errors."""
    text = explain(error, remote)
    if isinstance(error, LoginError):
        if error.temporary:
            where = f"; `enmasse status{offset_option(remote.offset)}` shows it" if remote.offset is not None else ""
            text += f". The authentication service does not answer, is starting or has too much to do{where}"
            return marked("server.login.unavailable", text)
        if remote.user is None and remote.space is None and not remote.certified:
            return marked("server.login.missing", f"{text}. {HOW_TO_LOG_IN}")
        if error.offered is not None:
            if remote.user is not None and list(error.offered) == ["ANONYMOUS"]:
                text += ". The server has no users: leave the user out"
            return marked("server.login.unsuitable", text)
        text += f", or you have to wait after failed logins{of_space_user(remote)}"
        return marked("server.login.refused", text)
    if isinstance(error, AmqpError) and error.condition == UNAUTHORIZED_ACCESS:
        return marked("server.operation.denied", text)
    return None


def _meant(remote: RemoteAddress) -> str:
    """Return a sentence with the address of the suite that may be meant; empty if none is like it."""
    return did_you_mean(remote.address, addresses_of(remote))


def known_row(remote: RemoteAddress) -> dict[str, Any] | None:
    """Return the row of the address in the status of the suite on this machine, that of the topic for one below a
    topic; None for other addresses and other servers."""
    known = addresses_of(remote)
    name = str(address_name(WireName(remote.address)))
    while name not in known and "/" in name:  # below a topic
        name = name.rpartition("/")[0]
    return known.get(name)


def why_no_credit(remote: RemoteAddress) -> str:
    """Return what the suite reports about the address, or for another server the possible reasons."""
    from enmasse.model.address_types import TYPES

    if (entry := known_row(remote)) is None:
        return (
            "On an anycast or multicast address no consumer is attached; a queue or topic is full, was removed and is "
            "kept until it is empty, or its broker is away"
        )
    if entry["phase"] == "Active" and entry["type"] in TYPES and not TYPES[entry["type"]].stored:
        return f"The address is of type {entry['type']}: no consumer is attached"
    message = entry.get("message") or ("it is full, or its broker is away" if entry["phase"] == "Active" else "")
    return f"The address is {entry['phase']}{': ' if message else ''}{message}"


def explain(error: AmqpError | OSError, remote: RemoteAddress) -> str:
    """Return the error, the address, and a remedy."""
    if isinstance(error, AmqpError):
        known = error.condition == NOT_FOUND and remote.offset is not None
        options = offset_option(remote.offset or 0) + (f" --space {remote.space}" if remote.space is not None else "")
        which = f"`enmasse address list{options}` shows which addresses there are."
        return f"{remote}: {error}. {which}{_meant(remote)}" if known else f"{remote}: {error}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"{remote}: {error}"
    tip = remedy(error, remote, "Is this an AMQPS port? AMQP without TLS is amqp://…")
    return f"cannot connect to {remote.host}:{remote.port}: {cause(error)}. {tip}"
