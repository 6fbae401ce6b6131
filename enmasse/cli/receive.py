"""`enmasse receive`: receive messages from an address."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from enmasse.cli.attempts import Attempts, Unprinted
from enmasse.cli.common import OK, TIMED_OUT, Seconds, TlsFiles, end, port_offset, report, tls_options
from enmasse.cli.completion import addresses
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.aio.client import Client, ClientReceiver
    from enmasse.amqp.errors import AmqpError
    from enmasse.cli.remote import RemoteAddress

CREDIT = 100
CONTAINER = "enmasse-receive"


@click.command(name="receive", short_help="Receive messages from an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after N messages; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no message has arrived for SECONDS.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object on one line.")
@click.option("--selector", help="A JMS selector (queues and topics).")
@click.option("--durable", "subscription", metavar="NAME", help="Receive from a topic's durable subscription NAME.")
@click.option("--unsubscribe", is_flag=True, help="With --durable: delete the subscription at the end.")
@click.option("--container", metavar="ID", help=f"Container-id; owns durable subscriptions (default {CONTAINER}).")
@tls_options
@port_offset
def command(
    address: str | None, url: str | None, count: int, timeout: float | None, as_json: bool, selector: str | None,
    subscription: str | None, unsubscribe: bool, container: str | None, tls: TlsFiles, offset: int,
) -> None:  # fmt: skip
    """Receive messages from an ADDRESS: prints each body on a line, then accepts it.

    It connects again when the connection is lost.

    Exit status 0: --count messages were received (without --count: until --timeout). 1: the subscription of
    --unsubscribe does not exist. 3: fewer than --count messages within --timeout. 4: no connection, or the address
    was refused.
    """
    from enmasse.cli import amqp
    from enmasse.cli.remote import choose

    if unsubscribe and subscription is None:
        raise click.UsageError("--unsubscribe needs --durable NAME")
    remote = choose(address, url, offset, tls)
    if container is None and subscription is not None:
        container = CONTAINER
    options = ReceiveOptions(count, timeout, as_json, selector, subscription, unsubscribe)
    try:
        status = amqp.run(ReceiveLoop(remote, container, options).run(), remote)
    except NoSubscription as error:
        end("subscription.name.unknown", str(error))
    except Unprinted as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
    sys.exit(status)


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """The options of the command."""

    count: int
    """Messages after which it ends; 0: it does not."""
    timeout: float | None
    """Seconds without a message after which it ends."""
    as_json: bool
    selector: str | None
    subscription: str | None
    unsubscribe: bool


class NoSubscription(Exception):
    """There is no subscription to delete."""


class ReceiveLoop:
    """Receives until the count or the timeout is reached. After a loss it connects again."""

    def __init__(self, remote: RemoteAddress, container: str | None, options: ReceiveOptions) -> None:
        self._remote = remote
        self._container = container
        self._options = options
        self._received = 0
        self._attempts = Attempts(remote, options.timeout)
        self._known = False
        """Whether the subscription that --unsubscribe deletes exists."""

    async def run(self) -> int:
        """Return the exit status. Raises AmqpError or OSError if it cannot receive, Unprinted."""
        from enmasse.amqp.errors import AmqpError

        return await self._attempts.run(self._once, (AmqpError, OSError), _is_final)

    async def _once(self) -> int:
        from enmasse.cli.amqp import connected

        options = self._options
        async with connected(self._remote, self._container) as client:
            if options.unsubscribe and not self._known:
                await self._look_for_subscription(client)
            receiver = await client.receiver(
                self._remote.address, credit=0, durable_name=options.subscription, selector=options.selector
            )
            self._check(receiver)
            self._attempts.receiving()
            try:
                return await self._print_messages(receiver)
            finally:  # messages that were not printed go back to the address
                if not receiver.closed:
                    if options.subscription is None or options.unsubscribe:
                        await receiver.close()
                    else:
                        await receiver.detach()

    async def _look_for_subscription(self, client: Client) -> None:
        """Check that the subscription exists: an attach would create it. Raises NoSubscription."""
        from enmasse.amqp.errors import NOT_FOUND, AmqpError

        name = self._options.subscription
        assert name is not None
        try:
            found = await client.subscription(name)
        except AmqpError as error:
            if error.condition != NOT_FOUND:
                raise
            raise NoSubscription(
                f"{self._remote}: there is no durable subscription {name!r} of container {self._container!r}; "
                "nothing was deleted"
            ) from None
        await found.detach()
        self._known = True

    def _check(self, receiver: ClientReceiver) -> None:
        """Check that the link has the durable subscription. Raises AmqpError if the server attached it without."""
        from enmasse.amqp.errors import NOT_IMPLEMENTED, AmqpError

        source = receiver.link.remote_source
        if self._options.subscription is not None and not getattr(source, "durable", 0):
            reason = "only a topic has durable subscriptions; receive from this address without --durable"
            raise AmqpError(NOT_IMPLEMENTED, reason)

    async def _print_messages(self, receiver: ClientReceiver) -> int:
        from enmasse.amqp.errors import AmqpError
        from enmasse.cli.show import as_json, as_text

        options, remote = self._options, self._remote
        show = as_json if options.as_json else as_text
        granted = 0
        while not options.count or self._received < options.count:
            if granted <= CREDIT // 2:  # never more than --count: other receivers may get the rest
                more = CREDIT - granted
                if options.count:
                    more = min(more, options.count - self._received - granted)
                if more > 0:
                    receiver.grant(more)
                    granted += more
            try:
                delivery = await receiver.receive(self._attempts.left())
            except TimeoutError:
                if not options.count:
                    return OK
                text = f"{remote}: {self._received} of {options.count} messages within {options.timeout:g} s"
                report(marked("messages.delivery.missing", text))
                return TIMED_OUT
            granted -= 1
            try:
                line = show(delivery.message)
            except AmqpError as error:
                await delivery.reject(error.condition, error.description)
                report(f"{remote}: a message that cannot be decoded was rejected: {error}")
            else:
                try:
                    click.echo(line)
                except OSError as error:
                    raise Unprinted from error
                await delivery.accept()
            self._received += 1
            self._attempts.extend()
        return OK


def _is_final(error: AmqpError | OSError) -> bool:
    """Return whether to connect again would not help."""
    from enmasse.amqp import errors

    if isinstance(error, errors.LoginError):
        return not error.temporary
    return isinstance(error, errors.AmqpError) and error.condition in (
        errors.NOT_FOUND, errors.NOT_ALLOWED, errors.NOT_IMPLEMENTED, errors.UNAUTHORIZED_ACCESS, errors.INVALID_FIELD,
        errors.PRECONDITION_FAILED, errors.RESOURCE_LOCKED, errors.STOLEN, errors.DECODE_ERROR,
    )  # fmt: skip
