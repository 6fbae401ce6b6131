"""`enmasse subscribe`: print the messages of MQTT topics."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, OK, TIMED_OUT, Seconds, TlsFiles, port_offset, put, report
from enmasse.cli.completion import addresses
from enmasse.cli.messages.mqttclient import NEVER, NO_END, Expiry, connection_options, is_final
from enmasse.cli.messages.reconnects import Reconnects, Unprinted
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.cli.contexts.target_server import TargetServer
    from enmasse.cli.messages.mqttclient import Session
    from enmasse.mqtt.packets import Publish

WINDOW = 100
"""Messages that the server may send ahead of those printed."""
LAST_SECONDS = 2.0
"""A session that --unsubscribe deletes counts as empty after this time without a message."""


@click.command(name="subscribe", short_help="Print the messages of MQTT topics.")
@click.argument("filters", metavar="FILTER...", nargs=-1, required=True, shell_complete=addresses)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True,
              help="The highest quality of service at which messages come.")  # fmt: skip
@click.option("--count", "-m", "--messages", type=click.IntRange(0), default=0, metavar="N",
              help="End after N messages; 0 (default): do not end.")  # fmt: skip
@click.option("--timeout", type=Seconds(above_zero=True), metavar="SECONDS",
              help="End when no message has arrived for SECONDS.")  # fmt: skip
@click.option("-v", "--topics", is_flag=True, help="Print the topic before each message.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object on one line.")
@click.option("--no-retained", is_flag=True, help="Only messages published from now on.")
@click.option(
    "--session-expiry",
    type=Expiry(),
    metavar="SECONDS",
    help="Time that the server keeps the session after the end, or 'never'; needs --client-id.",
)
@click.option("--unsubscribe", is_flag=True, help="Print what the session of --client-id holds, then delete it.")
@connection_options
@port_offset
def command(
    filters: tuple[str, ...], qos: int, count: int, timeout: float | None, topics: bool, as_json: bool,
    no_retained: bool, session_expiry: float | str | None, unsubscribe: bool, server: str | None, tls: TlsFiles,
    version: str, client_id: str | None, clean: bool, will_topic: str | None, will_message: str, will_retain: bool,
    will_delay: float | None, offset: int,
) -> None:  # fmt: skip
    """Print the messages of all topics that match a FILTER, each on a line, then acknowledge it.

    It connects again when the connection is lost.

    Exit status 0: --count messages were received (without --count: until --timeout). 1: the session of --unsubscribe
    does not exist, or holds more and was kept. 3: fewer than --count messages
    within --timeout. 4: no connection, or a filter was refused.
    """
    from enmasse.cli.contexts.remote import refuse_url
    from enmasse.cli.messages import mqttclient
    from enmasse.mqtt.topics import fault_of_filter, parse_share

    for filter in filters:
        refuse_url(filter, "--server")
        fault = fault_of_filter(filter)
        if fault is None:
            try:
                parse_share(filter)
            except ValueError as error:
                fault = str(error)
        if fault is not None:
            raise click.BadParameter(f"{filter!r} {fault}", param_hint="FILTER")
    if client_id is None and (session_expiry is not None or unsubscribe):
        raise click.UsageError("--session-expiry and --unsubscribe need --client-id ID")
    remote = mqttclient.server_from(server, offset, tls)
    will = mqttclient.will_from(will_topic, will_message, qos, will_retain, will_delay, version)
    if unsubscribe and not count and timeout is None:
        timeout = LAST_SECONDS
    options = SubscribeOptions(filters, qos, count, timeout, topics, as_json, no_retained, unsubscribe, version)
    window = min(WINDOW, count) if count and not unsubscribe else WINDOW
    session = mqttclient.Session(
        remote, version, client_id, will, clean=clean, expiry=_seconds(session_expiry), receive_maximum=window
    )
    try:
        status = mqttclient.run(SubscribeLoop(session, remote, options).run(), remote)
    except Unprinted as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
    sys.exit(status)


def _seconds(expiry: float | str | None) -> int | None:
    return None if expiry is None else NO_END if expiry == NEVER else int(float(expiry))


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """The options of the command."""

    filters: tuple[str, ...]
    qos: int
    count: int
    """Messages after which it ends; 0: it does not."""
    timeout: float | None
    """Seconds without a message after which it ends."""
    topics: bool
    as_json: bool
    no_retained: bool
    unsubscribe: bool
    version: str


class SubscribeLoop:
    """Prints messages until the count or the timeout is reached. After a loss it connects again."""

    def __init__(self, session: Session, server: TargetServer, options: SubscribeOptions) -> None:
        self._session = session
        self._client = session.client
        self._server = server
        self._options = options
        self._received = 0
        self._attempts = Reconnects(server, options.timeout)

    async def run(self) -> int:
        """Return the exit status. Raises Refused or OSError if it cannot subscribe, Unprinted."""
        return await self._attempts.run(self._once, (OSError,), is_final)

    async def _once(self) -> int:
        options, client = self._options, self._client
        await self._session.open()
        try:
            assert client.connack is not None
            if options.unsubscribe and not self._attempts.received_before and not client.connack.session_present:
                await self._session.delete()  # the one that CONNECT has made
                text = f"{self._server}: there is no session {client.packet.client_id!r} to delete"
                report(marked("subscription.name.unknown", f"{text}: `enmasse mqtt clients --all` lists them"))
                return FAILED
            again, kept = self._attempts.received_before, client.connack.session_present
            if not (again and kept):
                await self._subscribe()
            self._attempts.receiving()
            if again:
                report(f"{self._server}: connected again; {self._missing(kept)}")
            status = await self._print_messages()
            if options.unsubscribe:
                if status == OK and options.count and await self._has_more():
                    text = f"{self._server}: the session holds more than {options.count} messages; it was not deleted."
                    report(marked("subscription.messages.kept", f"{text} Leave out --count to print all of them."))
                    return FAILED
                await self._session.delete()
            return status
        finally:  # messages that were not printed stay in the session, if it stays
            await client.close()

    def _missing(self, kept: bool) -> str:
        """Return whether messages may be missing after a loss. `kept`: the server had kept the session."""
        if kept and self._options.qos:
            return "the session was kept: no message that was published with QoS 1 or 2 is missing"
        missing = "messages that were published to topics meanwhile may be missing"
        if kept:
            return f"{missing}: --qos 1 has them stored"
        if self._session.stays:
            return f"{missing}: the server has not kept the session"
        return f"{missing}: --client-id with --session-expiry has them stored"

    async def _has_more(self) -> bool:
        """Return whether a message waits that was not printed, other than the retained ones of this subscription."""
        try:
            while (await self._client.message(LAST_SECONDS)).retain:
                pass
        except TimeoutError:
            return False
        return True

    async def _subscribe(self) -> None:
        from enmasse.mqtt.packets import Subscription

        options = self._options
        handling = 2 if options.no_retained and options.version == "5" else 0
        filters = [Subscription(filter, options.qos, retain_handling=handling) for filter in options.filters]
        await self._client.subscribe(*filters)

    async def _print_messages(self) -> int:
        options, client = self._options, self._client
        while not options.count or self._received < options.count:
            try:
                message = await client.message(self._attempts.left())
            except TimeoutError:
                if not options.count:
                    return OK
                text = f"{self._server}: {self._received} of {options.count} messages within {options.timeout:g} s"
                report(marked("messages.delivery.missing", text))
                return TIMED_OUT
            if not (options.no_retained and message.retain):
                try:
                    put(self._line(message))
                except OSError as error:
                    raise Unprinted from error
                self._received += 1
            client.ack(message)
            self._attempts.extend()
        return OK

    def _line(self, message: Publish) -> str:
        from enmasse.amqp.messages.jsonform import plain

        if self._options.as_json:
            return as_json(message)
        body = plain(message.payload)
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return f"{message.topic} {text}" if self._options.topics else text


def as_json(message: Publish) -> str:
    """Return one line: topic, body, qos, retain …; what is not set is left out."""
    from enmasse.amqp.messages.jsonform import plain

    values = message.properties
    found: dict[str, Any] = {
        "topic": message.topic,
        "body": plain(message.payload),
        "qos": message.qos,
        "retain": message.retain,
    }
    for name, value in (
        ("duplicate", message.dup or None),
        ("content_type", values.content_type),
        ("payload_format", values.payload_format),
        ("response_topic", values.response_topic),
        ("correlation_data", values.correlation_data),
        ("ttl", values.message_expiry),
        ("properties", [list(pair) for pair in values.user_properties] or None),
    ):
        if value is not None:
            found[name] = plain(value)
    return json.dumps(found, ensure_ascii=False)
