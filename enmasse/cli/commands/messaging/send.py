"""`enmasse send`: send messages to an address."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, OK, TIMED_OUT, Seconds, TlsFiles, port_offset, report, say, tls_options
from enmasse.cli.completion import addresses
from enmasse.cli.messages.field_options import message_options, rate_option
from enmasse.cli.messages.reconnects import Reconnects
from enmasse.errors import marked
from enmasse.text import counted

if TYPE_CHECKING:
    from enmasse.aio.client import ClientSender
    from enmasse.cli.contexts.remote import RemoteAddress

WINDOW = 500
"""Messages sent without an outcome at a time."""
OUTCOMES = ("accepted", "rejected", "released", "modified")
MOST_IDS = 20
"""Message-ids that are named of messages with other outcomes than accepted."""
TOLD_SECONDS = 3.0
"""Without credit or an outcome, until the command reports why it waits."""
INTERRUPTED_SECONDS = 2.0
"""After Ctrl-C, for outcomes that are on their way; a second Ctrl-C does not wait."""


@click.command(name="send", short_help="Send messages to an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.argument("body", required=False)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS",
              help="[amqp[s]://][user:password@]host[:port]/address, instead of ADDRESS.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), metavar="N", help="Number of messages.")
@rate_option
@click.option("--timeout", type=Seconds(above_zero=True), default=10.0, show_default=True, metavar="SECONDS",
              help="How long to wait for credit, or for an outcome.")  # fmt: skip
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE",
              help="The body is the content of FILE; - is stdin.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Lines of stdin are messages as `receive --json` prints them; print counts as JSON.")  # fmt: skip
@message_options
@tls_options
@port_offset
def command(
    address: str | None, body: str | None, url: str | None, count: int | None, rate: float | None,
    timeout: float, file: str | None, as_json: bool, fields: dict[str, Any], tls: TlsFiles, offset: int,
) -> None:  # fmt: skip
    """Send messages to an ADDRESS: BODY (--count times), or the content of --file. Without BODY, each line of stdin is
    a message; with --json one in the form that `receive --json` prints, of which options replace fields. With --count
    and without BODY, the bodies are {"sequence": 1} and so on, as in Proton's examples: a map of AMQP, with
    --content-type application/json the text of JSON.

    Each message gets a message-id of its own without --id. If the connection is lost, it connects again within
    --timeout, and sends what has no outcome once more, with the same id: that may arrive twice.

    Exit status 0: every message was accepted. 1: some were rejected, released or modified. 3: no credit or no outcome
    within --timeout. 4: no connection, or the address was refused.
    """
    from enmasse.cli.contexts.remote import choose, is_from_environment
    from enmasse.cli.messages import amqp
    from enmasse.cli.messages.bodies import bodies, content, paced

    if url is not None and address is not None and body is None:
        address, body = None, address
    elif url is not None and address is not None and not is_from_environment("url"):
        raise click.UsageError("with -a there is no ADDRESS, only BODY")
    remote = choose(address, url, offset, tls)
    if file is not None and body is not None:
        raise click.UsageError("give BODY or --file FILE, not both")
    whole = body if file is None else content(file)
    lines = as_json and whole is None and count is None
    tally = Tally(remote.address)
    messages = encoded(paced(bodies(whole, count), rate), fields, lines=lines)
    status = amqp.run(_Sending(remote, messages, timeout, tally).run(), remote)
    if as_json:
        click.echo(json.dumps(tally.as_json()))
    elif tally.sent:
        say(f"sent {tally.sent} to {remote}: {tally}")
    elif status == OK:
        report(f"nothing was sent: {'--count is 0' if count == 0 else 'stdin had no line'}")
    sys.exit(status)


@dataclass(slots=True)
class Tally:
    """Counts of sent messages by outcome."""

    address: str
    sent: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("accepted", "rejected", "released", "modified"), 0)
    )
    error: str | None = None
    failed: list[bytes] = field(default_factory=list)
    """The first messages with other outcomes than accepted, encoded."""

    def take(self, outcome: Any, message: bytes) -> None:
        """Count the outcome of a message. A delivery settled without an outcome counts as accepted."""
        from enmasse.amqp.codec.performatives import Modified, Rejected, Released

        if isinstance(outcome, Rejected):
            self.counts["rejected"] += 1
            if outcome.error is not None and self.error is None:
                self.error = f"{outcome.error.condition}: {outcome.error.description or ''}"
        elif isinstance(outcome, Released):
            self.counts["released"] += 1
        elif isinstance(outcome, Modified):
            self.counts["modified"] += 1
        else:
            self.counts["accepted"] += 1
            return
        if len(self.failed) < MOST_IDS:
            self.failed.append(message)

    def failed_ids(self) -> str:
        """Return a line of the message-ids of messages that were not accepted, at most MOST_IDS; empty without one."""
        from enmasse.amqp.messages.jsonform import plain
        from enmasse.amqp.messages.message import Message

        ids = [str(plain(id)) for each in self.failed if (id := Message.decode(each).message_id) is not None]
        more = sum(self.counts.values()) - self.counts["accepted"] - len(ids)
        return f"message-ids: {', '.join(ids)}{f' and {more} more' if more else ''}" if ids else ""

    @property
    def unknown(self) -> int:
        """Sent without an outcome: they may have arrived or not."""
        return self.sent - sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Return the object for --json."""
        return {"address": self.address, "sent": self.sent, **self.counts, "unknown": self.unknown, "error": self.error}

    def __str__(self) -> str:
        counts = self.counts | {"without an answer": self.unknown}
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "accepted")


