"""What every test of the broker shares."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from services.broker.storage.journal import journal
from services.broker.storage.maintenance import compaction
from tests.broker.fixtures import c, m
from tests.broker.harness import BrokerProcess
from tests.broker.model import LoudLog

__all__ = ["c", "m"]


@pytest.fixture(autouse=True)
def crashed_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A crash leaves a journal unclosed: its files are closed here, so that thousands of crashes fit in a process."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    scratch = str(tmp_path_factory.getbasetemp())
    for number in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith(scratch):
                os.close(int(number))


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """The process of the tests waits for no disk. What a power cut takes, the disks of disks.py take, above the calls
    that are left out here; brokers in processes of their own make them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda fd: None)
        yield


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One with the usual settings and a data directory, for the tests of a file."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    process.stop()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction at every opportunity, in tiny slices; what a callback raises fails the test."""
    monkeypatch.setattr(journal, "log", LoudLog())
    monkeypatch.setattr(compaction, "SLACK", 0)
    monkeypatch.setattr(compaction, "SPARSE", 0.95)
    monkeypatch.setattr(compaction, "SLICE_BYTES", 400)
