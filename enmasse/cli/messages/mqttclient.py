"""Shared by `publish` and `subscribe`: the server, the options of the connection, the exit status for each error."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from enmasse.cli.common import INTERRUPTED, MQTT_PORT, NO_FILES, UNREACHABLE, Seconds, TlsFiles, report, tls_options
from enmasse.cli.contexts.contexts import in_force, space, space_named
from enmasse.cli.contexts.entering import entered
from enmasse.cli.contexts.first_connection import opened
from enmasse.cli.contexts.hints import cause, of_space_user, remedy
from enmasse.cli.contexts.target_server import LOCAL, TargetServer, parse, refuse_without_tls
from enmasse.cli.contexts.user_password import HOW_TO_LOG_IN, logged_in, of_context
from enmasse.errors import marked

if TYPE_CHECKING:
    from enmasse.aio.mqtt import Client, Disconnected
    from enmasse.mqtt.packets import Will

CONNECT_SECONDS = 15.0
"""Longer than the 10 s after which the server answers a login that cannot be checked."""
PORTS = {"mqtt": 1883, "mqtts": 8883}
NEVER = "never"
NO_END = 0xFFFFFFFF
"""Session expiry interval of a session that does not expire (MQTT 5, 3.1.2.11.2)."""

F = TypeVar("F", bound=Callable[..., Any])


_OPTIONS = (
    click.option("--server", metavar="URL",
                 help="mqtt[s]://[user:password@]host[:port], instead of this machine's suite."),
    tls_options,
    click.option("--mqtt", "version", type=click.Choice(["5", "3.1.1"]), default="5", show_default=True,
                 help="The version of MQTT."),
    click.option("-i", "--client-id", metavar="ID", help="Client id (default: one that the server gives)."),
    click.option("--clean", is_flag=True,
                 help="Delete the session that the server keeps for --client-id, and its messages, first."),
    click.option("--will-topic", metavar="TOPIC",
                 help="Where the server publishes --will-message if this command is lost."),
    click.option("--will-message", metavar="TEXT", default="", help="The message of the will."),
    click.option("--will-retain", is_flag=True, help="The will becomes the retained message of its topic."),
    click.option("--will-delay", type=Seconds(), metavar="SECONDS", help="Delay of the will after the loss."),
)  # fmt: skip


def connection_options(function: F) -> F:
    """Add the connection options of `publish` and `subscribe`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Expiry(Seconds):
    """Seconds, or "never"."""

    name = "number of seconds or never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of seconds, or NEVER."""
        return NEVER if value == NEVER else super().convert(value, param, ctx)


def server_from(url: str | None, offset: int, tls: TlsFiles = NO_FILES) -> TargetServer:
    """Return the server of --server, or the suite's. Ends the command (wrong usage) if the URL is invalid, or files for
    TLS have no effect."""
    server = _server_from(url, offset, tls)
    refuse_without_tls(server, tls, "--server mqtts://HOST[:PORT]")
    return server


def _server_from(url: str | None, offset: int, tls: TlsFiles) -> TargetServer:
    if url is None and (context := in_force()) is not None:
        server = TargetServer(**of_context(context, "mqtt", PORTS))
        return entered(replace(server, files=server.files.over(tls)), space())
    if url is None:
        server = TargetServer(scheme="mqtt", host=LOCAL, port=MQTT_PORT + offset, offset=offset)
        return entered(logged_in(server), space())
    try:
        fields, path = parse(url, PORTS)
        if path not in ("", "/"):
            raise ValueError("a server has no path; the topic is an argument of its own")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server") from None
    return entered(logged_in(TargetServer(**fields, files=tls)), space_named())


