"""What is a copy and what is not, against a model of an address that loses connections and delivers again."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.types import ULong
from enmasse.amqp.link import FIRST
from enmasse.amqp.messages.message import AmqpSequence, Message
from enmasse.spark.receiver import unsettled as window
from enmasse.spark.receiver.account import OwnAccount
from enmasse.spark.receiver.spool_receiver import SpoolIntake
from enmasse.spark.receiver.unsettled import Unsettled, key_of
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.segment import SpoolError, read_spool, segments
from enmasse.spark.spool.spool import MappedCount, SpoolWriter

UNSURE = 50


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 600)


def intake_of(spool: SpoolWriter, unsure: int, *, told: bool) -> SpoolIntake:
    intake = SpoolIntake(spool, OwnAccount(Unsettled(spool.folder, [spool.count], unsure)))
    intake.connected(told)
    return intake


def at_once(work: Coroutine[Any, Any, Any]) -> None:
    """Run what never waits with an account in the same process."""
    with pytest.raises(StopIteration):
        work.send(None)


def forget(intake: SpoolIntake, end: int) -> None:
    gone = intake.spool.forgettable(end)
    if gone:
        at_once(intake.account.keep(gone[-1].end))
    intake.spool.forget(gone)


class Killed(Exception):
    """The receiver is killed at this very moment."""


class Arrived:
    """A delivery; the address is told of its outcome, or the receiver is killed instead."""

    def __init__(self, id: int, payload: bytes, told: Callable[[int], None], settled: bool = False) -> None:
        self.id, self.payload, self.settled, self._told = id, payload, settled, told

    def settle(self, state: Any) -> None:
        assert state is ACCEPTED
        self._told(self.id)

    @property
    def receiver(self) -> Arrived:
        return self

    def accept_all(self, deliveries: list[Arrived]) -> None:
        for delivery in deliveries:
            delivery.settle(ACCEPTED)


class Address:
    """Delivers, again if a connection was lost before it took note of the outcome; in what order, nobody knows."""

    def __init__(self, folder: Path, chance: random.Random, *, tells: bool, in_order: bool) -> None:
        self.folder, self.chance, self.tells, self.in_order = folder, chance, tells, in_order
        self.waiting: list[bytes] = []
        self.sent: dict[int, bytes] = {}
        self.accepted: set[int] = set()
        self.rows: dict[int, bytes] = {}
        self.next = 0
        self.kill_at = -1
        self.start()

    def start(self) -> None:
        self.spool = SpoolWriter(self.folder)
        self.intake = intake_of(self.spool, UNSURE, told=self.tells)
        self.collect()

    def collect(self) -> None:
        """What Spark reads before it commits."""
        for first, _ in segments(self.folder)[:1]:
            for record in read_spool(self.folder, max(first, len(self.rows)), self.spool.count):
                self.rows[record.offset] = record.message

    def deliver(self, count: int) -> None:
        group = []
        under_way = self.next - min(self.sent, default=self.next)
        for _ in range(min(count, len(self.waiting), UNSURE - under_way)):  # the intake remembers no more
            payload = self.waiting.pop(0)
            self.sent[self.next] = payload
            group.append(Arrived(self.next, payload, self.told))
            self.next += 1
        if group:
            at_once(self.intake.take(group))  # type: ignore[arg-type]  # a double with what the intake uses

    def told(self, delivery_id: int) -> None:
        if self.kill_at == 0:
            self.kill_at = -1
            raise Killed
        self.kill_at -= 1
        self.accepted.add(delivery_id)

    def take_note(self, count: int) -> None:
        """Of outcomes; the receiver is told at once."""
        ids = sorted(self.accepted)
        if not self.in_order:
            self.chance.shuffle(ids)
        for delivery_id in ids[:count]:
            self.accepted.discard(delivery_id)
            del self.sent[delivery_id]
        if self.tells:
            self.intake.settled(ids[:count])

    def lose(self) -> None:
        """Whatever it has not taken note of comes again, anywhere among what waits."""
        for payload in self.sent.values():
            self.waiting.insert(self.chance.randint(0, len(self.waiting)), payload)
        self.sent.clear()
        self.accepted.clear()

    def cut(self) -> None:
        self.lose()
        at_once(self.intake.lost())
        self.next = self.chance.choice([0, self.next])  # delivery-ids begin anew

    def kill(self) -> None:
        self.lose()
        self.spool.close()
        self.next = 0
        self.start()

    def commit(self) -> None:
        self.collect()
        forget(self.intake, self.chance.randint(0, self.spool.count))

    def finish(self) -> Counter[bytes]:
        while self.waiting or self.sent:
            self.deliver(7)
            self.take_note(7)
        self.collect()
        assert sorted(self.rows) == list(range(self.spool.count))
        self.spool.close()
        return Counter(self.rows.values())


def step(address: Address, what: str, count: int) -> None:
    if what == "deliver":
        address.deliver(count)
    elif what == "killed while accepting":
        address.kill_at = count
        try:
            address.deliver(count + 3)
        except Killed:
            address.kill()
        address.kill_at = -1
    elif what == "note":
        address.take_note(count)
    else:
        {"cut": address.cut, "kill": address.kill, "commit": address.commit}[what]()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "note", "note", "cut", "kill", "killed while accepting", "commit"]),
        st.integers(1, 12),
    ),
    max_size=40,
)


@pytest.mark.parametrize("tells", [True, False])
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    devices=st.integers(1, 6), readings=st.integers(1, 12), twins=st.integers(0, 4), steps=STEPS, seed=st.integers(0)
)
def test_every_message_is_one_row(
    tmp_path_factory: pytest.TempPathFactory,
    tells: bool,
    devices: int,
    readings: int,
    twins: int,
    steps: list[tuple[str, int]],
    seed: int,
) -> None:
    """Devices that all count from 1, some of them with equal messages, over connections and receivers that die.

    Equal ones are told apart only by who settled what: so not with an address that does not tell, and after a kill only
    with one that settles in order."""
    twins = twins if tells else 0
    address = Address(tmp_path_factory.mktemp("spool"), random.Random(seed), tells=tells, in_order=twins > 1)
    wanted: Counter[bytes] = Counter()
    for number in range(readings):
        for device in range(devices):
            body = "equal" if device < twins else f"{device}"
            wanted[Message(body, message_id=ULong(number + 1)).encode()] += 1
    address.waiting = list(wanted.elements())
    address.chance.shuffle(address.waiting)
    for what, count in steps:
        step(address, what, count)
    assert address.finish() == wanted


def delivered(intake: SpoolIntake, *payloads: bytes, first: int = 0, settled: bool = False) -> None:
    group = [Arrived(first + i, payload, lambda _: None, settled) for i, payload in enumerate(payloads)]
    at_once(intake.take(group))  # type: ignore[arg-type]  # a double with what the intake uses


def opened(folder: Path, *, told: bool = True, unsure: int = UNSURE) -> SpoolIntake:
    spool = SpoolWriter(folder)
    return intake_of(spool, unsure, told=told)


ONE = Message("x", message_id="1").encode()


def test_equal_messages_are_two_rows_while_the_connection_lives(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE, ONE)
    delivered(intake, ONE, first=2)
    assert intake.spool.count == 3


def test_each_message_in_doubt_stands_for_one_copy(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE, ONE, Message("y", message_id="1").encode())
    intake.settled([0])
    at_once(intake.lost())
    delivered(intake, ONE, ONE)
    assert intake.spool.count == 4, "one of both was settled, so only one comes again"


def test_a_copy_that_is_lost_again_is_in_doubt_again(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE)
    for _ in range(3):
        at_once(intake.lost())
        delivered(intake, ONE)
        intake.spool.close()
        intake = opened(tmp_path)
        delivered(intake, ONE)
    assert intake.spool.count == 1
    intake.settled([0])
    intake.spool.close()
    intake = opened(tmp_path)
    delivered(intake, ONE)
    assert intake.spool.count == 2, "the copy was settled: what comes now is another message"


def test_what_was_settled_is_not_in_doubt_after_a_kill(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE)
    intake.settled([0])
    intake.spool.close()
    intake = opened(tmp_path)
    delivered(intake, ONE)
    assert intake.spool.count == 2


def test_what_comes_settled_does_not_come_again(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE, settled=True)
    at_once(intake.lost())
    delivered(intake, ONE)
    assert intake.spool.count == 2


def test_messages_without_an_id_come_at_least_once(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    for payload in (Message("x").encode(), b"no message", b""):
        delivered(intake, payload)
        at_once(intake.lost())
        delivered(intake, payload)
    assert intake.spool.count == 6


def test_a_group_that_could_not_be_written_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intake = opened(tmp_path)
    delivered(intake, ONE)
    at_once(intake.lost())

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    two = Message("y", message_id="2").encode()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="cannot be written"):
        patch.setattr(os, "fdatasync", full)
        delivered(intake, ONE, two)
    at_once(intake.lost())
    delivered(intake, two, ONE)
    assert [r.message for r in read_spool(tmp_path, 0, intake.spool.count)] == [ONE, two]


def test_with_a_peer_that_does_not_tell_the_newest_are_in_doubt(tmp_path: Path) -> None:
    messages = [Message("x", message_id=i).encode() for i in range(8)]
    intake = opened(tmp_path, told=False, unsure=5)
    delivered(intake, *messages)
    intake.spool.close()
    intake = opened(tmp_path, told=False, unsure=5)
    delivered(intake, *messages)
    assert intake.spool.count == 8 + 3


def test_a_loss_of_power_puts_more_in_doubt_and_no_less(tmp_path: Path) -> None:
    intake = opened(tmp_path)
    messages = [Message("x", message_id=i).encode() for i in range(4)]
    delivered(intake, *messages)
    intake.settled([0, 1])
    intake.spool.close()
    MappedCount(tmp_path / "settled", create=0).put(1)  # as it was a while ago
    intake = opened(tmp_path)
    delivered(intake, *messages)
    assert intake.spool.count == 5, "only the first is known to be settled"


def test_the_window_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "WINDOW", 3)
    intake = opened(tmp_path)
    messages = [Message("x", message_id=i).encode() for i in range(5)]
    delivered(intake, *messages)
    at_once(intake.lost())
    delivered(intake, *messages)
    assert intake.spool.count == 5 + 2
    assert len(json.loads((tmp_path / "unsettled").read_bytes())) == 3


def test_a_spool_of_an_earlier_release_loses_nothing(tmp_path: Path) -> None:
    """It remembered ids alone, of records long deleted. They prove nothing; the end of the spool does."""
    messages = [Message("x", message_id=str(i)).encode() for i in range(10)]
    spool = SpoolWriter(tmp_path)
    for message in messages:
        spool.append(message, 1)
    spool.sync()
    spool.close()
    (tmp_path / "seen").write_text(json.dumps([f"str:'{i}'" for i in range(100)]))
    intake = opened(tmp_path, unsure=4)
    others = [Message("of another device", message_id=str(i)).encode() for i in range(100)]
    delivered(intake, *others)
    assert intake.spool.count == 110
    delivered(intake, *messages[6:], first=100)
    assert intake.spool.count == 110, "what may not have been settled is recognised"
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize("content", ["{", "5", '{"a": 1}', '[["a", "b"]]', "[[1]]"])
def test_a_window_that_cannot_be_read_names_its_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "unsettled").write_text(content)
    with pytest.raises(SpoolError, match=r"unsettled: not readable \(.*delete it"):
        opened(tmp_path)


def key(*, body: Any = b"body", **fields: Any) -> bytes | None:
    return key_of(Message(body, **fields).encode())


def test_a_copy_has_the_same_id_and_the_same_bare_message() -> None:
    """AMQP 1.0, 3.2: header, annotations and footer are not of the bare message."""
    one = key(message_id="1")
    assert one is not None and len(one) == 16
    assert one == key(message_id="1", delivery_count=3, annotations={"x-opt-a": 1}, footer={"a": 1}, durable=True)
    others = [
        key(message_id="2"), key(message_id=1), key(message_id=b"1"), key(message_id="1", subject="s"),
        key(message_id="1", application_properties={"a": 1}), key(message_id="1", body=b"bodY"),
        key(message_id="1", body="body"), key(message_id="1", body=AmqpSequence([b"body"])),
    ]  # fmt: skip
    assert one not in others and len(set(others)) == len(others)
    assert key() is None and key_of(b"") is None and key_of(b"\x00\x53\x73") is None


def test_a_peer_that_settles_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """From the next connection on the receiver settles at once."""

    class Silent:
        async def receive(self, timeout: float) -> None:
            raise TimeoutError

    intake = opened(tmp_path)
    delivered(intake, ONE)
    with pytest.raises(AmqpError, match="settled nothing"):
        asyncio.run(intake.next(Silent()))  # type: ignore[arg-type]  # a double with what the intake uses
    assert intake.mode == FIRST
