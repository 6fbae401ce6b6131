"""`enmasse receive`: receive messages from an address."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click

from enmasse.cli.common import OK, TIMED_OUT, Seconds, end, port_offset, say
from enmasse.cli.completion import addresses

if TYPE_CHECKING:
    from enmasse.aio.client import Client, ClientReceiver
    from enmasse.amqp.errors import AmqpError
    from enmasse.cli.target import Target

CREDIT = 100
CONTAINER = "enmasse-receive"
FIRST_DELAY, LAST_DELAY = 0.1, 5.0
"""Seconds before it connects again after a loss; twice as long each time it fails."""


@click.command(name="receive", short_help="Receive messages from an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after so many; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no message has come for so long.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Each message as one JSON object on a line.")
@click.option("--selector", help="A JMS selector (queues and topics).")
@click.option("--durable", "subscription", metavar="NAME", help="From the durable subscription NAME of a topic.")
@click.option("--unsubscribe", is_flag=True, help="With --durable: delete the subscription in the end.")
@click.option("--container", metavar="ID", help=f"Container-id; owns durable subscriptions (default {CONTAINER}).")
@port_offset
def command(
    address: str | None, url: str | None, count: int, timeout: float | None, as_json: bool, selector: str | None,
    subscription: str | None, unsubscribe: bool, container: str | None, offset: int,
) -> None:  # fmt: skip
    """Receive messages from an ADDRESS: prints each body on a line, then accepts it.

    It connects again when the connection is lost.

    Status 0: as many as wanted (without --count: until --timeout). 1: --unsubscribe of what does not exist.
    3: fewer than --count within --timeout.
    4: no connection, or the address was refused.
    """
    from enmasse.cli import amqp
    from enmasse.cli.target import choose

    if unsubscribe and subscription is None:
        raise click.UsageError("--unsubscribe goes with --durable NAME")
    target = choose(address, url, offset)
    if container is None and subscription is not None:
        container = CONTAINER
    wish = Wish(count, timeout, as_json, selector, subscription, unsubscribe)
    try:
        status = amqp.run(Session(target, container, wish).run(), target)
    except NoSubscription as error:
        end(str(error))
    except Unprinted as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
    sys.exit(status)


class Wish:
    """What the command was asked for."""

    def __init__(
        self, count: int, timeout: float | None, as_json: bool, selector: str | None, subscription: str | None,
        unsubscribe: bool,
    ) -> None:  # fmt: skip
        self.count = count
        self.timeout = timeout
        self.as_json = as_json
        self.selector = selector
        self.subscription = subscription
        self.unsubscribe = unsubscribe


class NoSubscription(Exception):
    """There is none to be deleted."""


class Unprinted(Exception):
    """Standard output takes no more; the cause says why."""


class Session:
    """Receives over one connection after the other, until there is as much as is wanted."""

    def __init__(self, target: Target, container: str | None, wish: Wish) -> None:
        self._target = target
        self._container = container
        self._wish = wish
        self._received = 0
        self._attached = False
        """Whether it has been since the last loss."""
        self._known = False
        """Whether a subscription that is to be deleted in the end has been found."""
        self._deadline: float | None = None
        """The end of the patience; begins with the first attach."""

    async def run(self) -> int:
        """The exit status. Raises AmqpError or OSError where there is nothing to receive from, Unprinted."""
        from enmasse.amqp.errors import AmqpError

        delay, was_attached = FIRST_DELAY, False
        while True:
            try:
                return await self._once()
            except (AmqpError, OSError) as error:
                was_attached = was_attached or self._attached
                if not was_attached or _is_final(error):
                    raise
                if self._attached:
                    say(f"{self._target}: {error}; connecting again")
                    delay = FIRST_DELAY
                self._attached = False
                if self._deadline is not None and time.monotonic() + delay >= self._deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)

    def _heard(self) -> None:
        if self._wish.timeout is not None:
            self._deadline = time.monotonic() + self._wish.timeout

    async def _once(self) -> int:
        from enmasse.cli.amqp import client_for

        wish = self._wish
        async with client_for(self._target, self._container) as client:
            if wish.unsubscribe and not self._known:
                await self._look_for_subscription(client)
            receiver = await client.receiver(
                self._target.address, credit=0, durable_name=wish.subscription, selector=wish.selector
            )
            self._check(receiver)
            self._attached = True
            if self._deadline is None:
                self._heard()
            try:
                return await self._print_messages(receiver)
            finally:  # what was fetched and not printed goes back to the address
                if not receiver.closed:
                    if wish.subscription is None or wish.unsubscribe:
                        await receiver.close()
                    else:
                        await receiver.detach()

    async def _look_for_subscription(self, client: Client) -> None:
        """Raises NoSubscription: to make one only to delete it would be no answer."""
        from enmasse.amqp.errors import NOT_FOUND, AmqpError

        name = self._wish.subscription
        assert name is not None
        try:
            found = await client.subscription(name)
        except AmqpError as error:
            if error.condition != NOT_FOUND:
                raise
            raise NoSubscription(
                f"{self._target}: there is no durable subscription {name!r} of container {self._container!r}; "
                "nothing was deleted"
            ) from None
        await found.detach()
        self._known = True

    def _check(self, receiver: ClientReceiver) -> None:
        """Raises AmqpError where the server has attached something else than was asked for."""
        from enmasse.amqp.errors import NOT_IMPLEMENTED, AmqpError

        source = receiver.link.remote_source
        if self._wish.subscription is not None and not getattr(source, "durable", 0):
            reason = "only a topic has durable subscriptions; receive from this address without --durable"
            raise AmqpError(NOT_IMPLEMENTED, reason)

    async def _print_messages(self, receiver: ClientReceiver) -> int:
        from enmasse.amqp.errors import AmqpError
        from enmasse.cli.show import as_json, as_text

        wish, target = self._wish, self._target
        show = as_json if wish.as_json else as_text
        granted = 0
        while not wish.count or self._received < wish.count:
            if granted <= CREDIT // 2:  # never more than are wanted: the others are for others
                more = CREDIT - granted
                if wish.count:
                    more = min(more, wish.count - self._received - granted)
                if more > 0:
                    receiver.grant(more)
                    granted += more
            try:
                delivery = await receiver.receive(
                    None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
                )
            except TimeoutError:
                if not wish.count:
                    return OK
                say(f"{target}: {self._received} of {wish.count} messages within {wish.timeout:g} s")
                return TIMED_OUT
            granted -= 1
            try:
                line = show(delivery.message)
            except AmqpError as error:
                await delivery.reject(error.condition, error.description)
                say(f"{target}: a message that is none was rejected: {error}")
            else:
                try:
                    click.echo(line)
                except OSError as error:
                    raise Unprinted from error
                await delivery.accept()
            self._received += 1
            self._heard()
        return OK


def _is_final(error: AmqpError | OSError) -> bool:
    """Whether to connect again would not help."""
    from enmasse.amqp import errors

    return isinstance(error, errors.AmqpError) and error.condition in (
        errors.NOT_FOUND, errors.NOT_ALLOWED, errors.NOT_IMPLEMENTED, errors.UNAUTHORIZED_ACCESS, errors.INVALID_FIELD,
        errors.PRECONDITION_FAILED, errors.RESOURCE_LOCKED, errors.STOLEN, errors.DECODE_ERROR,
    )  # fmt: skip
