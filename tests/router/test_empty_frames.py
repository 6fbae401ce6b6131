"""Deliveries some of whose transfer frames are empty, through a router: to a topic (a link route) and to a receiver."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from proton import Message

from enmasse.amqp.codec.performatives import Accepted, Begin, Close, Disposition, Flow, Open, Rejected, Target, Transfer
from tests.amqp.engine_kit import AMQP, attach, frame, frames
from tests.router.harness import DEADLINE, Broker, Management, RouterProcess, pump, wait_for
from tests.router.test_containers import connector, topic

BODY = Message(body="in pieces").encode()


class Sender:
    """A client of raw frames with one sending link."""

    def __init__(self, port: int, address: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.data = b""
        self.socket.sendall(AMQP + frame(0, Open(container_id="raw", max_frame_size=65536)))
        self.socket.sendall(frame(0, Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)))
        self.socket.sendall(frame(0, attach("s", 0, sending=True, target=Target(address=address))))

    def wait(self, kind: type, count: int = 1) -> list[Any]:
        """Read until so many of this performative have come."""
        while True:
            whole = len(self.data)
            try:
                found = [p for _, p, _ in frames(self.data) if type(p) is kind]
            except Exception:  # the last frame is not complete yet
                found = []
            if len(found) >= count:
                return found
            data = self.socket.recv(65536)
            assert data, f"the router closed the connection after {whole} bytes"
            self.data += data

    def send(self, delivery_id: int, pieces: list[bytes], *, aborted: bool = False) -> None:
        for n, piece in enumerate(pieces):
            last = n == len(pieces) - 1
            first: dict[str, Any] = {
                "delivery_id": delivery_id,
                "delivery_tag": b"%d" % delivery_id,
                "message_format": 0,
            }
            transfer = Transfer(handle=0, **(first if n == 0 else {}), more=not last, aborted=aborted and last)
            self.socket.sendall(frame(0, transfer, piece))

    def close(self) -> None:
        self.socket.sendall(frame(0, Close()))
        self.wait(Close)
        self.socket.close()


@pytest.mark.parametrize("where", ["topic", "receiver"])
def test_empty_frames_around_a_message(
    router: RouterProcess, management: Management, broker: Broker, where: str
) -> None:
    connector(management, broker)
    if where == "topic":
        topic(management, "news")
        address = "news"
    else:
        address = "test/empty-frames"
        receiver = router.connect().create_receiver(address, credit=10)
    sender = Sender(router.port, address)
    sender.wait(Flow)
    cases = [
        [b"", BODY],
        [BODY[:5], b"", BODY[5:]],
        [b"", b"", BODY[:5], BODY[5:], b""],
        [b"", BODY[:5], BODY[5:]],
        [b"", b"", BODY],
        [BODY],
    ]
    for n, pieces in enumerate(cases):
        sender.send(2 * n, [b"", b""], aborted=True)  # nothing at all, taken back
        sender.send(2 * n + 1, pieces)
    if where == "topic":
        wait_for(lambda: broker.stored.get(address) == ["in pieces"] * len(cases))
    else:
        for _ in cases:
            assert receiver.receive(timeout=DEADLINE).body == "in pieces"
            receiver.accept()
        receiver.connection.close()

    def settled() -> int:
        return sum((d.last or d.first) - d.first + 1 for d in sender.wait(Disposition))

    while settled() < len(cases):
        sender.wait(Disposition, len(sender.wait(Disposition)) + 1)
    sender.close()
    if where == "topic":
        for name in ("t-news-in", "t-news-out"):
            management.delete("router.config.linkRoute", name)
    management.delete("connector", "t-b0")


@pytest.mark.parametrize("address", ["test/no-sections", "testall/no-sections"])
def test_a_message_without_a_section_reaches_nobody(router: RouterProcess, address: str) -> None:
    """Proton's Python raises an error where it should read one."""
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=10)
    sender = Sender(router.port, address)
    sender.wait(Flow)
    for n, pieces in enumerate([[b""], [b"", b""], [b"\x00\x53"], [b""] * 300, [BODY]]):
        sender.send(n, pieces)
    assert receiver.receive(timeout=DEADLINE).body == "in pieces"
    receiver.accept()
    pump(connection)
    states: dict[int, Any] = {}
    answers: list[Any] = []
    while len(states) < 5:
        answers = sender.wait(Disposition, len(answers) + 1)
        for d in answers:
            states |= dict.fromkeys(range(d.first, (d.last or d.first) + 1), type(d.state))
    assert states == {**dict.fromkeys(range(4), Rejected), 4: Accepted}
    sender.close()
    connection.close()
