"""`enmasse request`: send a request to an address and print the reply."""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, OK, TIMED_OUT, Seconds, TlsFiles, port_offset, put, report, tls_options
from enmasse.cli.completion import addresses
from enmasse.cli.messages.field_options import message_options
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.aio.client import ClientReceiver, Delivery
    from enmasse.cli.contexts.remote import RemoteAddress


@click.command(name="request", short_help="Send a request to an address and print the reply.")
@click.argument("address", required=False, shell_complete=addresses)
@click.argument("body", required=False)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE",
              help="The body is the content of FILE; - is stdin.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), default=10.0, show_default=True, metavar="SECONDS",
              help="How long to wait for the reply.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the reply as a JSON object.")
@message_options
@tls_options
@port_offset
def command(
    address: str | None, body: str | None, url: str | None, file: str | None, timeout: float, as_json: bool,
    fields: dict[str, Any], tls: TlsFiles, offset: int,
) -> None:  # fmt: skip
    """Send a request to an ADDRESS: BODY, the content of --file, or an empty message. Print the body of the reply,
    which comes to an address made for it. `enmasse reply` and programs that reply to `reply-to` answer it.

    Exit status 0: a reply came. 1: the request was not accepted. 3: no reply, or nothing took the request, within
    --timeout. 4: no connection, or the address was refused.
    """
    from enmasse.cli.contexts.remote import choose, is_from_environment
    from enmasse.cli.messages import amqp
    from enmasse.cli.messages.bodies import content

    if url is not None and address is not None and body is None:
        address, body = None, address
    elif url is not None and address is not None and not is_from_environment("url"):
        raise click.UsageError("with -a there is no ADDRESS, only BODY")
    if file is not None and body is not None:
        raise click.UsageError("give BODY or --file FILE, not both")
    if "reply_to" in fields:
        raise click.UsageError("the reply comes to an address made for it: leave out --reply-to")
    remote = choose(address, url, offset, tls)
    whole = body if file is None else content(file)
    printed: list[str] = []
    status = amqp.run(_request(remote, whole, fields, timeout, printed, as_json=as_json), remote)
    for line in printed:
        put(line)
    sys.exit(status)


async def _request(
    remote: RemoteAddress, body: str | bytes | None, fields: dict[str, Any], timeout: float, printed: list[str], *,
    as_json: bool,
) -> int:  # fmt: skip
    """Return the exit status; the reply is added to `printed`. Raises AmqpError, OSError."""
    from enmasse.amqp.codec.performatives import ACCEPTED
    from enmasse.amqp.messages.message import Message
    from enmasse.cli.messages.amqp import connected
    from enmasse.cli.output.show import as_json as json_line
    from enmasse.cli.output.show import as_text

    async with connected(remote) as client:
        replies = await client.receiver(None, dynamic=True)
        sender = await client.sender(remote.address)
        id = uuid.uuid4().hex
        given = {"durable": True, "message_id": id, "correlation_id": id, **fields}
        message = Message(body, **{**given, "reply_to": replies.address})
        wanted = (message.correlation_id, message.message_id)
        # The request may be accepted only after its reply was.
        sending = asyncio.ensure_future(sender.send(message))
        answer = asyncio.ensure_future(_reply(replies, wanted))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait([sending, answer], return_when=asyncio.FIRST_COMPLETED)
                if not answer.done() and (outcome := sending.result()) not in (ACCEPTED, None):
                    report(marked("messages.delivery.failed", f"{remote}: the request was not accepted: {outcome}"))
                    return FAILED
                delivery = await answer
        except TimeoutError:
            why = await _why_no_reply(remote, taken=not sender.waiting, settled=sending.done())
            report(marked("messages.reply.missing", f"{remote}: no reply within {timeout:g} s: {why}"))
            return TIMED_OUT
        finally:
            sending.cancel()
            answer.cancel()
        message = delivery.message
        printed.append(json_line(message, delivery.payload) if as_json else as_text(message))
    return OK


async def _why_no_reply(remote: RemoteAddress, *, taken: bool, settled: bool) -> str:
    """Return what has become of a request: whether it was `taken` from the command, and its outcome known."""
    from enmasse.cli.messages.amqp import why_no_credit

    if not taken:
        return f"nothing has taken the request. {await asyncio.to_thread(why_no_credit, remote)}"
    return "the request was accepted, and nothing answered" if settled else "a receiver has the request"


async def _reply(replies: ClientReceiver, wanted: tuple[Any, ...]) -> Delivery:
    """Return the reply that has one of these correlation-ids. Raises AmqpError."""
    while True:
        delivery = await replies.receive()
        await delivery.accept()
        if delivery.message.correlation_id in wanted:
            return delivery
