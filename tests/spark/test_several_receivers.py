"""The account of several receivers, against a model of an address that knows a lost connection before they do."""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enmasse.amqp.messages.message import Message
from enmasse.spark.receiver import unsettled as accounting
from enmasse.spark.receiver.unsettled import COPY, FRESH, LATER, RELEASED, Unsettled, key_of
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.segment import partition_folder, partitions_of, read_spool, segments
from enmasse.spark.spool.spool import SpoolWriter


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 600)


class Receiver:
    """One with its connection: what is on the way to it, and on the way from it."""

    def __init__(self, folder: Path) -> None:
        self.spool = SpoolWriter(folder)
        self.alive = True  # as the address sees it
        self.inbox: deque[tuple[str, int, bytes]] = deque()
        self.outbox: deque[tuple[int, int]] = deque()
        self.sent: dict[int, bytes] = {}  # and not settled, as the address knows
        self.held: dict[int, bytes] = {}
        self.next = 0


class Query:
    """An address, and the receivers of a query with their account."""

    def __init__(self, folder: Path, chance: random.Random, receivers: int, *, exact: bool) -> None:
        self.folder, self.chance, self.exact = folder, chance, exact
        self.waiting: deque[bytes] = deque()
        self.rows: dict[tuple[int, int], bytes] = {}
        self.start(receivers)

    def start(self, receivers: int) -> None:
        self.receivers = [Receiver(partition_folder(self.folder, n)) for n in range(receivers)]
        left = [SpoolWriter(partition_folder(self.folder, n)) for n in range(receivers, partitions_of(self.folder))]
        counts = [each.spool.count for each in self.receivers] + [spool.count for spool in left]
        for spool in left:
            spool.close()
        self.account = Unsettled(self.folder, counts, 50, receivers)
        self.account.decided = self.decided
        for n in range(receivers):
            self.account.connected(n, True)

    def deliver(self, n: int, count: int) -> None:
        one = self.receivers[n]
        for _ in range(min(count, len(self.waiting)) if one.alive else 0):
            payload = self.waiting.popleft()
            one.sent[one.next] = payload
            one.inbox.append(("message", one.next, payload))
            one.next += 1

    def process(self, n: int, count: int) -> None:
        one = self.receivers[n]
        group: dict[int, bytes] = {}
        for _ in range(min(count, len(one.inbox))):
            what, delivery_id, payload = one.inbox.popleft()
            if what == "settled":
                self.account.settled(n, [delivery_id])
            else:
                group[delivery_id] = payload
        keys = [(delivery_id, key_of(payload) or b"") for delivery_id, payload in group.items()]
        for (delivery_id, payload), verdict in zip(group.items(), self.account.claim(n, keys), strict=True):
            self.judged(n, delivery_id, payload, verdict)

    def judged(self, n: int, delivery_id: int, payload: bytes, verdict: int) -> None:
        one = self.receivers[n]
        if verdict == LATER:
            one.held[delivery_id] = payload
            return
        if verdict == FRESH:
            one.spool.append(payload, 1)
            one.spool.sync()
            self.account.stored(n, [(delivery_id, one.spool.count - 1)], one.spool.count)
        one.outbox.append((delivery_id, RELEASED if verdict == RELEASED else COPY))

    def decided(self, n: int, delivery_id: int, verdict: int) -> None:
        self.judged(n, delivery_id, self.receivers[n].held.pop(delivery_id), verdict)

    def note(self, n: int, count: int) -> None:
        """The address takes note of outcomes; the receiver will be told."""
        one = self.receivers[n]
        for _ in range(min(count, len(one.outbox)) if one.alive else 0):
            delivery_id, outcome = one.outbox.popleft()
            payload = one.sent.pop(delivery_id)
            if outcome == RELEASED:
                self.back(payload)
            one.inbox.append(("settled", delivery_id, b""))

    def back(self, payload: bytes) -> None:
        self.waiting.insert(self.chance.randint(0, len(self.waiting)), payload)

    def cut(self, n: int) -> None:
        """The address gives up a connection; its receiver has not noticed that yet."""
        one = self.receivers[n]
        if one.alive:
            one.alive = False
            for payload in one.sent.values():
                self.back(payload)
            if not self.exact:
                for _ in range(self.chance.randint(0, len(one.inbox))):
                    one.inbox.pop()  # never arrives

    def notice(self, n: int) -> None:
        """A receiver takes what has arrived, and connects again."""
        one = self.receivers[n]
        if not one.alive:
            self.process(n, len(one.inbox))
            one.held.clear()
            self.account.lost(n)
            one.alive = True
            one.outbox.clear()
            one.sent.clear()
            one.next = self.chance.choice([0, one.next])

    def kill(self, receivers: int) -> None:
        """All of the query, at once; it is started again with another number of receivers."""
        self.collect()
        for n, one in enumerate(self.receivers):
            if self.exact:
                self.process(n, len(one.inbox))
            self.cut(n)
            one.spool.close()
        self.start(receivers)

    def commit(self, n: int) -> None:
        self.collect()
        spool = self.receivers[n].spool
        gone = spool.forgettable(self.chance.randint(0, spool.count))
        if gone:
            self.account.keep(n, gone[-1].end)
            spool.forget(gone)

    def collect(self) -> None:
        """What Spark reads before it commits."""
        for n in range(partitions_of(self.folder)):
            folder = partition_folder(self.folder, n)
            for first, _ in segments(folder)[:1]:
                known = [record for partition, record in self.rows if partition == n]
                start = max(first, max(known, default=-1) + 1)
                end = self.receivers[n].spool.count if n < len(self.receivers) else spooling.head_of(folder).get()
                for record in read_spool(folder, start, end):
                    self.rows[n, record.offset] = record.message

    def finish(self) -> Counter[bytes]:
        for _ in range(2000):
            if not self.waiting and not any(one.sent or one.inbox or one.held for one in self.receivers):
                break
            for n in range(len(self.receivers)):
                self.notice(n)
                self.deliver(n, 7)
                self.process(n, 7)
                self.note(n, 7)
        self.collect()
        for one in self.receivers:
            one.spool.close()
        assert not self.waiting, "messages go round in circles"
        return Counter(self.rows.values())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["deliver", "deliver", "process", "process", "note", "note", "cut", "notice", "kill", "commit"]
        ),
        st.integers(0, 2),
        st.integers(1, 8),
    ),
    max_size=60,
)


