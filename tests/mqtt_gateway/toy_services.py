"""The subscription service and the last-will service as the gateway's AMQP side sees them, in memory: what tests do to
them (be silent, refuse, go away) the real ones do not do when asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Error, Rejected
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.sasl.layer import AnonymousClient, SaslClient
from enmasse.model import sessions as wire


class Service(Handler):
    """A container behind the router that takes messages on its links."""

    container = ""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.senders: list[Sender] = []
        self.gone = asyncio.Event()

    async def connect(self, port: int) -> None:
        self.gone.clear()
        connection = Connection(
            self,
            container_id=self.container,
            is_client=True,
            sasl=SaslClient([AnonymousClient()], "127.0.0.1"),
        )
        await dial(Hub(asyncio.get_running_loop()), "127.0.0.1", port, connection)
        self.connection = connection

    async def leave(self) -> None:
        """As if it had been killed."""
        if self.connection is not None:
            self.connection.close()
            await self.gone.wait()

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.senders.clear()
        self.gone.set()

    def on_attach(self, link: Link) -> None:
        link.accept()
        if isinstance(link, Sender):
            self.senders.append(link)
        elif isinstance(link, Receiver):
            link.credit_window = 1000

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        if isinstance(link, Sender) and link in self.senders:
            self.senders.remove(link)

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.took(Message.decode(payload), lambda: link.session.settle(delivery_id), link.name)

    def took(self, message: Message, accept: Callable[[], None], name: str) -> None:
        """A message on the link of this name."""
        raise NotImplementedError


class ToySessions(Service):
    """`answers`: subject → what is answered instead of the usual; None: nothing at all."""

    container = "subscription-service"

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, Any]] = []
        self.changes: list[wire.PacketChange] = []
        self.answers: dict[str, Any] = {}
        self.epoch = 0
        self.outbox: list[tuple[str, bytes]] = []
        self.sources: dict[str, list[wire.Source]] = {}
        self.sessions: dict[str, wire.OpenReply] = {}
        self.opened: dict[str, tuple[str, int, str]] = {}
        """Client → gateway that has opened it last, epoch, the name of the gateway's links."""

    def took(self, message: Message, accept: Callable[[], None], name: str) -> None:
        accept()
        subject = str(message.subject)
        body = msgspec.json.decode(str(message.body))
        self.log.append((subject, body))
        if subject == "packets":
            self.changes += msgspec.json.decode(str(message.body), type=wire.Packets).changes
        answer = self.answers[subject] if subject in self.answers else self.usual(subject, body)
        if subject == "open" and isinstance(answer, wire.OpenReply):
            self.opened[body["client"]] = body["gateway"], answer.epoch, name
        if isinstance(answer, wire.Failure):
            subject = "error"
        if answer is not None:
            self.tell(subject, answer, message.correlation_id, name)

    def usual(self, subject: str, body: dict[str, Any]) -> Any:
        if subject == "hello":
            return wire.HelloReply()
        if subject == "open":
            self.epoch += 1
            known = self.sessions.get(body["client"])
            return wire.OpenReply(epoch=self.epoch, present=False) if known is None else known
        if subject == "handover":
            gateway, epoch, name = self.opened.get(body["client"], (body["gateway"], 0, ""))
            if gateway == body["gateway"]:
                return wire.HandoverReply()
            self.tell("takeover", wire.Takeover(client=body["client"], epoch=epoch), name=name)
            return wire.HandoverReply(epoch=epoch)
        if subject == "subscribe":
            codes = [each["qos"] for each in body["subscriptions"]]
            return wire.SubscribeReply(codes=codes, sources=self.sources.get(body["client"], []))
        if subject == "unsubscribe":
            return wire.UnsubscribeReply(codes=[0] * len(body["filters"]), sources=[])
        return wire.PacketsReply() if subject == "packets" else wire.CloseReply()

    def tell(self, subject: str, body: Any, key: Any = None, name: str | None = None) -> None:
        """To the gateway whose links have this name; None: to the newest."""
        text = msgspec.json.encode(body).decode()
        message = Message(text, subject=subject, correlation_id=key).encode()
        self.outbox.append((name or self.senders[-1].name, message))
        for link in self.senders:
            self.on_flow(link)

    def on_flow(self, link: Sender) -> None:
        for each in list(self.outbox):
            if each[0] == link.name and link.credit:
                self.outbox.remove(each)
                link.send(each[1], settled=True)

    def subjects(self) -> list[str]:
        return [subject for subject, _ in self.log]


class ToyWills(Service):
    container = "lwt-service"

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str]] = []
        self.messages: list[Message] = []
        self.silent = False
        self.refusal: AmqpError | None = None
        """What wills are refused with."""

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if self.refusal is not None and Message.decode(payload).subject == "will":
            link.session.settle(delivery_id, Rejected(error=Error.of(self.refusal)))
        else:
            super().on_delivery(link, delivery_id, settled, payload, tag, message_format)

    def took(self, message: Message, accept: Callable[[], None], name: str) -> None:
        if self.silent:
            return
        accept()
        self.messages.append(message)
        self.log.append((str(message.subject), str((message.annotations or {}).get("x-opt-client-id"))))


@asynccontextmanager
async def connected(service: Service, port: int) -> AsyncIterator[None]:
    await service.connect(port)
    try:
        yield
    finally:
        await service.leave()