def will_from(
    topic: str | None, message: str, qos: int, retain: bool, delay: float | None, version: str
) -> Will | None:
    """Return the will of the options. Ends the command (wrong usage) if they contradict each other."""
    from enmasse.mqtt.packets import NONE, Properties, Will
    from enmasse.mqtt.topics import fault_of_topic

    if topic is None:
        if message or retain or delay is not None:
            raise click.UsageError("--will-message, --will-retain and --will-delay need --will-topic TOPIC")
        return None
    if fault := fault_of_topic(topic):
        raise click.BadParameter(f"{topic!r} {fault}", param_hint="--will-topic")
    if delay is not None and version != "5":
        raise click.UsageError("--will-delay needs MQTT 5")
    values = NONE if delay is None else Properties(will_delay=int(delay))
    return Will(topic, message.encode(), qos, retain, values)


class Session:
    """Client of `publish` and `subscribe`, and its session on the server.

    A session that the server keeps for the client id is continued and kept; only `clean` and `delete` delete one.
    Without `expiry` a session that did not exist before ends with the command. `resumed`: seconds that it stays after a
    lost connection (MQTT 5), so that publications of QoS 2 are continued. `keeps`: see Client.
    """

    def __init__(
        self, server: TargetServer, version: str, client_id: str | None, will: Will | None, *, clean: bool = False,
        expiry: int | None = None, receive_maximum: int, keeps: bool = False, resumed: int | None = None,
    ) -> None:  # fmt: skip
        if clean and client_id is None:
            raise click.UsageError("--clean needs --client-id ID")
        self._resumed = resumed if version == "5" else None
        if self._resumed is not None and client_id is None:
            client_id, clean = f"enmasse-{secrets.token_hex(8)}", True
        self.client = _client_for(server, version, client_id, will, receive_maximum, keeps=keeps)
        self._server = server
        self._clean = clean
        self._expiry = expiry or None  # 0 would delete a stored session at the end, with its messages
        self._started = False
        self._ends = False
        """The session ends with the command."""

    async def __aenter__(self) -> Session:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def stays(self) -> bool:
        """Return whether the server is to keep the session after a lost connection."""
        return not self.client.packet.clean or self._resumed is not None

    async def close(self) -> None:
        """Close the connection; a session that ends with the command ends."""
        from enmasse.mqtt.packets import NONE, Properties

        await self.client.close(0, Properties(session_expiry=0) if self._ends and self._resumed is not None else NONE)

    async def open(self) -> None:
        """Connect; after a loss, connect again. Raises Disconnected, OSError or TimeoutError."""
        if self._started:
            self.client.packet.clean = self.client.packet.clean and self._resumed is None
            await self.client.open()
        elif not self.client.packet.client_id:
            await self._connect(clean=True)
        else:
            await self._start()
        self._started = True

    async def _start(self) -> None:
        if self._clean:
            await self._connect(clean=True)
            if self._expiry is not None:
                await self.client.close()
                await self._connect(clean=False, expiry=self._expiry)
        elif self._expiry is not None:
            await self._connect(clean=False, expiry=self._expiry)
        else:
            await self._connect(clean=False, expiry=NO_END)
            assert self.client.connack is not None
            if self.client.connack.session_present:
                report(
                    f"{self._server}: continuing the session that the server keeps for "
                    f"{self.client.packet.client_id}. It does not expire from now on: --session-expiry sets a time, "
                    "--clean deletes the session first."
                )
            else:
                await self.delete()  # this connection has just made it; it is to end with the command

    async def delete(self) -> None:
        """Delete the session on the server: connect again with a clean session that ends with its connection."""
        await self.client.close()
        await self._connect(clean=True)

    async def _connect(self, *, clean: bool, expiry: int | None = None) -> None:
        from msgspec.structs import replace

        from enmasse.mqtt.packets import V5

        packet = self.client.packet
        packet.clean = clean
        self._ends = clean
        if clean:
            expiry = self._resumed
        packet.properties = replace(packet.properties, session_expiry=expiry if packet.version == V5 else None)
        await opened(self.client.open, self._server.port, self._server.offset)


