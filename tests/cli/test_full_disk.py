"""A disk without a free byte: the suite starts, consumers drain, senders are told why, and it goes on with space."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.running import Up, enmasse, wait_for
from tests.cli.small_disk import Disk, small_disk

FLAVOR = {"type": "queue", "templateName": "queue-persisted"}
MESSAGES = 300


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "addresses.json").write_text(json.dumps({"q": {"type": "queue", "flavor": "f"}}))
    (folder / "flavors.json").write_text(json.dumps({"f": FLAVOR}))
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 128) as disk:
        yield disk


def runs(up: Up) -> bool:
    """Whether all runs that can without space on the disk."""
    status = up.try_status()
    if not isinstance(status, dict) or not status["addresses"]:
        return False
    return all(c["ready"] or "disk full" in c["detail"] for c in status["components"]) and all(
        a["ready"] for a in status["addresses"]
    )


def is_spare_whole(journal: Path) -> bool:
    """Whether the broker has its room for what must be written on a full disk."""
    return (journal / "SPARE").exists() and (journal / "SPARE").stat().st_size == 2 << 20


def wait_until_it_runs(up: Up) -> None:
    wait_for(lambda: runs(up), "all but the broker's room")


def wait_until_it_holds(up: Up, messages: int) -> None:
    wait_for(lambda: up.status()["addresses"][0]["messages"] == messages, what=f"{messages} messages in the status")


@pytest.mark.parametrize(("ending", "ports_taken"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
@pytest.mark.slow
def test_a_suite_starts_without_a_free_byte(ending: int, ports_taken: bool, config: Path, disk: Disk) -> None:
    data = disk.path / "data"
    with Up(config, data, fake=False) as up:
        up.until_ready()
        at = ("--port-offset", up.offset)
        assert enmasse("send", "q", "-m", MESSAGES, *at).returncode == 0
        assert up.end(ending) in (0, -signal.SIGKILL)
    disk.fill()
    with ExitStack() as stack:
        if ports_taken:  # so that every file at the start says something else
            for port in set(json.loads((data / "run" / "ports.json").read_text()).values()):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        up = stack.enter_context(Up(config, data, fake=False, offset=up.offset))
        wait_until_it_runs(up)
        disk.fill()
        wait_for(lambda: "0 MiB free" in enmasse("status", *at).stdout)
        shown = enmasse("status", *at)
        assert shown.returncode == 1 and "disk full" in shown.stdout, shown
        wait_for(lambda: "q: full: the disk of broker f-0 has no room" in enmasse("status", *at).stdout)
        done = enmasse("receive", "q", "--count", MESSAGES, "--timeout", 60, *at)
        assert (done.returncode, done.stdout.count("\n")) == (0, MESSAGES), done.stderr
        refused = enmasse("send", "q", "more", *at)
        assert refused.returncode == 1 and "disk space" in refused.stderr, refused
        disk.free()
        up.until_ready()  # by itself
        wait_for(lambda: "full" not in enmasse("status", *at).stdout)
        assert enmasse("send", "q", "more", *at).returncode == 0
        assert up.end() == 0


@pytest.mark.slow
def test_what_was_received_without_a_free_byte_does_not_come_back(config: Path, disk: Disk) -> None:
    """The broker's journal has room kept for it, and gives back what it held."""
    data = disk.path / "data"
    large = "x" * 2000
    with Up(config, data, fake=False) as up:
        up.until_ready()
        at = ("--port-offset", up.offset)
        journal = data / "brokers" / "f-0"
        wait_for(lambda: is_spare_whole(journal))
        assert enmasse("send", "q", large, "--count", 12_000, *at, "--timeout", 60).returncode == 0
        assert up.end() == 0
    for count, left in ((9_000, 3_000), (3_000, 0)):
        disk.fill()
        with Up(config, data, fake=False, offset=up.offset) as again:
            wait_until_it_runs(again)
            disk.fill()
            done = enmasse("receive", "q", "--count", count, "--timeout", 60, *at)
            assert (done.returncode, done.stdout.count("\n")) == (0, count), done.stderr
            wait_until_it_holds(again, left)
            wait_for(lambda: is_spare_whole(journal), what="whole segments have gone, and there is room again")
            again.end(signal.SIGKILL)
    disk.free()
    with Up(config, data, fake=False, offset=up.offset) as up:
        up.until_ready()
        assert up.status()["addresses"][0]["messages"] == 0
        assert up.end() == 0
    assert sum(file.stat().st_size for file in journal.glob("*.journal")) < 20 << 20


def test_what_must_be_written_has_its_room(disk: Disk) -> None:
    from enmasse.storage.files import SPARE, keep_spare, read_json, write_json

    keep_spare(disk.path)
    files = [disk.path / f"{number}.json" for number in range(20)]
    disk.fill()
    for _ in range(3):
        for file in files:
            write_json(file, {"name": file.name, "filling": "x" * 5000})
    assert [read_json(file)["name"] for file in files] == [file.name for file in files]
    assert (disk.path / SPARE).stat().st_size > 0
    disk.free()
    keep_spare(disk.path)
    assert (disk.path / SPARE).stat().st_size == 1 << 20


def test_without_room_and_without_spare(disk: Disk) -> None:
    from enmasse.storage.files import read_json, write_json

    write_json(disk.path / "a.json", 1)
    disk.fill()
    with pytest.raises(OSError, match="No space") as failed:
        write_json(disk.path / "a.json", "2" * 5000)
    assert failed.value.filename == str(disk.path / "a.json") and read_json(disk.path / "a.json") == 1
    assert sorted(path.name for path in disk.path.iterdir()) == ["a.json", "filler"]
