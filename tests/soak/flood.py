"""A hostile client as a process: `python -m tests.soak.flood KIND PORT ADDRESS` goes on until it is ended."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable

from enmasse.amqp.codec.performatives import (
    Attach,
    Begin,
    Detach,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from tests.conformance.wire import connect, publish, subscribe

ANONYMOUS = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
READ = 65536


def frame(performative: object, kind: int = 0, payload: bytes = b"") -> bytes:
    content = encode_performative(performative) + payload
    return (len(content) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + content


def opening(port: int) -> socket.socket:
    """A connection with one session, opened without waiting for answers."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=5)
    peer.sendall(ANONYMOUS + frame(SaslInit(mechanism=Symbol("ANONYMOUS")), 1) + AMQP)
    peer.sendall(frame(Open(container_id=f"flood-{random.random()}", hostname="localhost")))
    peer.sendall(
        frame(Begin(next_outgoing_id=0, incoming_window=1 << 20, outgoing_window=1 << 20, handle_max=(1 << 32) - 1))
    )
    return peer


def swallow(peer: socket.socket) -> None:
    """Read what there is."""
    peer.setblocking(False)
    try:
        while peer.recv(READ):
            pass
    except BlockingIOError:
        pass
    finally:
        peer.settimeout(5)


def connects(port: int, address: str) -> None:
    """Connections, one after the other, each dropped at once."""
    opening(port).close()


def silence(port: int, address: str) -> None:
    """Five hundred sockets that never say a word."""
    silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(500)]
    time.sleep(5)
    for one in silent:
        one.close()


def attaches(port: int, address: str) -> None:
    """Links without end on one session."""
    with opening(port) as peer:
        for handle in range(20_000):
            source, target = Source(address=address), Target(address="")
            peer.sendall(frame(Attach(name=f"flood-{handle}", handle=handle, role=True, source=source, target=target)))
            if handle % 100 == 0:
                swallow(peer)


def flows(port: int, address: str) -> None:
    """Flows that want an answer each."""
    one = frame(
        Flow(next_incoming_id=0, incoming_window=1 << 20, next_outgoing_id=0, outgoing_window=1 << 20, echo=True)
    )
    with opening(port) as peer:
        for _ in range(100):
            peer.sendall(one * 1000)
            swallow(peer)


def trickle(port: int, address: str) -> None:
    """A large message of which a little comes each second, and never the end."""
    with opening(port) as peer:
        source, target = Source(address=""), Target(address=address)
        peer.sendall(
            frame(Attach(name="trickle", handle=0, role=False, source=source, target=target, initial_delivery_count=0))
        )
        payload = Message(bytes(1 << 20)).encode()
        time.sleep(0.5)
        for at in range(0, 40 * 1000, 1000):
            piece = payload[at : at + 1000]
            more = (
                Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True)
                if not at
                else Transfer(handle=0, more=True)
            )
            peer.sendall(frame(more, payload=piece))
            time.sleep(0.25)


def leavers(port: int, address: str) -> None:
    """Consumers that take what there is, settle nothing, and leave: detached, closed or lost."""
    with opening(port) as peer:
        source, target = Source(address=address), Target(address="")
        peer.sendall(frame(Attach(name=f"leaver-{random.random()}", handle=0, role=True, source=source, target=target)))
        window = Flow(handle=0, delivery_count=0, link_credit=100, next_incoming_id=0, incoming_window=1 << 20,
                      next_outgoing_id=0, outgoing_window=1 << 20)  # fmt: skip
        peer.sendall(frame(window))
        time.sleep(random.choice((0.05, 0.2)))
        swallow(peer)
        leaving = random.choice(("detached", "closed", "lost"))
        if leaving != "lost":
            peer.sendall(frame(Detach(handle=0, closed=leaving == "closed")))
            time.sleep(0.05)
            swallow(peer)


def noise(port: int, address: str) -> None:
    """Frames with flipped bits."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        said = bytearray(
            AMQP
            + frame(Open(container_id="noise"))
            + frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
        )
        said += frame(
            Attach(name="noise", handle=0, role=True, source=Source(address=address), target=Target(address=""))
        )
        for _ in range(random.randrange(4)):
            said[random.randrange(len(AMQP), len(said))] ^= 1 << random.randrange(8)
        peer.sendall(ANONYMOUS + frame(SaslInit(mechanism=Symbol("ANONYMOUS")), 1) + said)
        peer.recv(READ)


def deaf(port: int, address: str) -> None:
    """MQTT clients that subscribe to everything of a topic and never read."""
    made = []
    for number in range(50):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port))
        peer.sendall(connect(f"deaf-{number}-{random.random()}", 5, clean=True) + subscribe(1, [("news/#", 1)], 5))
        made.append(peer)
    time.sleep(1)
    for peer in made:
        peer.close()


def hoard(port: int, address: str) -> None:
    """MQTT clients that send most of a large PUBLISH and stop."""
    made = []
    for number in range(100):
        peer = socket.create_connection(("127.0.0.1", port), timeout=5)
        peer.sendall(connect(f"hoard-{number}-{random.random()}", 5, clean=True))
        peer.sendall(publish("news/hoard", bytes(1 << 19), 5, qos=1, pid=1)[: (1 << 19) - 1000])
        made.append(peer)
    time.sleep(1)
    for peer in made:
        peer.close()


OVER_MQTT = {"deaf", "hoard"}
KINDS: dict[str, Callable[[int, str], None]] = {
    one.__name__: one for one in (connects, silence, attaches, flows, trickle, noise, leavers, deaf, hoard)
}


def main() -> None:
    kind, port, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    while True:
        try:
            KINDS[kind](port, address)
        except OSError:
            time.sleep(0.01)  # it may have thrown us out, which is right


if __name__ == "__main__":
    main()