def _client_for(
    server: TargetServer, version: str, client_id: str | None, will: Will | None, receive_maximum: int, *, keeps: bool
) -> Client:
    """Return a client that acknowledges only what it is asked to; it is not connected yet."""
    from enmasse.aio.mqtt import connect
    from enmasse.mqtt.packets import V5, V311, Properties

    return connect(
        host=server.host,
        port=server.port,
        ssl=server.context(),
        user=server.user,
        password=server.password,
        client_id=client_id or "",
        will=will,
        version=V5 if version == "5" else V311,
        timeout=CONNECT_SECONDS,
        auto_ack=False,
        keeps=keeps,
        properties=Properties(receive_maximum=receive_maximum),
    )


def run(work: Coroutine[Any, Any, int], server: TargetServer) -> int:
    """Return the exit status of `work`; an exception becomes a line on stderr and a status."""
    from enmasse.aio.mqtt import Refused
    from enmasse.mqtt import reasons

    try:
        return asyncio.run(work)
    except Refused as error:
        text = f"{server}: {error}"
        if error.reason == reasons.NOT_AUTHORIZED:
            text = marked("server.operation.denied", text)
        report(marked("subscription.filter.refused", text))
        return UNREACHABLE
    except OSError as error:
        report(failure(error, server))
        return UNREACHABLE
    except KeyboardInterrupt:
        return INTERRUPTED


def failure(error: OSError, server: TargetServer) -> str:
    """Return the error, a remedy and the id."""
    from enmasse.aio.mqtt import Disconnected
    from enmasse.mqtt import reasons
    from enmasse.mqtt.packets import ConnAck

    text = explain(error, server)
    reason = error.reason if isinstance(error, Disconnected) else None
    if isinstance(error, Disconnected) and isinstance(error.packet, ConnAck):
        if reason in (
            reasons.BAD_USER_NAME_OR_PASSWORD, reasons.NOT_AUTHORIZED,
            reasons.V3_BAD_USER_NAME_OR_PASSWORD, reasons.V3_NOT_AUTHORIZED,
        ):  # fmt: skip
            if server.user is None and not server.certified:
                if server.files.cert is not None:
                    text += ". --cert is for TLS: name the server as mqtts://HOST"
                return marked("server.login.missing", f"{text}. {HOW_TO_LOG_IN}")
            return marked("server.login.refused", text + of_space_user(server))
        if server.user is not None and reason in (reasons.SERVER_UNAVAILABLE, reasons.V3_SERVER_UNAVAILABLE):
            return marked("server.login.unavailable", text)
    elif reason == reasons.NOT_AUTHORIZED:
        return marked("server.operation.denied", text)
    return marked("server.connection.failed", text)


def explain(error: OSError, server: TargetServer) -> str:
    """Return the error, the server, and a remedy."""
    from enmasse.aio.mqtt import Disconnected

    if isinstance(error, Disconnected) or (isinstance(error, TimeoutError) and error.errno is None):
        return f"{server}: {error}"
    tip = remedy(error, server, "Is this a port for MQTT over TLS? MQTT without TLS is mqtt://…")
    return f"cannot connect to {server.host}:{server.port}: {cause(error)}. {tip}"


def is_final(error: OSError) -> bool:
    """Return whether to connect again would not help."""
    from enmasse.aio.mqtt import Disconnected
    from enmasse.mqtt import reasons

    if not isinstance(error, Disconnected) or error.reason is None:
        return False
    return _refused_in_3(error) or error.reason in (
        reasons.SESSION_TAKEN_OVER, reasons.NOT_AUTHORIZED, reasons.BAD_USER_NAME_OR_PASSWORD, reasons.BANNED,
        reasons.CLIENT_IDENTIFIER_NOT_VALID, reasons.ADMINISTRATIVE_ACTION, reasons.UNSUPPORTED_PROTOCOL_VERSION,
        reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR, reasons.PACKET_TOO_LARGE, reasons.TOPIC_FILTER_INVALID,
    )  # fmt: skip


def _refused_in_3(error: Disconnected) -> bool:
    from enmasse.mqtt import reasons

    code = error.reason
    return code is not None and 0 < code <= reasons.V3_NOT_AUTHORIZED and code != reasons.V3_SERVER_UNAVAILABLE
