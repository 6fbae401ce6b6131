"""Random work on disks that lose and tear, cut off anywhere, also within compaction and within recovery."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .disks import LossyFiles, PowerCutError, TearingFiles
from .model import Pair

pytestmark = pytest.mark.usefixtures("eager")


def work(directory: Path, kind: type[LossyFiles], rng: random.Random, steps: int) -> Pair:
    def disk() -> LossyFiles:
        files = kind(rng)
        if rng.random() < 0.2:
            files.fuse = rng.randrange(12)  # the power goes while it starts, or soon after
        return files

    pair = Pair(directory, lambda: kind(rng), rng.choice((512, 2048)))
    pair.disk = disk

    def cut() -> None:
        assert isinstance(pair.files, LossyFiles)
        pair.files.power_cut()

    for _ in range(steps):
        assert isinstance(pair.files, LossyFiles)
        if rng.random() < 0.03 and pair.files.fuse is None:
            pair.files.fuse = rng.randrange(30)
        try:
            if rng.random() < 0.01:
                pair.restart()
            else:
                pair.random_step(rng)
        except PowerCutError:
            pair.crash(cut)
        if rng.random() < 0.02:
            pair.crash(cut)
    pair.disk = lambda: kind(rng)
    pair.crash(cut)
    return pair


@pytest.mark.parametrize("kind", [LossyFiles, TearingFiles])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 400))
def test_what_is_committed_comes_back_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, kind: type[LossyFiles], seed: int, steps: int
) -> None:
    pair = work(tmp_path_factory.mktemp("store"), kind, random.Random(seed), steps)
    pair.close()


@pytest.mark.parametrize("seed", range(4))
def test_space_comes_back_when_everything_is_removed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pair = work(tmp_path / "s", TearingFiles, rng, 500)
    for queue in list(pair.now.queues):
        for message in list(pair.now.queues[queue]):
            pair.remove(message, queue)
    pair.commit()
    for queue in list(pair.now.queues):
        pair.undefine(queue)
    pair.commit()
    pair.settle()
    pair.check_usage()
    assert pair.store.disk_bytes <= 3 * 2048
    pair.restart()
