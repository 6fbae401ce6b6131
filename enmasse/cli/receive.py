"""`enmasse receive`: receive messages from an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from enmasse.cli.common import FAILED, OK, Seconds, port_offset

if TYPE_CHECKING:
    from enmasse.amqp.client import ClientReceiver
    from enmasse.cli.target import Target

CREDIT = 100
CONTAINER = "enmasse-receive"


@click.command(name="receive", short_help="Receive messages from an address.")
@click.argument("address", required=False)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after so many; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no message has come for so long.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Each message as one JSON object on a line.")
@click.option("--selector", help="A JMS selector (brokers and topics only).")
@click.option("--durable", "subscription", metavar="NAME", help="From the durable subscription NAME of a topic.")
@click.option("--unsubscribe", is_flag=True, help="With --durable: delete the subscription in the end.")
@click.option("--container", metavar="ID", help=f"Container-id; owns durable subscriptions (default {CONTAINER}).")
@port_offset
def command(
    address: str | None, url: str | None, count: int, timeout: float | None, as_json: bool, selector: str | None,
    subscription: str | None, unsubscribe: bool, container: str | None, offset: int,
) -> None:  # fmt: skip
    """Receive messages from an ADDRESS: prints each body on a line, then accepts it.

    Status 0: as many as wanted (without --count: until --timeout). 3: fewer than --count within --timeout.
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
    amqp.leave(amqp.run(_receive(target, container, wish), target))


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


async def _receive(target: Target, container: str | None, wish: Wish) -> int:
    from enmasse.cli.amqp import client_for

    async with client_for(target, container) as client:
        receiver = await client.receiver(
            target.address, credit=0, durable_name=wish.subscription, selector=wish.selector
        )
        try:
            return await _print_messages(receiver, target, wish)
        finally:  # what was fetched and not printed goes back to the address
            if not receiver.closed:
                if wish.subscription is None or wish.unsubscribe:
                    await receiver.close()
                else:
                    await receiver.detach()


async def _print_messages(receiver: ClientReceiver, target: Target, wish: Wish) -> int:
    from enmasse.amqp.errors import AmqpError
    from enmasse.cli.amqp import TIMED_OUT
    from enmasse.cli.show import as_json, as_text

    show = as_json if wish.as_json else as_text
    granted = received = 0
    while not wish.count or received < wish.count:
        if granted - received <= CREDIT // 2:  # never more than are wanted: the others are for others
            more = CREDIT - (granted - received)
            if wish.count:
                more = min(more, wish.count - granted)
            if more > 0:
                receiver.grant(more)
                granted += more
        try:
            delivery = await receiver.receive(wish.timeout)
        except TimeoutError:
            if not wish.count:
                return OK
            click.echo(f"{target}: {received} of {wish.count} messages within {wish.timeout:g} s", err=True)
            return TIMED_OUT
        try:
            line = show(delivery.message)
        except AmqpError as error:
            await delivery.reject(error.condition, error.description)
            click.echo(f"{target}: a message that is none was rejected: {error}", err=True)
            received += 1
            continue
        try:
            click.echo(line)
        except BrokenPipeError:
            return FAILED
        await delivery.accept()
        received += 1
    return OK
