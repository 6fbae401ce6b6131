"""The soak judges others: here it is judged itself. Its ledger by hand, then a short one with a real suite."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from proton.utils import BlockingConnection

from tests.soak import run
from tests.soak.faults import FAULTS
from tests.soak.field import Field
from tests.soak.ledger import GRACE, Flow, Ledger, Taker
from tests.soak.load import Post, body
from tests.soak.watch import DESCRIPTORS, Watch


class Scene:
    """A ledger with one flow and one taker, and a clock that is set by hand."""

    def __init__(self, *, strict: bool = True) -> None:
        self.now = 1000.0
        self.ledger = Ledger(lambda: self.now)
        self.flow = Flow("orders/0")
        self.taker: Taker = self.ledger.taker("orders", [self.flow], strict=strict)

    def send(self, *, accepted: bool = True) -> int:
        number = self.ledger.fresh(self.flow)
        self.ledger.sends(self.flow, number)
        if accepted:
            self.ledger.accepts(self.flow, number)
        return number

    def receive(self, number: int) -> None:
        self.ledger.received(self.taker, self.flow.name, number)

    def missing(self) -> list[int]:
        return [one.number for one in self.ledger.missing(self.now + 1)]


def test_what_was_accepted_and_did_not_come_is_missing() -> None:
    scene = Scene()
    for _ in range(5):
        scene.send()
    scene.send(accepted=False)
    for number in (0, 1, 3):
        scene.receive(number)
    assert scene.missing() == [2, 4]
    assert [one.number for one in scene.ledger.missing(scene.now)] == []  # accepted at that time, not before
    scene.receive(2)
    assert scene.missing() == [4]


def test_what_was_reported_as_lost_is_reported_once_and_noticed_if_it_comes() -> None:
    scene = Scene()
    number = scene.send()
    scene.ledger.give_up(scene.ledger.missing(scene.now + 1))
    assert scene.missing() == [] and scene.ledger.found_late == 0
    scene.receive(number)
    assert scene.ledger.found_late == 1 and not scene.ledger.violations


def test_a_second_copy_needs_a_reason() -> None:
    scene = Scene()
    number = scene.send()
    scene.receive(number)
    scene.now += 1
    scene.receive(number)
    assert len(scene.ledger.violations) == 1 and not scene.ledger.doubles


def test_a_message_that_was_sent_twice_may_come_twice_and_not_three_times() -> None:
    scene = Scene()
    number = scene.send(accepted=False)
    scene.ledger.sends(scene.flow, number)
    scene.ledger.accepts(scene.flow, number)
    scene.receive(number)
    scene.receive(number)
    assert sum(scene.ledger.doubles.values()) == 1 and not scene.ledger.violations
    scene.receive(number)
    assert len(scene.ledger.violations) == 1


def test_of_an_address_that_may_be_a_topic_each_may_get_a_copy_and_one_has_to() -> None:
    scene = Scene()
    scene.taker.each = True
    number = scene.send()
    scene.send()
    scene.receive(number)
    scene.receive(number)
    assert sum(scene.ledger.doubles.values()) == 1 and not scene.ledger.violations
    assert scene.missing() == [1]


def test_what_was_given_back_counts_as_no_copy() -> None:
    scene = Scene()
    number = scene.send(accepted=False)
    scene.ledger.given_back(scene.flow, number)
    scene.ledger.sends(scene.flow, number)
    scene.ledger.accepts(scene.flow, number)
    scene.receive(number)
    scene.receive(number)
    assert len(scene.ledger.violations) == 1


@pytest.mark.parametrize(("before", "allowed"), [(GRACE - 1, True), (GRACE + 1, False)])
def test_a_fault_may_cut_off_an_acknowledgement_and_not_one_of_long_ago(before: float, allowed: bool) -> None:
    scene = Scene()
    number = scene.send()
    scene.receive(number)
    scene.now += before
    scene.ledger.begin_break("kill-broker")
    scene.now += 1
    scene.receive(number)
    assert (sum(scene.ledger.doubles.values()), len(scene.ledger.violations)) == ((1, 0) if allowed else (0, 1))


@pytest.mark.parametrize(("strict", "missing"), [(True, [0, 1]), (False, [1])])
def test_who_is_not_strict_may_miss_what_was_accepted_near_a_fault(strict: bool, missing: list[int]) -> None:
    scene = Scene(strict=strict)
    scene.ledger.begin_break("kill-router")
    scene.send()
    scene.ledger.end_break()
    scene.now += 3 * GRACE
    scene.send()
    scene.now += 3 * GRACE
    assert scene.missing() == missing


def test_a_message_that_nobody_sent_is_seen() -> None:
    scene = Scene()
    scene.send()
    scene.receive(1)
    scene.ledger.received(scene.taker, "news/0", 0)
    assert len(scene.ledger.violations) == 2


def test_a_body_tells_its_message() -> None:
    bodies = {body("orders/0", number) for number in range(200)} | {body("bulk/0", number) for number in range(5)}
    assert len([one for one in bodies if len(one) > 50]) > 100


def test_descriptors_that_stay_open_are_noticed(tmp_path: Path) -> None:
    watch = Watch()
    now = {"components": [{"name": "broker", "pid": os.getpid()}]}
    assert not any("descriptors" in problem for problem in watch.look(now)[2])
    files = [(tmp_path / "file").open("w") for _ in range(DESCRIPTORS + 1)]
    assert any("descriptors" in problem for problem in watch.look(now)[2])
    for file in files:
        file.close()
    assert not any("descriptors" in problem for problem in watch.look(now)[2])


def soak(*faults: str, seconds: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SOAK_SECONDS": str(seconds), "SOAK_SEED": "1"}
    return subprocess.run(
        [sys.executable, "-m", "tests.soak", *faults], capture_output=True, text=True, env=environment, timeout=500
    )


@pytest.mark.slow
def test_a_short_soak_passes() -> None:
    done = soak("kill-broker", seconds=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 lost, 1 rounds" in done.stdout and done.stdout.endswith("seed 1: PASSED\n")


@pytest.mark.slow
def test_a_message_that_is_taken_away_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def steal(field: Field, rng: random.Random) -> str:
        thief = BlockingConnection(field.suite.url, timeout=60)
        receiver = thief.create_receiver("orders", credit=1)
        receiver.receive()
        receiver.accept()
        thief.close()
        return "of orders"

    def nobody_leaves(post: Post) -> None:
        """The thief gets its share, and not what others were to get."""

    monkeypatch.setitem(FAULTS, "theft", steal)
    monkeypatch.setattr(Post, "leave", nobody_leaves)
    monkeypatch.setattr(run, "GONE", 10.0)
    with (tmp_path / "stderr").open("w") as errors:
        assert not run.Soak(tmp_path, errors, 1, ["theft"], small_disk=False).run(1)
    said = capsys.readouterr().out
    assert "LOST 1 of orders/" in said and " 1 lost, 1 rounds" in said, said
    assert "seed 1: FAILED, 1 problems" in said, said


def test_an_unknown_fault_is_wrong_usage() -> None:
    done = soak("kill-everything", seconds=1)
    assert done.returncode == 2 and all(name in done.stderr for name in FAULTS)
