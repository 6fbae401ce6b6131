"""`enmasse publish`: publish messages to an MQTT topic."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, OK, TIMED_OUT, Seconds, TlsFiles, port_offset, report, say
from enmasse.cli.completion import addresses
from enmasse.cli.messages.field_options import rate_option
from enmasse.cli.messages.mqttclient import connection_options
from enmasse.cli.messages.reconnects import Reconnects
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.cli.contexts.target_server import TargetServer
    from enmasse.cli.messages.mqttclient import Session
    from enmasse.mqtt.packets import Properties

WINDOW = 500
"""Messages published and not acknowledged at a time."""
FRUITLESS = 5
"""Connections in a row that the server closes and that bring no acknowledgement, after which it ends: servers of MQTT
3.1.1 refuse a message so."""


@click.command(name="publish", short_help="Publish messages to an MQTT topic.")
@click.argument("topic", shell_complete=addresses)
@click.argument("message", required=False)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True,
              help="Quality of service; 0: delivery is not acknowledged.")  # fmt: skip
@click.option("-r", "--retain", is_flag=True, help="Retain the message for future subscribers.")
@click.option("--count", "-m", "--messages", type=click.IntRange(0), metavar="N", help="Number of messages.")
@rate_option
@click.option("--timeout", type=Seconds(above_zero=True), default=10.0, show_default=True, metavar="SECONDS",
              help="How long to wait for an acknowledgement.")  # fmt: skip
@click.option("--ttl", type=Seconds(above_zero=True), metavar="SECONDS", help="Time to live (message expiry).")
@click.option("--content-type", metavar="TYPE", help="Content type of each message.")
@click.option("--response-topic", metavar="TOPIC", help="Where answers are expected.")
@click.option("--correlation-data", metavar="TEXT", help="What the answer is to repeat.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A user property.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as a JSON object.")
@connection_options
@port_offset
def command(
    topic: str, message: str | None, qos: int, retain: bool, count: int | None, rate: float | None, timeout: float,
    ttl: float | None, content_type: str | None, response_topic: str | None, correlation_data: str | None,
    properties: tuple[str, ...], as_json: bool, server: str | None, tls: TlsFiles, version: str, client_id: str | None,
    clean: bool, will_topic: str | None, will_message: str, will_retain: bool, will_delay: float | None, offset: int,
) -> None:  # fmt: skip
    """Publish MESSAGE (--count times) to an MQTT TOPIC. Without MESSAGE, each line of stdin is a message. With --count
    and without MESSAGE, the messages are {"sequence": 1} and so on. An empty MESSAGE ('') with --retain deletes the
    retained message.

    If the connection is lost, it connects again within --timeout, and publishes what is not acknowledged once more: at
    QoS 1, and QoS 2 over MQTT 3.1.1, that may arrive twice. At QoS 0 what was under way is lost.

    Exit status 0: every message was acknowledged (with --qos 0: was sent). 1: some were refused. 3: no acknowledgement
    within --timeout. 4: no connection, or it was refused.
    """
    from enmasse.cli.contexts.hints import topic_meant
    from enmasse.cli.contexts.remote import refuse_url
    from enmasse.cli.messages import mqttclient
    from enmasse.cli.messages.bodies import bodies, paced
    from enmasse.mqtt.packets import NONE, Properties
    from enmasse.mqtt.topics import fault_of_topic

    refuse_url(topic, "--server")
    if fault := fault_of_topic(topic):
        raise click.BadParameter(f"{topic!r} {fault}", param_hint="TOPIC")
    if response_topic is not None and (fault := fault_of_topic(response_topic)):
        raise click.BadParameter(f"{response_topic!r} {fault}", param_hint="--response-topic")
    values = Properties(
        message_expiry=None if ttl is None else max(1, int(ttl)),
        content_type=content_type,
        response_topic=response_topic,
        correlation_data=None if correlation_data is None else correlation_data.encode(),
        user_properties=user_properties(properties),
    )
    if values != NONE and version != "5":
        raise click.UsageError("--ttl, --content-type, --response-topic, --correlation-data and --property need MQTT 5")
    remote = mqttclient.server_from(server, offset, tls)
    will = mqttclient.will_from(will_topic, will_message, qos, will_retain, will_delay, version)
    session = mqttclient.Session(remote, version, client_id, will, clean=clean, receive_maximum=1, keeps=True,
                                 resumed=max(1, int(timeout)) if qos == 2 else None)  # fmt: skip
    tally = Tally(topic)
    publisher = _Publisher(session, remote, tally, qos, retain, values, timeout)
    status = mqttclient.run(publisher.run(paced(bodies(message, count), rate)), remote)
    if as_json:
        click.echo(json.dumps(tally.as_json()))
    elif tally.sent:
        say(f"published {tally.sent} to {remote}, topic {topic}: {tally.words(qos)}")
    if tally.sent and (meant := topic_meant(topic, remote)):
        report(meant)
    sys.exit(status)


def user_properties(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of KEY=VALUE, in this order. Ends the command (wrong usage) if one is invalid."""
    found = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="--property")
        found.append((key, value))
    return tuple(found)