class UnreadableLine(Exception):
    """A line of stdin is not a message; the text has its number and the reason."""


async def encoded(bodies: AsyncIterator[Any], fields: dict[str, Any], *, lines: bool) -> AsyncIterator[bytes]:
    """Yield a message for each body, with a message-id of its own unless the fields have one. A map is text where the
    content type is of JSON. `lines`: the bodies are messages as JSON, whose ids are unchanged. Raises
    UnreadableLine."""
    from enmasse.amqp.messages.message import Message

    if not lines:
        template, run, number = {"durable": True} | fields, os.urandom(12).hex(), 0
        is_json = str(fields.get("content_type", "")).partition(";")[0].strip().endswith("json")
        async for body in bodies:
            number += 1
            text = json.dumps(body) if is_json and isinstance(body, dict) else body
            yield Message(text, **{"message_id": f"{run}-{number}", **template}).encode()
        return
    from enmasse.amqp.messages.jsonform import NoMessage, from_json

    number = 0
    async for line in bodies:
        number += 1
        if not line.strip():
            continue
        try:
            payload = from_json({"durable": True} | _object(line), fields)
        except (NoMessage, RecursionError) as error:
            raise UnreadableLine(
                f"line {number} of stdin is not a message as `receive --json` prints it: {error}"
            ) from None
        yield payload


