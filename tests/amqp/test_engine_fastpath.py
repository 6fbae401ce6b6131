"""The fast path takes the usual encodings of transfer and disposition, list8 and list32, and nothing it should not."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Detach, TransactionalState, encode_performative
from enmasse.amqp.endpoint import LinkSession
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.reader import Reader
from tests.amqp.engine_kit import Pair, Raw, Recorder, attach, by_tables, condition_of, frame


def wide(code: int, count: int, fields: bytes) -> bytes:
    """A performative as a list32."""
    size = (len(fields) + 4).to_bytes(4, "big")
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + size + count.to_bytes(4, "big") + fields


def narrow(code: int, count: int, fields: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + b"\xc0" + bytes((len(fields) + 1, count)) + fields


def uint(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")


QUIET = b"\x00\x00\x00\x08\x02\x00\x00\x00" * 5
SHAPES = {"list8": narrow, "list32": wide}
HANDLES = {"uint0": (0, b"\x43"), "smalluint": (200, b"\x52\xc8"), "uint": (1000, uint(1000))}
TAILS = {
    "format": (1, b"\x43", False),
    "smalluint format": (1, b"\x52\x00", False),
    "settled": (2, b"\x43\x41", True),
    "unsettled, no more": (3, b"\x43\x42\x42", False),
    "booleans in two bytes": (3, b"\x43\x56\x01\x56\x00", True),
    "all fields": (8, b"\x70\x00\x00\x00\x00\x41\x42\x40\x40\x42\x42\x42", True),
    "nulls": (4, b"\x40\x40\x40\x40", False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("tail", TAILS)
def test_usual_transfers(shape: str, handle: str, tail: str) -> None:
    number, encoded = HANDLES[handle]
    fields, end, settled = TAILS[tail]
    raw = Raw("begun", Recorder(window=1000))
    raw.feed(frame(0, attach("l", number, sending=True)))

    def transfer(i: int) -> bytes:
        body = SHAPES[shape](0x14, 3 + fields, encoded + uint(i) + b"\xa0\x03" + b"%03d" % i + end)
        return frame(0, None, body + b"payload that is long enough %d" % i)

    raw.feed(transfer(300))  # by the tables: learnt
    counted = by_tables(raw)
    raw.feed(b"".join(transfer(i) for i in range(301, 400)) + b"\x00\x00\x00\x08\x02\x00\x00\x00" * 5)
    assert counted == []
    assert raw.handler.received == [b"payload that is long enough %d" % i for i in range(300, 400)]
    assert all(e[2] == settled for e in raw.handler.events if e[0] == "delivery")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("state", [(b"\x00\x53\x24\x45", ACCEPTED), (b"\x00\x53\x26\x45", RELEASED)])
@pytest.mark.parametrize("end", [b"", b"\x42", b"\x40"])
@pytest.mark.parametrize("single", [False, True])
def test_usual_dispositions(shape: str, state: tuple[bytes, Any], end: bytes, single: bool) -> None:
    raw = Raw("attached", limits=None)
    sender = raw.handler.links["out"]
    assert isinstance(sender, Sender)
    for i in range(9):
        sender.send(b"x", i)
    raw.feed(b"")

    def disposition(first: int, last: int) -> bytes:
        fields = b"\x41" + uint(first) + (b"\x40" if single else uint(last)) + b"\x41" + state[0] + end
        return frame(0, None, SHAPES[shape](0x15, 5 + len(end), fields))

    padding = b"\x00\x00\x00\x08\x02\x00\x00\x00" * 5  # a list32 at the very end of a read goes by the tables
    raw.feed(disposition(0, 2) + padding)
    counted = by_tables(raw)
    raw.feed(disposition(3, 5) + disposition(6, 8) + padding)
    assert counted == []
    tokens = [0, 3, 6] if single else list(range(9))
    assert raw.handler.outcomes == [(token, state[1], True) for token in tokens]


class Worker(Recorder):
    """Takes the work of transactions too."""

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        if isinstance(link, Receiver):
            link.on_transactional = self.on_transactional_delivery

    def on_transactional_delivery(
        self, link: Receiver, id: int, settled: bool, payload: bytes, tag: bytes, format: int, state: TransactionalState
    ) -> None:
        self.events.append(("work", link.name, id, settled, payload, tag, format, bytes(state.txn_id)))

    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None:
        self.events.append(("refused", txn_id))


def work(id: int, transaction: bytes, shape: str = "list8", settled: bool = False, handle: bytes = b"\x43") -> bytes:
    """A transfer of a transaction, in its usual form."""
    state = encode_performative(TransactionalState(txn_id=transaction))
    end = b"\x43" + (b"\x41" if settled else b"\x42") + b"\x42\x40" + state
    return frame(0, None, SHAPES[shape](0x14, 8, handle + uint(id) + b"\xa0\x04abcd" + end) + b"message %d" % id)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settled", [False, True])
def test_work_of_transactions(shape: str, settled: bool) -> None:
    """Only the first transfer of each goes by the tables, and what is learnt of it does not grow."""
    raw = Raw("attached", Worker(window=1000))
    raw.feed(b"")
    id = 0
    for number in range(100):
        transaction = b"%016d" % number
        raw.feed(work(id, transaction, shape, settled))
        counted = by_tables(raw)
        following = range(id + 1, id + 10)
        raw.feed(b"".join(work(i, transaction, shape, settled) for i in following) + QUIET)
        assert counted == []
        id += 10
    got = [event for event in raw.handler.events if event[0] == "work"]
    assert got == [("work", "in", i, settled, b"message %d" % i, b"abcd", 0, b"%016d" % (i // 10)) for i in range(id)]


def test_work_for_a_link_without_transactions_is_refused() -> None:
    """Also if the transfer has the form, and names the transaction, of one that another link has taken."""
    raw = Raw("attached", Worker(window=10))
    raw.feed(frame(0, attach("plain", 2, sending=True)))
    plain = raw.handler.links["plain"]
    assert isinstance(plain, Receiver)
    plain.on_transactional = None
    raw.feed(work(0, b"t" * 16) + work(1, b"t" * 16))
    (answer,) = (each for each in raw.feed(work(2, b"t" * 16, handle=b"\x52\x02") + QUIET) if isinstance(each, Detach))
    assert condition_of(answer) == "amqp:not-implemented"
    assert ("refused", b"t" * 16) in raw.handler.events


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("tag", [None, b"t", b"t" * 32], ids=["no tag", "short tag", "long tag"])
@pytest.mark.parametrize("id", [b"", b"i" * 16, b"i" * 250], ids=["empty", "usual", "longer than a list8"])
@pytest.mark.parametrize("size", [0, 100, 100_000], ids=["empty message", "message", "several frames"])
def test_work_is_sent_as_it_is_read(settled: bool, tag: bytes | None, id: bytes, size: int) -> None:
    pair = Pair(server=Worker())
    sender = pair.sender()
    for number in range(3):
        sender.send(b"x" * size, number, settled=settled, tag=tag, state=TransactionalState(txn_id=id))
    pair.run()
    got = [event for event in pair.server.events if event[0] == "work"]
    assert [(*event[2:5], *event[6:]) for event in got] == [(n, settled, b"x" * size, 0, id) for n in range(3)]
    assert tag is None or {event[5] for event in got} == {tag}


PLAIN_AND_WORK = {
    "plain": lambda id: frame(
        0, None, narrow(0x14, 4, b"\x43" + uint(id) + b"\xa0\x04abcd\x43") + b"payload of this message"
    ),
    "work": lambda id: work(id, b"0123"),
}


@pytest.mark.parametrize("kind", PLAIN_AND_WORK)
def test_lies_about_sizes_do_not_get_through(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that look like those learnt, with a list longer than its frame, or fields that overlap its end."""
    quiet = QUIET * 2
    good, next_one = (PLAIN_AND_WORK[kind](id) for id in range(2))
    whole = Raw("attached", Worker(window=10))
    whole.feed(good)
    counted = by_tables(whole)
    whole.feed(next_one + quiet)
    assert counted == []
    for damage in range(4, len(next_one)):
        for value in (0, 1, 0x20, 0x7F, 0xFF):
            bad = next_one[:damage] + bytes((value,)) + next_one[damage + 1 :]
            fast, slow = (Raw("attached", Worker(window=10)) for _ in range(2))
            fast.feed(good)
            with monkeypatch.context() as patch:
                patch.setattr(Reader, "learn", lambda *_: None)
                slow.feed(good)
            fast.feed(bad + quiet)
            slow.feed(bad + quiet)
            assert fast.handler.events == slow.handler.events, (damage, value)
            assert fast.connection.state == slow.connection.state
