"""`enmasse receive`: receive messages from an address."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from enmasse.cli.common import (
    FAILED,
    OK,
    TIMED_OUT,
    Seconds,
    TlsFiles,
    end,
    port_offset,
    put,
    put_bytes,
    report,
    tls_options,
)
from enmasse.cli.completion import addresses
from enmasse.cli.messages.reconnects import Reconnects, Unprinted
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.aio.client import Client, ClientReceiver, Delivery
    from enmasse.amqp.codec.errors import AmqpError
    from enmasse.cli.contexts.remote import RemoteAddress

CREDIT = 100
DRAIN_SECONDS = 60.0
"""For the answer to a browser that asks whether there is one more message."""
CONTAINER = "enmasse-receive"
ACCEPT, BROWSE, REJECT, RELEASE = "accept", "browse", "reject", "release"
REJECTED_CONDITION = "enmasse:rejected"
REJECTED = "rejected by `enmasse receive --reject`"


@click.command(name="receive", short_help="Receive messages from an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after N messages; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no message has arrived for SECONDS.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object on one line.")
@click.option("--raw", is_flag=True,
              help="Write each body unchanged, without a line end: --count 1 --raw > FILE.")  # fmt: skip
@click.option("--selector", help="A JMS selector (queues and topics).")
@click.option("--browse", is_flag=True, help="Print what a queue holds and leave it there; ends after the last one.")
@click.option("--reject", is_flag=True, help="Reject each message: a queue moves it to its dead-letter address.")
@click.option("--release", "give_back", is_flag=True,
              help="Give the messages back at the end, as if they had not been delivered.")  # fmt: skip
@click.option("--durable", "subscription", metavar="NAME", help="Receive from a topic's durable subscription NAME.")
@click.option("--unsubscribe", is_flag=True, help="With --durable: print what it holds, then delete it.")
@click.option("--container", metavar="ID", help=f"Container-id; owns durable subscriptions (default {CONTAINER}).")
@tls_options
@port_offset
def command(
    address: str | None, url: str | None, count: int, timeout: float | None, as_json: bool, raw: bool,
    selector: str | None, browse: bool, reject: bool, give_back: bool, subscription: str | None, unsubscribe: bool,
    container: str | None, tls: TlsFiles, offset: int,
) -> None:  # fmt: skip
    """Receive messages from an ADDRESS: prints each body on a line, then accepts it (or see --browse, --reject and
    --release).

    It connects again when the connection is lost.

    Exit status 0: --count messages were received (without --count: until --timeout, with --browse or --unsubscribe
    until the last message). 1: the subscription of --unsubscribe does not exist, or holds more and was kept. 3: fewer
    than --count messages within --timeout. 4: no connection, or the address was refused.
    """
    from enmasse.cli.contexts.remote import choose
    from enmasse.cli.messages import amqp

    if unsubscribe and subscription is None:
        raise click.UsageError("--unsubscribe needs --durable NAME")
    if browse + reject + give_back > 1 or (browse and subscription is not None):
        raise click.UsageError("--browse, --reject and --release exclude each other, and --browse excludes --durable")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    if raw and sys.stdout.isatty():
        raise click.UsageError("--raw writes bytes that may change a terminal: give it a file, --raw > FILE")
    remote = choose(address, url, offset, tls)
    if container is None and subscription is not None:
        container = CONTAINER
    outcome = BROWSE if browse else REJECT if reject else RELEASE if give_back else ACCEPT
    options = ReceiveOptions(count, timeout, as_json, raw, selector, outcome, subscription, unsubscribe)
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
    raw: bool
    selector: str | None
    outcome: str
    """Outcome of a message that was printed: ACCEPT, BROWSE, REJECT or RELEASE."""
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
        self._attempts = Reconnects(remote, options.timeout)
        self._known = False
        """Whether the subscription that --unsubscribe deletes exists."""

    async def run(self) -> int:
        """Return the exit status. Raises AmqpError or OSError if it cannot receive, Unprinted."""
        from enmasse.amqp.codec.errors import AmqpError

        return await self._attempts.run(self._once, (AmqpError, OSError), is_final)

    async def _once(self) -> int:
        from enmasse.cli.messages.amqp import connected

        options = self._options
        async with connected(self._remote, self._container) as client:
            if options.unsubscribe and not self._known:
                await self._look_for_subscription(client)
            receiver = await client.receiver(
                self._remote.address,
                credit=0,
                durable_name=options.subscription,
                selector=options.selector,
                browse=options.outcome == BROWSE,
            )
            self._check(receiver)
            if self._attempts.received_before:
                await asyncio.to_thread(self._report_return)
            self._attempts.receiving()
            try:
                status = await self._print_messages(receiver)
                if options.unsubscribe and status == OK and options.count and await self._has_more(receiver):
                    await receiver.detach()
                    text = (
                        f"{self._remote}: {options.subscription} holds more than {options.count} messages; it was not"
                    )
                    text += " deleted. Leave out --count to print all of them."
                    report(marked("subscription.messages.kept", text))
                    return FAILED
                return status
            finally:  # messages that were not printed go back to the address
                if not receiver.closed:
                    if options.subscription is None or options.unsubscribe:
                        await receiver.close()
                    else:
                        await receiver.detach()

    async def _has_more(self, receiver: ClientReceiver) -> bool:
        """Return whether a message waits that was not printed."""
        receiver.grant(1)
        await receiver.drain(DRAIN_SECONDS)
        return receiver.fetched > 0

    async def _look_for_subscription(self, client: Client) -> None:
        """Check that the subscription exists: an attach would create it. Raises NoSubscription."""
        from enmasse.amqp.codec.errors import NOT_FOUND, AmqpError

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
        from enmasse.amqp.codec.errors import NOT_IMPLEMENTED, AmqpError

        source = receiver.link.remote_source
        if self._options.subscription is not None and not getattr(source, "durable", 0):
            reason = "only a topic has durable subscriptions; receive from this address without --durable"
            raise AmqpError(NOT_IMPLEMENTED, reason)

    def _report_return(self) -> None:
        """Report that the connection is there again, and whether messages may be missing, as far as that is known."""
        from enmasse.cli.messages.amqp import known_row
        from enmasse.model.address_types import TYPES

        row = None if self._options.subscription else known_row(self._remote)
        missing = ""
        traits = None if row is None else TYPES.get(row["type"])
        if traits is not None and traits.fan_out:
            missing = "; messages that were sent meanwhile may be missing"
            if traits.stored:
                missing += ": --durable NAME has them stored"
        report(f"{self._remote}: connected again{missing}")

    def _check_is_queue(self) -> None:
        """Check that the address is not of a type that cannot be browsed. Raises AmqpError."""
        from enmasse.amqp.codec.errors import NOT_IMPLEMENTED, AmqpError
        from enmasse.cli.messages.amqp import known_row
        from enmasse.model.address_types import TYPES

        row = known_row(self._remote)
        if row is not None and row["type"] in TYPES and not TYPES[row["type"]].takes_dead_letters:
            reason = f"only a queue holds messages to browse, and this is of type {row['type']}; leave --browse out"
            raise AmqpError(NOT_IMPLEMENTED, reason)

    async def _print_messages(self, receiver: ClientReceiver) -> int:
        options, remote = self._options, self._remote
        kept: list[Delivery] = []
        """Deliveries that --release gives back: at the end, because the queue delivers them again at once."""
        try:
            while not options.count or self._received < options.count:
                granted = receiver.link.credit + receiver.fetched
                if granted <= CREDIT // 2:  # never more than --count: other receivers may get the rest
                    more = CREDIT - granted
                    if options.count:
                        more = min(more, options.count - self._received - granted)
                    if more > 0:
                        receiver.grant(more)
                delivery = await self._next(receiver)
                if delivery is None:
                    if self._ends_when_empty and not self._received:
                        if options.outcome == BROWSE:
                            await asyncio.to_thread(self._check_is_queue)
                        matching = " that the selector matches" if options.selector else ""
                        report(f"{remote} holds no messages{matching}")
                    if not options.count:
                        return OK
                    within = "there" if self._ends_when_empty else f"within {options.timeout:g} s"
                    text = f"{remote}: {self._received} of {options.count} messages {within}"
                    report(marked("messages.delivery.missing", text))
                    return TIMED_OUT
                await self._print(delivery, kept)
                self._received += 1
                self._attempts.extend()
            return OK
        finally:
            for delivery in kept:
                await delivery.release()

    @property
    def _ends_when_empty(self) -> bool:
        """Whether the command ends after the last message, not after --timeout without one."""
        options = self._options
        return options.timeout is None and (options.outcome == BROWSE or (options.unsubscribe and not options.count))

    async def _next(self, receiver: ClientReceiver) -> Delivery | None:
        """Return the next message; None at the timeout, or after the last one."""
        if self._ends_when_empty:
            found = receiver.receive_nowait()
            if found is None:
                await receiver.drain(DRAIN_SECONDS)
                found = receiver.receive_nowait()
            return found
        try:
            return await receiver.receive(self._attempts.left())
        except TimeoutError:
            return None

    async def _print(self, delivery: Delivery, kept: list[Delivery]) -> None:
        """Print a message, then settle it. Raises Unprinted."""
        from enmasse.amqp.codec.errors import AmqpError
        from enmasse.cli.output.show import as_bytes, as_json, as_text

        options = self._options
        outcome = options.outcome
        shown: bytes | str
        try:
            message = delivery.message
            if options.raw:
                shown = as_bytes(message)
            else:
                shown = as_json(message, delivery.payload) if options.as_json else as_text(message)
        except AmqpError as error:
            await delivery.reject(error.condition, error.description)
            report(f"{self._remote}: a message that cannot be decoded was rejected: {error}")
            return
        try:
            put_bytes(shown) if isinstance(shown, bytes) else put(shown)
        except OSError as error:
            raise Unprinted from error
        if outcome == REJECT:
            await delivery.reject(REJECTED_CONDITION, REJECTED)
        elif outcome == RELEASE:
            kept.append(delivery)
        else:
            await delivery.accept()


def is_final(error: AmqpError | OSError) -> bool:
    """Return whether to connect again would not help."""
    from enmasse.amqp.codec import errors

    if isinstance(error, errors.LoginError):
        return not error.temporary
    return isinstance(error, errors.AmqpError) and error.condition in (
        errors.NOT_FOUND, errors.NOT_ALLOWED, errors.NOT_IMPLEMENTED, errors.UNAUTHORIZED_ACCESS, errors.INVALID_FIELD,
        errors.PRECONDITION_FAILED, errors.RESOURCE_LOCKED, errors.STOLEN, errors.DECODE_ERROR,
    )  # fmt: skip