@dataclass(slots=True)
class Tally:
    """Counts of published messages."""

    topic: str
    sent: int = 0
    acknowledged: int = 0
    unsubscribed: int = 0
    """Acknowledged with reason 0x10: no matching subscribers."""
    refused: int = 0
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object for --json."""
        return {
            "topic": self.topic,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "no_subscribers": self.unsubscribed,
            "refused": self.refused,
            "error": self.error,
        }

    def words(self, qos: int) -> str:
        """Return the counts for people."""
        if not qos:
            return "not acknowledged at QoS 0"
        found = [f"{self.acknowledged} acknowledged"]
        if self.unsubscribed:
            found.append(f"{self.unsubscribed} of them had no subscriber")
        if self.refused:
            found.append(f"{self.refused} refused")
        unknown = self.sent - self.acknowledged - self.refused
        return ", ".join(found + [f"{unknown} without an answer"] * bool(unknown))


class _Publisher:
    """Publishes over one connection after the other: the client sends again what is not acknowledged."""

    def __init__(
        self, session: Session, server: TargetServer, tally: Tally, qos: int, retain: bool, values: Properties,
        timeout: float,
    ) -> None:  # fmt: skip
        self._session = session
        self._server = server
        self._attempts = Reconnects(server, timeout)
        self._client = session.client
        self._tally = tally
        self._qos = qos
        self._retain = retain
        self._values = values
        self._timeout = timeout
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._denied = False
        self._next: Any = None
        """Body of a message that the lost connection did not take."""
        self._done = 0
        """Messages with an answer (QoS 0: sent) at the last loss."""
        self._fruitless = 0
        self._lost: asyncio.Future[None]

    async def run(self, bodies: AsyncIterator[Any]) -> int:
        """Return the exit status. Raises OSError if it cannot connect, or not again."""
        from enmasse.cli.messages.mqttclient import is_final

        tally = self._tally
        try:
            status = await self._attempts.run(
                lambda: self._once(bodies),
                (OSError,),
                lambda error: is_final(error) or self._fruitless >= FRUITLESS,
            )
        except OSError as error:
            self._take_those_done()
            tally.error = str(error)
            raise
        except asyncio.CancelledError:
            self._take_those_done()
            tally.error = "interrupted"
            raise
        if status == OK and tally.error is not None:
            line = f"{self._server}: {tally.error}"
            if self._denied:
                line = marked("server.operation.denied", line)
            report(marked("messages.delivery.failed", line))
        return FAILED if status == OK and tally.refused else status

    async def _once(self, bodies: AsyncIterator[Any]) -> int:
        """Publish over one connection until all has an answer. Return OK or TIMED_OUT."""
        loop = asyncio.get_running_loop()
        await self._session.open()
        self._lost = asyncio.ensure_future(self._client.lost())
        self._attempts.receiving()
        begin = loop.time()
        try:
            while (body := await self._body(bodies)) is not None:
                self._next = body
                if not await self._has_room():
                    return TIMED_OUT
                self._publish(body)
                if not self._qos and self._tally.sent % WINDOW == 0:
                    await asyncio.sleep(0)  # what was written goes out
            while self._waiting:
                if not await self._one_less():
                    return TIMED_OUT
            return OK
        except OSError:
            self._note_loss(loop.time() - begin)
            raise
        finally:
            self._lost.cancel()
            await self._session.close()

    async def _body(self, bodies: AsyncIterator[Any]) -> Any:
        """Return the body of the next message; None after the last."""
        return await anext(bodies, None) if self._next is None else self._next

    def _publish(self, body: Any) -> None:
        payload = body if isinstance(body, bytes) else _text(body).encode()
        future = self._client.publish_nowait(self._tally.topic, payload, self._qos, self._retain, self._values)
        self._next = None
        self._tally.sent += 1
        if future is not None:
            self._waiting.append(future)

    def _note_loss(self, seconds: float) -> None:
        """Note that the connection is lost after some seconds; the timeout begins again if it was of use."""
        self._take_those_done(whole=False)
        tally = self._tally
        done = tally.acknowledged + tally.refused if self._qos else tally.sent
        if done > self._done or seconds > self._timeout:
            self._done, self._fruitless = done, 0
            self._attempts.extend()
        else:
            self._fruitless += 1

    async def _has_room(self) -> bool:
        """Wait until a message can be sent; False (reported on stderr) if that takes too long."""
        self._take_those_done(whole=False)
        while self._waiting and len(self._waiting) >= min(WINDOW, self._client.room() + len(self._waiting)):
            if not await self._one_less():
                return False
        wire = self._client.wire
        if not wire.writable.is_set():
            try:
                async with asyncio.timeout(self._timeout):
                    await wire.writable.wait()
            except TimeoutError:
                return self._too_long("the server reads nothing")
        return True

    async def _one_less(self) -> bool:
        """Wait for the oldest acknowledgement; False (reported on stderr) if that takes too long."""
        oldest = self._waiting[0]
        await asyncio.wait([oldest, self._lost], timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if not oldest.done() and self._client.error is not None:
            raise self._client.error
        if not oldest.done():
            self._take_those_done()
            return self._too_long("no acknowledgement")
        self._take(self._waiting.popleft())
        return True

    def _too_long(self, what: str) -> bool:
        tally = self._tally
        tally.error = (
            f"{what} within {self._timeout:g} s; {tally.sent - tally.acknowledged - tally.refused} messages may "
        )
        tally.error += "have arrived or not"
        report(marked("messages.delivery.failed", f"{tally.topic}: {tally.error}."))
        return False

    def _take_those_done(self, whole: bool = True) -> None:
        while self._waiting and self._waiting[0].done():
            future = self._waiting.popleft()
            if not whole or not future.exception():
                self._take(future)
        if whole:
            for future in self._waiting:
                if future.done() and not future.exception():
                    self._take(future)
            self._waiting.clear()

    def _take(self, future: asyncio.Future[Any]) -> None:
        from enmasse.mqtt import reasons

        tally, answer = self._tally, future.result()
        if answer.reason < 0x80:
            tally.acknowledged += 1
            tally.unsubscribed += answer.reason == reasons.NO_MATCHING_SUBSCRIBERS
            return
        tally.refused += 1
        if tally.error is None:
            text = answer.properties.reason_string
            tally.error = f"{tally.topic}: refused: {reasons.name(answer.reason)}{f' ({text})' if text else ''}"
            self._denied = answer.reason == reasons.NOT_AUTHORIZED


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)
