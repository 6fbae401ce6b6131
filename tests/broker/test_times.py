"""Expiry, delays, and clocks that are set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from proton import symbol

from services.broker import server
from tests.broker.sansio import Core, decoded, outlet, taken


def test_expired_ones_are_never_sent_and_are_found_while_waiting() -> None:
    core = Core()
    q = core.queue()
    core.send("short", ttl=1)
    core.send("long", ttl=100)
    core.now += 1001
    consumer = core.consumer(q, 5)
    assert taken(consumer) == ["long"]
    assert (q.expired, q.count) == (1, 1)
    outlet(consumer).credit = 0
    core.send("short", ttl=1)
    core.tick(2000)
    assert (q.expired, q.count, len(list(q.messages()))) == (2, 1, 0)


def test_what_a_receiver_of_second_mode_had_does_not_expire_and_the_rest_does() -> None:
    """It may have begun to hand it on, and can complete that only with the message. Of all ways back."""
    core = Core()
    q = core.queue()
    for body in ("given back", "failed", "lost", "waits"):
        core.send(body, ttl=10)
    first = core.consumer(q, 3, once=True)
    found = [message for _, message in outlet(first).take()]
    outlet(first).credit = 0
    q.outcomes.release(first, found[:1])
    q.outcomes.modify(first, found[1:2], failed=True, elsewhere=False)
    q.detach(first)
    core.tick(20_000)
    assert (q.expired, q.count) == (1, 3)
    strict = core.consumer(q, 5, "JMSPriority > 5")
    core.tick(20_000)
    assert not taken(strict)
    q.detach(strict)
    second = core.consumer(q, 5, once=True)
    found_again = outlet(second).take()
    assert [decoded(payload).body for payload, _ in found_again] == ["given back", "failed", "lost"]
    q.outcomes.accept(second, [message for _, message in found_again])
    assert not q.expiries.watched
    assert not q.expiries.handed


def test_what_another_receiver_had_expires() -> None:
    core = Core()
    q = core.queue()
    core.send("x", ttl=10)
    q.detach(core.consumer(q, 1))
    core.tick(20_000)
    assert (q.expired, q.count) == (1, 0)


def test_a_scheduled_message_may_expire_first() -> None:
    core = Core()
    q = core.queue()
    core.send("x", ttl=1, annotations={"x-opt-delivery-delay": 5000})
    assert (q.count, len(q.schedule)) == (1, 1)
    core.tick(2000)
    assert (q.count, q.expired) == (0, 1)
    assert core.broker.ledger.size == 0


@pytest.mark.parametrize("jump", [-3_000_000_000, -900_000, 0, 3_600_000, 10**11])
def test_a_clock_that_is_set_changes_no_time_to_live_and_no_delay(tmp_path: Path, jump: int) -> None:
    core = Core(tmp_path, defaults={"expiryAddress": "late", "redeliveryDelay": 20_000})
    core.now = 4_000_000_000
    q, late = core.queue(), core.queue("late")
    core.send("short", durable=True, ttl=10)
    core.send("delayed", durable=True, annotations={symbol("x-opt-delivery-delay"): 15_000})
    core.skew = jump
    wall = core.now + jump
    core.send("until", durable=True, expiry_time=(wall + 10_000) / 1000)
    core.send("at", durable=True, annotations={symbol("x-opt-delivery-time"): wall + 15_000})
    core.commit()
    core.tick(9_000)
    consumer = core.consumer(q, 10)
    found = outlet(consumer).take()
    assert [decoded(payload).body for payload, _ in found] == ["short", "until"]
    q.outcomes.release(consumer, [message for _, message in found])
    outlet(consumer).take()
    q.outcomes.modify(consumer, [message for _, message in found], failed=True, elsewhere=False)
    core.tick(2_000)
    core.commit()
    assert (late.count, q.count) == (2, 2), "expired, and delayed"
    assert taken(consumer) == []
    annotations = decoded(outlet(core.consumer(late, 1)).take()[0][0]).annotations
    assert annotations[symbol("x-opt-ACTUAL-EXPIRY")] == core.now + jump
    core.tick(5_000)
    assert taken(consumer) == ["delayed", "at"]


def test_times_on_disk_are_those_of_the_wall(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.queue()
    core.skew = 10**10
    core.send("x", durable=True, ttl=10)
    core.send("y", durable=True, annotations={symbol("x-opt-delivery-delay"): 15_000})
    core.commit()
    core.now, core.skew = 777, core.now + core.skew - 777  # another boot, the same time of the day
    core.restart()
    q = core.broker.catalogue.queues["q"]
    assert [message.expires for message in q.messages()] == [10_777]
    core.tick(14_999)
    assert q.count == 1
    core.tick(2)
    assert taken(core.consumer(q, 5)) == ["y"]


def test_a_change_of_the_systems_time_does_not_change_the_clock_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = server.steady_clock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert before <= clock() < before + 60_000
    assert server.steady_clock()() < 60_000  # a broker started later has the time of its start
    assert server.wall() == 5000