@pytest.mark.parametrize("window", [3, pytest.param(100_000, marks=pytest.mark.slow)])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    receivers=st.integers(1, 3),
    messages=st.integers(1, 30),
    twins=st.integers(1, 3),
    steps=STEPS,
    seed=st.integers(0),
)
def test_every_message_is_one_row_of_some_receiver(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    receivers: int,
    messages: int,
    twins: int,
    steps: list[tuple[str, int, int]],
    seed: int,
) -> None:
    """Equal messages too, unless it is lost what the address has settled: then a copy cannot be told from them."""
    chance = random.Random(seed)
    query = Query(tmp_path_factory.mktemp("spool"), chance, receivers, exact=twins > 1)
    wanted: Counter[bytes] = Counter()
    for number in range(messages):
        wanted[Message("x", message_id=str(number)).encode()] += twins
    query.waiting.extend(wanted.elements())
    chance.shuffle(query.waiting)
    with monkeypatch.context() as patch:
        if twins == 1:  # what is in doubt must not be forgotten
            patch.setattr(accounting, "REMEMBERED", window)
        for what, n, count in steps:
            if what == "kill":
                query.kill(n + 1)
            elif n < len(query.receivers):
                if what in ("cut", "notice", "commit"):
                    getattr(query, what)(n)
                else:
                    getattr(query, what)(n, count)
        assert query.finish() == wanted


def query(folder: Path, *bodies: str) -> Query:
    found = Query(folder, random.Random(1), 2, exact=True)
    found.waiting.extend(Message(body, message_id="1").encode() for body in bodies)
    return found


def test_what_another_has_not_settled_yet_waits_until_its_connection_is_lost(tmp_path: Path) -> None:
    two = query(tmp_path, "m", "other")
    two.deliver(0, 1)
    two.process(0, 1)
    two.cut(0)  # as the address sees it: receiver 0 has stored "m" and does not know that
    two.waiting.rotate(1 if two.waiting[0] == Message("m", message_id="1").encode() else 0)
    two.deliver(1, 1)
    two.process(1, 1)
    two.note(1, 1)
    two.process(1, 1)  # receiver 1 has shown that it is connected
    two.deliver(1, 1)
    two.process(1, 1)
    assert len(two.receivers[1].held) == 1
    two.notice(0)
    assert not two.receivers[1].held and two.receivers[1].spool.count == 1
    assert set(two.finish().values()) == {1}


@pytest.mark.parametrize("remembered", [0, 100])
def test_what_came_over_a_dead_connection_is_not_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    """Another receiver has got it since, and it is settled; whether that is remembered or not."""
    monkeypatch.setattr(accounting, "REMEMBERED", remembered)
    two = query(tmp_path, "m")
    two.deliver(0, 1)
    two.cut(0)
    two.deliver(1, 1)
    two.process(1, 1)
    two.note(1, 1)
    two.process(1, 1)
    two.process(0, 1)  # before it notices anything
    assert two.receivers[0].spool.count == 0
    assert set(two.finish().values()) == {1}


def test_equal_messages_over_living_connections_are_rows_each(tmp_path: Path) -> None:
    two = query(tmp_path, "m", "m", "m", "m")
    assert list(two.finish().values()) == [4]


def test_with_a_peer_that_does_not_settle_an_equal_message_waits_for_a_while(tmp_path: Path) -> None:
    two = query(tmp_path, "m", "m")
    for n in range(2):
        two.account.connected(n, False)
        two.deliver(n, 1)
        two.process(n, 1)
    assert two.receivers[1].held
    two.account.passed(accounting.WAIT_SECONDS - 1)
    assert two.receivers[1].held
    two.account.passed(accounting.WAIT_SECONDS)
    assert not two.receivers[1].held and two.receivers[1].spool.count == 1
