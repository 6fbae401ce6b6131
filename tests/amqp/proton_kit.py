"""Proton's engine as the peer, bytes in and bytes out, without sockets."""

from __future__ import annotations

from typing import Any

from proton import Collector, Delivery, Endpoint, Link, Transport
from proton import Connection as ProtonConnection

from enmasse.amqp.connection import Connection


class ProtonPeer:
    """`is_server`: Proton takes the server's part. Fields of the transport can be set before the first `run`."""

    def __init__(self, engine: Connection, *, container: str = "proton") -> None:
        self.engine = engine
        self.transport = Transport(Transport.SERVER if engine.is_client else Transport.CLIENT)
        self.connection = ProtonConnection()
        self.connection.container = container
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.bound = False
        self.received: list[bytes] = []
        self.accept = True
        self.settle_received = True
        self.capacity = 0  # of sessions that the engine begins, in bytes
        self._body = b""

    def open(self) -> None:
        self.transport.bind(self.connection)
        self.bound = True
        self.connection.open()
        if self.engine.is_client:
            self.engine.open()
        self.run()

    def session(self) -> Any:
        session = self.connection.session()
        session.open()
        return session

    def run(self) -> None:
        """Carry bytes until both are silent; a Proton server answers begins and attaches as an echo."""
        for _ in range(100_000):
            moved = self._events()
            pending = self.transport.pending()
            if pending > 0:
                data = self.transport.peek(pending)
                self.transport.pop(len(data))
                self.engine.receive(bytes(data))
                moved = True
            output = self.engine.take_output()
            moved = moved or bool(output)
            while output:
                capacity = self.transport.capacity()
                if capacity <= 0:
                    assert self.engine.finished or self.connection.state & Endpoint.REMOTE_CLOSED
                    break
                self.transport.push(output[:capacity])
                output = output[capacity:]
                self._events()
            if not moved:
                return
        raise AssertionError("the two never fall silent")

    def _events(self) -> bool:
        moved = False
        while (event := self.collector.peek()) is not None:
            moved = True
            self._event(event)
            self.collector.pop()
        return moved

    def _event(self, event: Any) -> None:
        name = event.type.name
        if name == "PN_SESSION_REMOTE_OPEN" and event.session.state & Endpoint.LOCAL_UNINIT:
            if self.capacity:
                event.session.incoming_capacity = self.capacity
            event.session.open()
        elif name == "PN_LINK_REMOTE_OPEN" and event.link.state & Endpoint.LOCAL_UNINIT:
            link = event.link
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.snd_settle_mode = link.remote_snd_settle_mode
            link.rcv_settle_mode = link.remote_rcv_settle_mode
            link.open()
            if link.is_receiver:
                link.flow(100)
        elif name == "PN_DELIVERY":
            self.on_delivery(event.delivery)
        elif name in ("PN_LINK_REMOTE_CLOSE", "PN_LINK_REMOTE_DETACH") and event.link.state & Endpoint.LOCAL_ACTIVE:
            event.link.close() if name == "PN_LINK_REMOTE_CLOSE" else event.link.detach()
        elif name == "PN_CONNECTION_REMOTE_CLOSE":
            self.connection.close()

    def on_delivery(self, delivery: Any) -> None:
        link: Any = delivery.link
        if link.is_receiver and delivery.aborted:
            self._body = b""
            delivery.settle()
            link.flow(1)
        elif link.is_receiver and delivery.readable:
            self._body += bytes(link.recv(delivery.pending) or b"")
            if delivery.partial:
                return
            self.received.append(self._body)
            self._body = b""
            link.advance()
            if self.accept:
                delivery.update(Delivery.ACCEPTED)
            if self.settle_received:
                delivery.settle()
            link.flow(1)

    def sender(self, session: Any, name: str, address: str | None = "a") -> Any:
        link = session.sender(name)
        link.target.address = address
        link.source.address = "here"
        return link

    def receiver(self, session: Any, name: str, address: str | None = "a") -> Any:
        link = session.receiver(name)
        link.source.address = address
        return link

    def send(self, link: Any, body: bytes, tag: str, settled: bool = False) -> Any:
        delivery = link.delivery(tag)
        link.send(body)
        if settled:
            delivery.settle()
        link.advance()
        return delivery


def closed(link: Any) -> bool:
    return bool(link.state & Link.REMOTE_CLOSED)
