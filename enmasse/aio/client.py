"""A small asyncio client: the part of AMQP that an application needs. It does not reconnect.

    async with connect("amqp://user:secret@localhost:5672") as c:
        sender = await c.sender("orders")
        outcome = await sender.send(Message("hello"))
        receiver = await c.receiver("orders", credit=10)
        async for delivery in receiver:
            await delivery.accept()

Every failure is an AmqpError (a link or connection was refused or lost, with the peer's words; a LoginError if the
server did not let this client in), an OSError (no connection) or a TimeoutError that names what was waited for.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from enmasse.aio.client_links import ClientLink, ClientReceiver, ClientSender, Delivery, within
from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError, LoginError
from enmasse.amqp.codec.performatives import ACCEPTED, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.source_filters import SELECTOR
from enmasse.amqp.receiver import Partial
from enmasse.amqp.sasl.layer import AnonymousClient, ClientMechanism, ExternalClient, PlainClient, SaslClient
from enmasse.amqp.session import Session
from enmasse.amqp.termini import SPACE
from enmasse.identity.login import may_be_token
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.model.loopback import is_loopback
from enmasse.model.names import user_in_space

__all__ = ["Client", "ClientReceiver", "ClientSender", "Delivery", "connect"]


class _ClientHandler(Handler):
    def __init__(self, client: Client) -> None:
        self.client = client

    def on_open(self, c: Connection) -> None:
        if not self.client._opened.done():
            self.client._opened.set_result(None)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.client._on_close(error)

    def on_attached(self, link: Link) -> None:
        cast(ClientLink, link.context).on_attached()

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        if isinstance(link.context, ClientLink):
            link.context.on_detach(error)

    def on_flow(self, link: Sender) -> None:
        cast(ClientSender, link.context).wake()
        if link.drain:
            link.drained()

    def on_drained(self, link: Receiver) -> None:
        cast(ClientReceiver, link.context).on_drained()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        if not settled:
            link.settle(tokens)
        cast(ClientSender, link.context).on_outcomes(tokens, state)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        cast(ClientReceiver, link.context).on_partial(delivery)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        on_settled = cast(ClientReceiver, link.context).on_settled
        if on_settled is not None:
            on_settled(delivery_ids)


class Client:
    """A connection with one session. Made by `connect`."""

    def __init__(self, host: str, port: int, connection: dict[str, Any], ssl: ssl_module.SSLContext | None) -> None:
        self.host = host
        self.port = port
        self.error: AmqpError | None = None
        self._settings = connection
        self._ssl = ssl
        self._loop: asyncio.AbstractEventLoop
        self._opened: asyncio.Future[None]
        self._gone: asyncio.Future[None]
        self.connection: Connection
        self.connection_hub: Hub
        self.session: Session
        self._replies: dict[Any, asyncio.Future[Message]] = {}
        self._reply_receiver: ClientReceiver | None = None
        self._reply_task: asyncio.Task[None] | None = None
        self._reply_lock = asyncio.Lock()
        self._senders: dict[str, ClientSender] = {}

    async def open(self, timeout: float = 10.0) -> Client:
        """Connect. Raises OSError, TimeoutError or AmqpError (refused by the peer)."""
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._gone = self._loop.create_future()
        self.connection = Connection(_ClientHandler(self), is_client=True, **self._settings)
        self.connection_hub = hub = Hub(self._loop)
        where = f"{self.host}:{self.port}"
        try:
            await dial(hub, self.host, self.port, self.connection, self._ssl, timeout=timeout)
            await within(asyncio.shield(self._opened), timeout, f"{where} to open the connection")
            if self.error is not None:  # its open and the close that refuses us came together
                raise self.error
            check_space(self.connection, self._space)
        except TimeoutError:
            self.connection.close()
            raise TimeoutError(f"waited {timeout:g} s for {where} to open the connection") from None
        except LoginError as error:
            self.connection.close()
            raise LoginError(f"{where}: {error.description}", error.code, error.offered) from None
        except AmqpError as error:
            text = f"{where}: {error.description}"
            if error.condition == errors.UNAUTHORIZED_ACCESS:
                raise LoginError(text) from None
            raise AmqpError(error.condition, text, error.info) from None
        self.session = self.connection.begin()
        return self

    async def __aenter__(self) -> Client:
        return await self.open(self._open_timeout)

    _open_timeout = 10.0
    _space: str | None = None
    """The address space that the client has stated as its host."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = 5.0) -> None:
        """Close the connection; returns when the peer has answered, or after `timeout` seconds anyway."""
        if self._reply_task is not None:
            self._reply_task.cancel()
        self.connection.close()
        await asyncio.wait([self._gone], timeout=timeout)

    def _on_close(self, error: AmqpError | None) -> None:
        self.error = error or AmqpError(errors.CONNECTION_FORCED, "the connection is closed")
        if not self._opened.done():
            self._opened.set_exception(self.error)
            self._opened.exception()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self.error)
        if not self._gone.done():
            self._gone.set_result(None)

    async def sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        timeout: float = 10.0,
        settled: bool = False,
        source: Source | None = None,
        target: Any = None,
        **fields: Any,
    ) -> ClientSender:
        """Attach a sender. `address` None is the anonymous terminus; `settled` asks for presettled deliveries only;
        `target` replaces the one made of `address`; `fields` are further fields of attach."""
        if settled:
            fields["snd_settle_mode"] = 1
        link = self.session.attach_sender(
            name or f"{address or 'anonymous'}-{uuid.uuid4()}",
            source or Source(),
            target or Target(address=address),
            **fields,
        )
        sender = ClientSender(self._loop, address, link)
        await sender.wait_attached(timeout)
        return sender

    async def receiver(
        self,
        address: str | None,
        *,
        credit: int = 100,
        name: str | None = None,
        durable_name: str | None = None,
        filter: Mapping[str, Any] | None = None,
        selector: str | None = None,
        dynamic: bool = False,
        browse: bool = False,
        capabilities: tuple[str, ...] = (),
        most_waiting: int = 0,
        timeout: float = 10.0,
        source: Source | None = None,
        **fields: Any,
    ) -> ClientReceiver:
        """Attach a receiver. `credit` messages are fetched ahead (0: by `grant`), large ones only while less than
        `most_waiting` bytes wait here (0: always). `durable_name` makes or resumes a durable subscription of that name,
        which belongs to the connection's container_id; `detach` leaves it, `close` deletes it. `selector` is a JMS
        selector, `filter` any other filter set; `dynamic` asks for an address of its own (then in `.address`); `browse`
        reads without taking; `source` replaces all of these."""
        if source is None:
            filters = dict(filter or {})
            if selector is not None:
                filters.update(SELECTOR.entry(selector))
            source = Source(
                address=None if dynamic else address,
                dynamic=dynamic,
                filter={Symbol(k): v for k, v in filters.items()},
                distribution_mode=Symbol("copy") if browse else None,
                capabilities=tuple(map(Symbol, capabilities)),
            )
            if durable_name is not None:
                source.durable = 2
                source.expiry_policy = Symbol("never")
        if most_waiting:
            fields.setdefault("max_message_size", self.connection.limits.max_message_size)
        link = self.session.attach_receiver(
            durable_name or name or f"{address or 'dynamic'}-{uuid.uuid4()}",
            source,
            Target(),
            streaming=most_waiting > 0,
            **fields,
        )
        receiver = ClientReceiver(self._loop, address, link, credit, most_waiting)
        await receiver.wait_attached(timeout)
        if credit:
            link.grant(credit)
        return receiver

    async def subscription(self, name: str, *, timeout: float = 10.0) -> ClientReceiver:
        """Attach to the existing durable subscription of this name, by a null source (as JMS unsubscribes). `detach`
        leaves it, `close` deletes it. Raises AmqpError: amqp:not-found if this client's container_id has none."""
        receiver = ClientReceiver(self._loop, None, self.session.attach_receiver(name, None, Target()), 0)
        await receiver.wait_attached(timeout)
        return receiver

    async def request(self, message: Message, address: str, *, timeout: float = 10.0) -> Message:
        """Send a request and wait for its reply, which comes to a dynamic address of this client, found by its
        correlation-id. Raises AmqpError if the request is not accepted, TimeoutError."""
        async with self._reply_lock:
            if self._reply_receiver is None or self._reply_receiver.closed:
                self._reply_receiver = await self.receiver(None, dynamic=True, timeout=timeout)
                self._reply_task = self._loop.create_task(self._read_replies(self._reply_receiver))
            sender = self._senders.get(address)
            if sender is None or sender.closed:
                sender = self._senders[address] = await self.sender(address, timeout=timeout)
        key = str(uuid.uuid4())
        message.reply_to = self._reply_receiver.address
        message.correlation_id = key
        if message.message_id is None:
            message.message_id = key
        reply: asyncio.Future[Message] = self._loop.create_future()
        self._replies[key] = self._replies[message.message_id] = reply
        try:
            outcome = await sender.send(message, timeout=timeout)
            if outcome is not ACCEPTED and outcome is not None:
                raise AmqpError(errors.NOT_ALLOWED, f"the request to {address} was not accepted: {outcome}")
            answer: Message = await within(reply, timeout, f"a reply from {address}")
            return answer
        finally:
            self._replies.pop(key, None)
            self._replies.pop(message.message_id, None)

    async def _read_replies(self, receiver: ClientReceiver) -> None:
        try:
            async for delivery in receiver:
                await delivery.accept()
                try:
                    message = delivery.message
                except AmqpError:
                    continue
                reply = self._replies.get(message.correlation_id)
                if reply is not None and not reply.done():
                    reply.set_result(message)
        except AmqpError as error:
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(error)


