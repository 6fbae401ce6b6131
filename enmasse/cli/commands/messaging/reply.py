"""`enmasse reply`: answer the requests that arrive at an address."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import OK, TIMED_OUT, Seconds, TlsFiles, port_offset, put, report, tls_options
from enmasse.cli.completion import addresses
from enmasse.cli.messages.field_options import message_options
from enmasse.cli.messages.reconnects import Reconnects, Unprinted
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.aio.client import Client, Delivery
    from enmasse.cli.contexts.remote import RemoteAddress

CREDIT = 10


@click.command(name="reply", short_help="Answer the requests that arrive at an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.argument("body", required=False)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after N requests; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no request has arrived for SECONDS.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print each request as a JSON object on one line.")
@message_options
@tls_options
@port_offset
def command(
    address: str | None, body: str | None, url: str | None, count: int, timeout: float | None, as_json: bool,
    fields: dict[str, Any], tls: TlsFiles, offset: int,
) -> None:  # fmt: skip
    """Answer each request that arrives at an ADDRESS with BODY, or without BODY with what it holds itself, and print
    its body. A request is accepted after its reply was; one without `reply-to` is rejected.

    Exit status 0: --count requests were answered (without --count: until --timeout). 3: fewer than --count requests
    within --timeout. 4: no connection, or the address was refused.
    """
    from enmasse.cli.contexts.remote import choose, is_from_environment
    from enmasse.cli.messages import amqp

    if url is not None and address is not None and body is None:
        address, body = None, address
    elif url is not None and address is not None and not is_from_environment("url"):
        raise click.UsageError("with -a there is no ADDRESS, only BODY")
    if fields.keys() & {"to", "correlation_id"}:
        raise click.UsageError("a reply goes where its request says: leave out --to and --correlation-id")
    remote = choose(address, url, offset, tls)
    try:
        status = amqp.run(Replier(remote, body, fields, count, timeout, as_json=as_json).run(), remote)
    except Unprinted as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
    sys.exit(status)


class Replier:
    """Answers requests until the count or the timeout is reached. After a loss it connects again."""

    def __init__(
        self, remote: RemoteAddress, body: str | None, fields: dict[str, Any], count: int, timeout: float | None, *,
        as_json: bool = False,
    ) -> None:  # fmt: skip
        self._remote = remote
        self._body = body
        self._fields = fields
        self._count = count
        self._timeout = timeout
        self._as_json = as_json
        self._answered = 0
        self._attempts = Reconnects(remote, timeout)

    async def run(self) -> int:
        """Return the exit status. Raises AmqpError or OSError if it cannot receive, Unprinted."""
        from enmasse.amqp.codec.errors import AmqpError
        from enmasse.cli.commands.messaging.receive import is_final

        return await self._attempts.run(self._once, (AmqpError, OSError), is_final)

    async def _once(self) -> int:
        from enmasse.cli.messages.amqp import connected

        async with connected(self._remote) as client:
            requests = await client.receiver(self._remote.address, credit=CREDIT if not self._count else 0)
            if self._count:
                requests.grant(self._count - self._answered)  # others may answer the rest
            self._attempts.receiving()
            while not self._count or self._answered < self._count:
                try:
                    request = await requests.receive(self._attempts.left())
                except TimeoutError:
                    if not self._count:
                        return OK
                    text = f"{self._remote}: {self._answered} of {self._count} requests within {self._timeout:g} s"
                    report(marked("messages.delivery.missing", text))
                    return TIMED_OUT
                await self._answer(client, request)
                self._answered += 1
                self._attempts.extend()
        return OK

    async def _answer(self, client: Client, request: Delivery) -> None:
        """Print a request, send the reply, and settle the request. Raises AmqpError, OSError, Unprinted."""
        from enmasse.amqp.codec.errors import DECODE_ERROR, PRECONDITION_FAILED, AmqpError
        from enmasse.amqp.codec.performatives import ACCEPTED
        from enmasse.amqp.messages.message import Message
        from enmasse.cli.output.show import as_json, as_text

        try:
            asked = request.message
        except AmqpError as error:
            await request.reject(DECODE_ERROR, error.description)
            report(f"{self._remote}: a message that cannot be decoded was rejected: {error}")
            return
        if not asked.reply_to:
            await request.reject(PRECONDITION_FAILED, "a request needs reply-to")
            report(f"{self._remote}: a message without reply-to was rejected: {as_text(asked)}")
            return
        try:
            put(as_json(asked, request.payload) if self._as_json else as_text(asked))
        except OSError as error:
            raise Unprinted from error
        key = asked.correlation_id if asked.correlation_id is not None else asked.message_id
        body = asked.body if self._body is None else self._body
        reply = Message(body, **{**self._fields, "correlation_id": key, "to": asked.reply_to})
        try:
            sender = await client.sender(asked.reply_to)
            outcome = await sender.send(reply, timeout=self._timeout or 10.0)
            await sender.close()
        except AmqpError as error:
            if client.error is not None:
                raise
            outcome = error
        except TimeoutError as error:
            outcome = error
        if outcome is ACCEPTED or outcome is None:
            await request.accept()
        else:  # the client is gone: no other reply would reach it
            await request.reject(PRECONDITION_FAILED, f"the reply was not accepted: {outcome}")
            report(f"{self._remote}: the reply to {asked.reply_to} was not accepted: {outcome}")
