"""The peer for `router`: a relay on python-qpid-proton's bare engine, as quick as that can reasonably be made.

One thread, one selector, engine objects driven by hand (no reactor, no handlers): a delivery that arrives on the
sending connection is sent on the receiving one, and its settlement goes back. `python -m benchmarks.proton_relay PORT`.
"""

from __future__ import annotations

import selectors
import socket
import sys
from typing import Any

from proton import Collector, Connection, Delivery, Endpoint, Event, Transport

CAPACITY = 1000


class Peer:
    """One accepted connection: its socket, engine objects and the links found on it."""

    def __init__(self, sock: socket.socket, collector: Any) -> None:
        self.sock = sock
        self.connection = Connection()
        self.connection.container = "proton-relay"
        self.connection.collect(collector)
        self.transport = Transport(Transport.SERVER)
        self.transport.bind(self.connection)


class Relay:
    def __init__(self) -> None:
        self.collector = Collector()
        self.senders: dict[str, Any] = {}
        self.receivers: dict[str, list[Any]] = {}
        self.backlog: dict[str, list[tuple[bytes, Any]]] = {}
        self.tags = 0

    def dispatch(self) -> None:
        event = self.collector.peek()
        while event:
            kind = event.type
            if kind == Event.DELIVERY:
                self.delivery(event.delivery)
            elif kind in (Event.CONNECTION_REMOTE_OPEN, Event.SESSION_REMOTE_OPEN):
                (event.connection if kind == Event.CONNECTION_REMOTE_OPEN else event.session).open()
            elif kind == Event.LINK_REMOTE_OPEN:
                self.attach(event.link)
            elif kind == Event.LINK_FLOW and event.link.is_sender:
                self.pump(event.link.source.address)
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                event.connection.close()
            self.collector.pop()
            event = self.collector.peek()

    def attach(self, link: Any) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        if link.is_sender:
            self.senders[link.remote_source.address] = link
            for receiver in self.receivers.get(link.remote_source.address, []):
                receiver.flow(CAPACITY)
        else:
            address = link.remote_target.address
            self.receivers.setdefault(address, []).append(link)
            if address in self.senders:
                link.flow(CAPACITY)

    def delivery(self, delivery: Any) -> None:
        link = delivery.link
        if link.is_receiver:
            if delivery.readable and not delivery.partial:
                data = link.recv(delivery.pending)
                link.advance()
                address = link.target.address
                self.backlog.setdefault(address, []).append((data, delivery))
                self.pump(address)
        elif delivery.updated and delivery.settled:
            inbound = delivery.context
            inbound.update(delivery.remote_state or Delivery.ACCEPTED)
            inbound.settle()
            delivery.settle()
            inbound.link.flow(1)

    def pump(self, address: str) -> None:
        sender, waiting = self.senders.get(address), self.backlog.get(address)
        while sender is not None and waiting and sender.credit > 0:
            data, inbound = waiting.pop(0)
            self.tags += 1
            outbound = sender.delivery(str(self.tags))
            outbound.context = inbound
            sender.send(data)
            sender.advance()


def serve(port: int) -> None:
    relay, selector = Relay(), selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port))
    selector.register(listener, selectors.EVENT_READ)
    peers: dict[int, Peer] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[sock.fileno()] = Peer(sock, relay.collector)
                selector.register(sock, selectors.EVENT_READ)
                continue
            peer = peers[key.fd]
            room = peer.transport.capacity()
            data = peer.sock.recv(min(room, 1 << 16)) if room > 0 else b""
            if not data or peer.connection.state & Endpoint.REMOTE_CLOSED:
                selector.unregister(peer.sock)
                del peers[key.fd]
                peer.sock.close()
                continue
            peer.transport.push(data)
            relay.dispatch()
        for peer in peers.values():
            waiting = peer.transport.pending()
            while waiting > 0:
                peer.sock.sendall(peer.transport.peek(waiting))
                peer.transport.pop(waiting)
                waiting = peer.transport.pending()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