def check_space(connection: Connection, stated: str | None) -> None:
    """Raise LoginError if a client has stated an address space as its host, and the router does not say that it is in
    it: then it is one of the default space. None: it has stated none."""
    opened = connection.remote_open
    found = (opened.properties if opened is not None else None) or {}
    if stated is not None and found.get(SPACE) != stated:
        raise LoginError(f"the client is refused in the address space {stated!r}")


def user_sasl(host: str, user: str, password: str, *, tls: bool, hostname: str | None = None) -> SaslClient:
    """Return SASL of a user: SCRAM, unless the password is a token, and PLAIN only with TLS or on loopback. Raises
    ValueError for a NUL."""
    mechanisms: list[ClientMechanism] = []
    if not may_be_token(password):
        from enmasse.identity.processes.scram import (  # scramp takes a tenth of a second to import
            USER_MECHANISMS,
            ScramClient,
        )

        mechanisms += [ScramClient(user, password, name) for name in reversed(USER_MECHANISMS)]
    if tls or is_loopback(host):
        return SaslClient([*mechanisms, PlainClient(user, password)], hostname or host)
    note = "; PLAIN, which shows the password, is used with TLS or on loopback only"
    return SaslClient(mechanisms, hostname or host, note)


def connect(
    url: str | None = None,
    port: int | None = None,
    *,
    host: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    container_id: str | None = None,
    hostname: str | None = None,
    space: str | None = None,
    external: bool = False,
    credential: AnyCredential | None = None,
    timeout: float = 10.0,
    idle_timeout: float = 60.0,
    max_frame_size: int = 65536,
    properties: Mapping[str, Any] | None = None,
    desired_capabilities: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> Client:
    """Return a client, to be used as `async with connect(...) as c` or opened by `await connect(...).open()`.

    `url` is "amqp://user:password@host:port" or "amqps://…", or just a host; times are seconds. `hostname` (default:
    the host) goes into open and SASL and names the virtual host. `space`: the client is in this address space, or gets
    a LoginError: by the name of its user, without one by `hostname`. A `user` authenticates by SCRAM-SHA-512 or -256,
    or by PLAIN if the connection has TLS or is on loopback, never as anonymous; `external` by the certificate in `ssl`,
    a token as password by PLAIN only, `credential` by that of a process of the suite (SCRAM-SHA-256, or TLS and
    EXTERNAL, and nothing else).
    Raises ValueError if it is not a URL of AMQP.
    """
    name = host or "localhost"
    if url is not None:
        try:
            parts = urlsplit(url if "://" in url else f"amqp://{url}")
            found, port = parts.hostname, parts.port or port
        except ValueError:  # its text may have a part of the password
            found = None
        if not found or parts.scheme not in ("amqp", "amqps"):
            shown = url.rpartition("@")[2]
            raise ValueError(f"not an AMQP URL: {shown!r}; write amqp://host:port or amqps://host:port")
        name = found
        user = unquote(parts.username) if user is None and parts.username else user
        password = unquote(parts.password) if password is None and parts.password else password
        if parts.scheme == "amqps" and not ssl:
            ssl = True
    if space is not None and user is not None:
        user = user_in_space(user, space)
    elif space is not None:
        hostname = space
    context = ssl_module.create_default_context() if ssl is True else (ssl or None)
    if credential is not None:
        from enmasse.identity.processes.scram import (
            of_process,  # scramp takes a tenth of a second: not for each command
        )

        sasl = SaslClient([of_process(credential)], hostname or name)
        context = credential.tls() or context
    elif user is not None:
        sasl = user_sasl(name, user, password or "", tls=context is not None, hostname=hostname)
    else:
        sasl = SaslClient([] if external else [AnonymousClient()], hostname or name)
    if external:
        sasl.mechanisms.insert(0, ExternalClient())
    client = Client(
        name,
        port or (5671 if context else 5672),
        {
            "container_id": container_id or str(uuid.uuid4()),
            "hostname": hostname or name,
            "sasl": sasl,
            "idle_timeout_ms": int(idle_timeout * 1000),
            "max_frame_size": max_frame_size,
            "properties": properties,
            "desired_capabilities": desired_capabilities,
            "limits": limits,
        },
        context,
    )
    client._open_timeout = timeout
    client._space = space if user is None else None
    return client
