"""Asks the subscription service of the running suite, on `$mqtt/control` (docs/contracts.md)."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from enmasse.amqp.codec.errors import NOT_FOUND, AmqpError
from enmasse.amqp.codec.performatives import Rejected
from enmasse.amqp.messages.jsonform import plain
from enmasse.amqp.messages.message import Message
from enmasse.cli.common import UNREACHABLE, end
from enmasse.cli.contexts.http import SecretUnreadable, operator_credential
from enmasse.cli.contexts.remote import RemoteAddress, at_operators
from enmasse.cli.messages.amqp import connected, explain
from enmasse.identity.processes.credentials import Credential
from enmasse.model.sessions import CONTROL
from enmasse.text import offset_option

PATIENCE = 20.0
"""Seconds for an answer; the service may ask brokers for it."""
R = TypeVar("R")


class NoAnswer(Exception):
    """The service cannot be asked; the text has the reason and a remedy."""


class Refused(Exception):
    """The service does not do what it was asked; the text has its words. `condition`: of AMQP."""

    def __init__(self, text: str, condition: str = "") -> None:
        super().__init__(text)
        self.condition = condition


def ask(offset: int, subject: str, body: Any, reply: type[R], id: str = "subscription.request.refused") -> R:
    """Return the reply to a request. Ends the command with status 1 if it is refused, with 4 without an answer.

    `id`: the error if the service does not find what the request names.
    """
    try:
        return request(offset, subject, body, reply, PATIENCE)
    except NoAnswer as error:
        end("server.connection.failed", str(error), UNREACHABLE)
    except Refused as error:
        if error.condition == NOT_FOUND:
            end(id, str(error))
        end("subscription.request.refused", str(error))


def request(offset: int, subject: str, body: Any, reply: type[R], timeout: float) -> R:
    """Return the reply to a request. Raises NoAnswer, Refused."""
    remote = at_operators(CONTROL, offset)
    try:
        text = asyncio.run(_request(remote, operator_credential(offset, timeout), subject, body, timeout))
        return msgspec.json.decode(text, type=reply)
    except SecretUnreadable as error:
        raise NoAnswer(str(error)) from None
    except msgspec.MsgspecError as error:
        raise NoAnswer(f"{remote}: unexpected answer to {subject!r}: {error}") from None
    except (AmqpError, TimeoutError) as error:
        shown = f"`enmasse status{offset_option(offset)}` shows whether subserv runs and what it waits for."
        reason = str(error) or f"nothing came within {timeout:g} s"
        raise NoAnswer(f"the subscription service does not answer: {reason}. {shown}") from None
    except OSError as error:
        raise NoAnswer(explain(error, remote)) from None


async def _request(
    remote: RemoteAddress, credential: Credential | None, subject: str, body: Any, timeout: float
) -> str:
    content = None if body is None else msgspec.json.encode(body).decode()
    async with asyncio.timeout(timeout), connected(remote, credential=credential) as client:
        replies = await client.receiver(None, dynamic=True, credit=1)
        sender = await client.sender(CONTROL)
        message = Message(content, subject=subject, reply_to=replies.address, correlation_id=subject)
        outcome = await sender.send(message, timeout=timeout)
        if isinstance(outcome, Rejected):
            error = outcome.error
            if error is None:
                raise Refused("refused")
            raise Refused(error.description or str(error.condition), str(error.condition))
        delivery = await anext(aiter(replies))
        await delivery.accept()
        return str(plain(delivery.message.body))
