"""What a Qpid Dispatch 1.19 that connects has sent on its links, sent again to our router, and the answers.

`dispatch_1_19_links.json` has frames recorded between two routers of that version. `connecting`: all of `QDR.A`, which
connects with cost 7 and has `QDR.C` behind it, but for flows of later and outcomes. `listening`: Open and Attach of
`QDR.B`, which has receivers of `any/recorded` and `all/recorded`. A client of `QDR.C` has sent `SENT` to both.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from enmasse.amqp.codec.performatives import ACCEPTED, Attach, Disposition, Flow, Open, Transfer, decode_performative
from services.router.routing.neighbours.hop_annotations import annotate, stated
from tests.identity.kit import AMQP_HEADER
from tests.kit.waiting import DEADLINE, wait_for
from tests.router.harness import RouterProcess, idle, pump_until
from tests.router.mesh.network import Routers

RECORDED: dict[str, list[bytes]] = {
    side: [bytes.fromhex(frame) for frame in frames]
    for side, frames in json.loads((Path(__file__).parent / "dispatch_1_19_links.json").read_text()).items()
}
ADDRESSES = ("any/recorded", "all/recorded")
SENT = Message(body="recorded", durable=True, priority=7, annotations={"x-opt-mine": "kept"})
FRONT = 8
"""Bytes of a frame before its performative."""


def read(frame: bytes) -> tuple[int, Any, bytes]:
    """Return the channel, performative and payload of a frame."""
    performative, end = decode_performative(frame, FRONT, len(frame))
    return int.from_bytes(frame[6:8]), performative, frame[end:]


def of_kind(side: str, kind: type) -> list[Any]:
    """Return the recorded frames of a performative, as `read` does."""
    return [each for each in map(read, RECORDED[side]) if type(each[1]) is kind]


def on_data_links() -> list[tuple[int, Transfer, bytes]]:
    return [each for each in of_kind("connecting", Transfer) if each[0]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_message_in_transit_has_the_bytes_that_dispatch_gives_it(number: int) -> None:
    """Its order of annotations and widths included."""
    payload = on_data_links()[number][2]
    ours = annotate(payload_of(SENT), stated(ADDRESSES[number], 0, "QDR.C", ("QDR.C", "QDR.A")))
    assert ours == payload


def payload_of(message: Message) -> bytes:
    """Return the bytes of a message as Proton's client sends them."""
    return bytes(message.encode())


class Replay:
    """A peer that sends recorded frames. `frames`: that have come, as `read` returns them."""

    def __init__(self, port: int) -> None:
        self.frames: list[tuple[int, Any, bytes]] = []
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self._coming = self._socket.makefile("rb")
        self._socket.sendall(AMQP_HEADER)
        assert self._coming.read(len(AMQP_HEADER)) == AMQP_HEADER

    def send(self, frames: list[bytes]) -> None:
        self._socket.sendall(b"".join(frames))

    def come(self, kind: type, count: int) -> list[tuple[int, Any]]:
        """Return the channels and performatives of a kind once there are so many."""
        while len(found := [each[:2] for each in self.frames if type(each[1]) is kind]) < count:
            size = self._coming.read(4)
            frame = size + self._coming.read(int.from_bytes(size) - len(size))
            if len(frame) > FRONT:
                self.frames.append(read(frame))
        return found

    def close(self) -> None:
        self._coming.close()
        self._socket.close()


@pytest.fixture
def listening() -> Iterator[tuple[RouterProcess, Routers, Replay]]:
    with ExitStack() as stack:
        routers = Routers(stack)
        router = routers.start("QDR.B")
        replay = Replay(routers.port("QDR.B"))
        stack.callback(replay.close)
        yield router, routers, replay


def test_recorded_frames_are_answered_as_dispatch_did(listening: tuple[RouterProcess, Routers, Replay]) -> None:
    router, routers, replay = listening
    client = router.connect()
    receivers = [client.create_receiver(address, credit=10) for address in ADDRESSES]
    first, then = before_and_after(Transfer)
    replay.send(first)
    theirs = of_kind("listening", Open)[0][1]
    ours = replay.come(Open, 1)[0][1]
    assert ours.container_id == theirs.container_id
    assert {*theirs.offered_capabilities} <= {*ours.offered_capabilities}
    assert ours.desired_capabilities == theirs.desired_capabilities
    names = ("product", "version", "qd.annotations-version")
    assert [ours.properties[name] for name in names] == [theirs.properties[name] for name in names]
    attached = [each[:2] for each in of_kind("listening", Attach)]
    assert [shown(*each) for each in replay.come(Attach, len(attached))] == [shown(*each) for each in attached]
    replay.come(Flow, sum(not attach.role for _, attach, _ in of_kind("connecting", Attach)))
    replay.send(then)
    for number, (receiver, (channel, transfer, _)) in enumerate(zip(receivers, on_data_links(), strict=True), start=1):
        pump_until(partial(bool, receiver.fetcher.incoming), "the message", client)
        message = receiver.receive()
        assert payload_of(message) == payload_of(SENT)
        receiver.accept()
        idle(client)
        where, outcome = replay.come(Disposition, number)[-1]
        assert where == channel
        assert (outcome.first, outcome.settled, outcome.state) == (transfer.delivery_id, True, ACCEPTED)
    wait_for(lambda: routers.costs("QDR.B") == {"QDR.A": 7, "QDR.C": 10}, "both are nodes")
    client.close()


def before_and_after(kind: type) -> tuple[list[bytes], list[bytes]]:
    """Return what the connecting side has sent before the first frame of a kind, and what from there on."""
    frames = RECORDED["connecting"]
    at = next(number for number, frame in enumerate(frames) if type(read(frame)[1]) is kind)
    return frames[:at], frames[at:]


def shown(channel: int, attach: Any) -> tuple[Any, ...]:
    """Return what both kinds of routers state of a link."""
    ends = (attach.source, attach.target)
    return channel, attach.name, attach.role, [(end.address, end.capabilities, end.dynamic) for end in ends]
