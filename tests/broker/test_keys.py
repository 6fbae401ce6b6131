"""Duplicate keys: whose they are, and which of an address are kept."""

from __future__ import annotations

import random

import pytest

from services.broker.keys import FEW, LIMIT, SENDERS, Keys, key_of
from tests.kit.marks import first_soon

ALICE, BOB, CAROL = (name.ljust(13).encode() for name in ("alice", "bob", "carol"))
NOBODY = b""


def add(keys: Keys[int], sender: bytes, *numbers: int) -> None:
    for number in numbers:
        keys.add(key_of(sender, b"%d" % number), number)


def kept(keys: Keys[int], sender: bytes, *numbers: int) -> list[int]:
    return [number for number in numbers if keys.seen(key_of(sender, b"%d" % number))]


def test_an_id_counts_for_its_sender_alone() -> None:
    keys: Keys[int] = Keys()
    add(keys, ALICE, 1)
    assert kept(keys, ALICE, 1, 2) == [1]
    for other in (BOB, NOBODY):
        assert kept(keys, other, 1) == []


def test_no_id_reads_as_that_of_another_sender() -> None:
    """Whatever an id begins with."""
    keys: Keys[int] = Keys()
    keys.add(key_of(ALICE, b"1"), 0)
    for id in (key_of(ALICE, b"1"), ALICE + b"1", b"\x001", b"\x00" + bytes((len(ALICE),)) + ALICE + b"1"):
        for sender in (BOB, NOBODY):
            assert not keys.seen(key_of(sender, id))


def test_a_flood_of_one_sender_pushes_out_its_own_ids_only() -> None:
    keys: Keys[int] = Keys()
    add(keys, ALICE, 1)
    add(keys, NOBODY, 1)
    add(keys, BOB, *range(LIMIT + 1))
    assert kept(keys, ALICE, 1) == kept(keys, NOBODY, 1) == [1]
    assert kept(keys, BOB, *range(LIMIT + 1)) == list(range(1, LIMIT + 1))


def test_floods_of_several_senders_leave_those_with_few_ids_theirs() -> None:
    limit = 100
    keys: Keys[int] = Keys(limit)
    few = range(limit // FEW)
    add(keys, ALICE, *few)
    for n in range(3 * SENDERS):
        add(keys, b"flood%8d" % n, *range(2 * limit))
        assert len(keys) <= SENDERS * limit
    assert kept(keys, ALICE, *few) == list(few)


def test_among_senders_with_few_ids_the_oldest_of_all_goes() -> None:
    limit = 100
    keys: Keys[int] = Keys(limit)
    for n in range(SENDERS * limit + 1):
        add(keys, b"device%7d" % n, 0)
    assert len(keys) == SENDERS * limit
    assert kept(keys, b"device%7d" % 0, 0) == []
    assert kept(keys, b"device%7d" % 1, 0) == [0]


def test_ids_of_earlier_versions_are_compared_with_those_of_every_sender() -> None:
    keys: Keys[int] = Keys()
    for old in (b"7f.1.abc", b"\x00m\xa1\x01x", b"\x00hash", b""):
        keys.add(old, 0)
        for sender in (ALICE, NOBODY):
            assert keys.seen(key_of(sender, old))
    assert not keys.seen(key_of(ALICE, b"another"))
    add(keys, ALICE, *range(SENDERS * LIMIT))
    assert keys.seen(key_of(BOB, b"7f.1.abc")), "they go as those of a sender do"


def test_a_smaller_limit_holds_at_once() -> None:
    keys: Keys[int] = Keys(100)
    add(keys, ALICE, *range(100))
    add(keys, BOB, *range(20))
    assert len(keys.set_limit(10)) == 100
    assert kept(keys, ALICE, *range(100)) == list(range(90, 100))
    assert kept(keys, BOB, *range(20)) == list(range(10, 20))


@pytest.mark.parametrize("seed", first_soon(range(20), 5))
def test_any_order_of_changes_keeps_the_bounds(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.randrange(1, 20)
    keys: Keys[int] = Keys(limit)
    senders = [b"%13d" % n for n in range(rng.randrange(1, 40))]
    for number in range(2000):
        sender = rng.choice(senders)
        add(keys, sender, number % 50)
        if rng.random() < 0.1:
            keys.remove(rng.choice(keys.items())[0])
        by_sender = [key[2:15] for key, _ in keys.items()]
        assert len(by_sender) <= SENDERS * limit
        assert max(map(by_sender.count, by_sender), default=0) <= limit