def _object(line: str | bytes) -> dict[str, Any]:
    from enmasse.amqp.messages.jsonform import NoMessage

    try:
        found = json.loads(line)
    except ValueError as error:
        raise NoMessage(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise NoMessage("expected a JSON object")
    return found


class _Sending:
    """Sends over one connection after the other: what has no outcome when one is lost is sent again by the next."""

    def __init__(self, remote: RemoteAddress, messages: AsyncIterator[bytes], timeout: float, tally: Tally) -> None:
        self._remote = remote
        self._messages = messages
        self._timeout = timeout
        self._tally = tally
        self._attempts = Reconnects(remote, timeout)
        self._waiting: deque[tuple[bytes, asyncio.Future[Any]]] = deque()
        self._again: deque[tuple[bytes, bool]] = deque()
        """Messages to send before any other one, and whether they are to be counted."""
        self._told = False
        """Why it waits was reported; not again until it got on."""
        self._unreadable: UnreadableLine | None = None
        self._known = -1
        """Outcomes that were known at the last loss."""

    async def run(self) -> int:
        """Return the exit status. Raises AmqpError, OSError or TimeoutError if it cannot send."""
        from enmasse.amqp.codec.errors import AmqpError
        from enmasse.cli.commands.messaging.receive import is_final

        tally = self._tally
        try:
            finished = await self._attempts.run(self._once, (AmqpError, OSError), is_final)
        except (AmqpError, OSError) as error:
            tally.error = str(error)
            raise
        if finished == TIMED_OUT:
            return TIMED_OUT
        if self._unreadable is not None:
            tally.error = str(self._unreadable)
            text = f"{tally.error}. The lines before it were sent, those after it not."
            report(marked("messages.input.invalid", text))
            return FAILED
        if tally.error is not None:
            report(marked("messages.delivery.failed", f"{self._remote}: rejected: {tally.error}"))
        elif modified := tally.counts["modified"]:
            tally.error = (
                f"{modified} returned as modified: by a receiver, or because a router lost its broker or receiver "
                "before it had the answer. They may be stored: look with `receive --browse` before you send them again"
            )
            report(marked("messages.delivery.failed", f"{self._remote}: {tally.error}"))
        elif released := tally.counts["released"]:
            tally.error = f"{released} released: not now, nothing took them. Try again"
            report(marked("messages.delivery.failed", f"{self._remote}: {tally.error}"))
        if ids := tally.failed_ids():
            report(ids)
        return OK if tally.counts["accepted"] == tally.sent else FAILED

    async def _once(self) -> int:
        """Send over one connection until all has an outcome. Return OK or TIMED_OUT."""
        from enmasse.cli.messages.amqp import connected

        async with connected(self._remote) as client:
            sender = await client.sender(self._remote.address)
            self._attempts.receiving()
            try:
                while (message := await self._next()) is not None:
                    self._again.appendleft(message)
                    if not await self._has_room(sender):
                        return TIMED_OUT
                    outcome = sender.send_nowait(message[0])
                    self._again.popleft()
                    self._tally.sent += message[1]
                    if outcome is None:
                        self._tally.take(None, message[0])
                    else:
                        self._waiting.append((message[0], outcome))
                while self._waiting:
                    if not await self._one_less():
                        return TIMED_OUT
            except asyncio.CancelledError:
                self._tally.error = "interrupted"
                try:
                    if self._waiting:
                        await asyncio.wait([future for _, future in self._waiting], timeout=INTERRUPTED_SECONDS)
                finally:
                    self._take_those_done()
                raise
            except Exception:
                lost = [(payload, False) for payload in self._take_those_done()]
                self._again.extendleft(reversed(lost))
                if (known := sum(self._tally.counts.values())) > self._known:  # it gets on
                    self._known = known
                    self._attempts.extend()
                raise
        return OK

    async def _next(self) -> tuple[bytes, bool] | None:
        """Return the next message, and whether it is a new one; None after the last."""
        if self._again:
            return self._again.popleft()
        try:
            return await anext(self._messages), True
        except StopAsyncIteration:
            return None
        except UnreadableLine as error:
            self._unreadable = error
            return None

    async def _has_room(self, sender: ClientSender) -> bool:
        """Wait until a message can be sent; False (reported on stderr) if that takes too long."""
        while self._waiting and self._waiting[0][1].done():
            self._take_oldest()
        while len(self._waiting) >= WINDOW:
            if not await self._one_less():
                return False
        try:
            await self._wait_credit(sender)
        except TimeoutError:
            self._take_those_done()
            reason = await self._why_no_credit()
            text = f"no credit within {self._timeout:g} s: nothing receives messages from this sender now. {reason}"
            self._tally.error = text
            report(marked("messages.delivery.failed", f"{self._tally.address}: {text}."))
            return False
        return True

    async def _wait_credit(self, sender: ClientSender) -> None:
        """Wait for credit, and report why if that takes some seconds. Raises TimeoutError, AmqpError."""
        try:
            await sender.wait_credit(min(TOLD_SECONDS, self._timeout))
        except TimeoutError:
            if (left := await self._tell("credit")) <= 0:
                raise
            await sender.wait_credit(left)
        self._told = False

    async def _why_no_credit(self) -> str:
        from enmasse.cli.messages.amqp import why_no_credit

        return await asyncio.to_thread(why_no_credit, self._remote)

    async def _tell(self, missing: str) -> float:
        """Report why the command waits, once for each wait; return the seconds that it still waits."""
        left = self._timeout - TOLD_SECONDS
        if left > 0 and not self._told:
            self._told = True
            reason = await self._why_no_credit()
            report(f"{self._tally.address}: no {missing} yet. {reason}. Waiting for up to {left:g} s more")
        return left

    async def _one_less(self) -> bool:
        """Wait for the oldest outcome; False (reported on stderr) if that takes too long. Raises AmqpError."""
        outcome = self._waiting[0][1]
        done, _ = await asyncio.wait([outcome], timeout=min(TOLD_SECONDS, self._timeout))
        if not done and (left := await self._tell("answer")) > 0:
            await asyncio.wait([outcome], timeout=left)
        if not outcome.done():
            self._take_those_done()
            tally = self._tally
            tally.error = f"{counted(tally.unknown, 'message')} sent, and no answer within {self._timeout:g} s"
            report(marked("messages.delivery.failed", f"{tally.address}: {tally.error}; they may have arrived or not."))
            return False
        self._told = False
        self._take_oldest()
        return True

    def _take_oldest(self) -> None:
        payload, outcome = self._waiting[0]
        self._tally.take(outcome.result(), payload)  # if it raises, the message is sent again
        self._waiting.popleft()

    def _take_those_done(self) -> list[bytes]:
        """Count the outcomes that have come; return the other messages."""
        waiting, self._waiting = self._waiting, deque()
        left = []
        for payload, outcome in waiting:
            if outcome.done() and not outcome.cancelled() and not outcome.exception():
                self._tally.take(outcome.result(), payload)
            else:
                left.append(payload)
        return left
