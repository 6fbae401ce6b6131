"""`enmasse backup` and `restore`, with kills in their middle."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.cli.backups import manifest, private_broker
from enmasse.cli.backups.space_kept import copy_kept, in_redis
from enmasse.cli.backups.space_restore import _missing
from enmasse.model.names import AddressName
from tests.cli.running import ENMASSE, Up, enmasse, free_offset, wait_for
from tests.kit.waiting import DEADLINE

COUNT = 300
"""Messages that wait when the backup is made."""


def run(up: Up, *words: object, status: int = 0, input: str | None = None) -> str:
    done = enmasse(*map(str, words), "--port-offset", str(up.offset), input=input)
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def numbers(up: Up) -> list[int]:
    """Return the messages of the queue, which stay there."""
    lines = run(up, "receive", "myqueue", "--browse", "--json").splitlines()
    return [json.loads(line)["body"]["sequence"] for line in lines]


@pytest.fixture(scope="module")
def up(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A suite that holds messages, a session with messages and a retained message. Its data folder is in that of the
    configuration, as `enmasse init` suggests."""
    config = shutil.copytree(written, tmp_path_factory.mktemp("backup") / "config")
    with Up(config, config / "data", fake=False, options=()) as up:
        up.until_ready()
        run(up, "subscribe", "mytopic/#", "-i", "reader", "--session-expiry", "600", "--timeout", "0.1")
        run(up, "publish", "mytopic/kitchen", "21.5", "--retain")
        run(up, "send", "myqueue", "--count", COUNT)
        yield up
        assert up.end() == 0


@pytest.fixture(scope="module")
def made(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of it, which went on meanwhile: what came later is not in it."""
    folder = tmp_path_factory.mktemp("made") / "monday"
    found = json.loads(run(up, "backup", folder, "--json"))
    assert found["files"] > 5 and found["bytes"] > COUNT * 20
    assert not list(up.data.glob("*/backup")) + list(up.data.glob("brokers/*/backup"))
    return folder


def restored(made: Path, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = enmasse("restore", made, "--config", folder / "c", "--data", folder / "c" / "data")
    assert done.returncode == status, done.stderr
    return done


def test_a_suite_on_the_restored_folders_has_everything(up: Up, made: Path, tmp_path: Path) -> None:
    run(up, "send", "myqueue", "later")
    restored(made, tmp_path)
    config, data = tmp_path / "c", tmp_path / "c" / "data"
    assert (config / "addresses.json").read_bytes() == (up.config / "addresses.json").read_bytes()
    with Up(config, data, fake=False, options=()) as again:
        again.until_ready()
        assert numbers(again) == list(range(1, COUNT + 1))
        assert run(again, "subscribe", "mytopic/#", "-i", "reader", "--unsubscribe", "--no-retained").startswith(
            "21.5\n"
        )
        assert "mytopic/kitchen" in run(again, "retained", "list")
        killed_while_it_is_copied(again, tmp_path)
    with Up(config, data, fake=False, options=()) as again:
        again.until_ready()
        assert numbers(again) == list(range(1, COUNT + 1))
        assert again.end() == 0


def test_the_folders_that_are_named_may_be_those_of_the_running_suite(up: Up, tmp_path: Path) -> None:
    """As where ENMASSE_CONFIG and ENMASSE_DATA are set for all commands."""
    run(up, "backup", tmp_path / "made", "--config", up.config, "--data", up.data)
    assert json.loads((tmp_path / "made" / "manifest.json").read_text())["running"]
    (tmp_path / "config").mkdir()
    refused = run(up, "backup", tmp_path / "two", "--config", tmp_path / "config", "--data", up.data, status=1)
    assert "start.data.in-use" in refused
    variables = {"ENMASSE_CONFIG": str(up.config), "ENMASSE_DATA": str(up.data)}
    done = enmasse("restore", tmp_path / "made", "--space", "one", "--port-offset", up.offset, env=variables)
    assert done.returncode == 1 and "is the backup of a whole suite" in done.stderr


@contextmanager
def stuck(up: Up) -> Iterator[Path]:
    """The folder of a broker whose process never answers, so that a backup waits there in its middle."""
    folder = up.data / "brokers" / "zz"
    folder.mkdir()
    with (folder / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    shutil.rmtree(folder)


def test_a_folder_that_no_broker_uses_is_copied(up: Up, tmp_path: Path) -> None:
    """Of a broker that there is no longer, and that was killed while it made a copy."""
    folder = up.data / "brokers" / "zz"
    (folder / "backup").mkdir(parents=True)
    for name in ("LOCK", "FORMAT", "1.journal", "backup/1.journal"):
        (folder / name).write_text(name)
    run(up, "backup", tmp_path / "b")
    copy = tmp_path / "b" / "data" / "brokers" / "zz"
    assert {path.name for path in copy.iterdir()} == {"LOCK", "FORMAT", "1.journal"}
    shutil.rmtree(folder)


def killed_while_it_is_copied(up: Up, tmp_path: Path) -> None:
    """SIGKILL of the suite: the command ends, and its copy is not taken for a backup."""
    target = tmp_path / "lost"
    command = [ENMASSE, "backup", str(target), "--port-offset", str(up.offset)]
    with stuck(up) as other, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (other / "backup").exists(), "the middle of the backup")
        up.process.kill()
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1 and "[backup.data.failed]" in err and "the suite has ended" in err
    assert "[backup.files.damaged]" in restored(target, tmp_path / "none", status=1).stderr


def test_after_sigkill_of_the_command_a_new_backup_succeeds(up: Up, tmp_path: Path) -> None:
    command = [ENMASSE, "backup", str(tmp_path / "killed"), "--port-offset", str(up.offset)]
    with stuck(up) as other, subprocess.Popen(command) as process:
        wait_for(lambda: (other / "backup").exists(), "the middle of the backup")
        busy = run(up, "backup", tmp_path / "second", status=1)
        assert "another backup of this suite is being made" in busy
        process.kill()
    broker = next(path.parent for path in up.data.glob("brokers/*/LOCK"))
    (broker / "backup").mkdir()  # as if it had been killed there
    store = up.data / "subserv" / "backup"
    store.mkdir()
    for half in (broker / "backup" / "1.journal", store / "store.new"):
        half.write_text("half")  # as if it had been killed while it deleted that, or the process while it made that
    assert "[backup.files.damaged]" in restored(tmp_path / "killed", tmp_path, status=1).stderr
    assert "[backup.folder.in-use]" in run(up, "backup", tmp_path / "killed", status=1)
    run(up, "backup", tmp_path / "next")
    restored(tmp_path / "next", tmp_path)


def test_a_restore_that_was_killed_is_repeated(made: Path, tmp_path: Path) -> None:
    config = tmp_path / "c"
    command = [ENMASSE, "restore", str(made), "--config", str(config), "--data", str(config / "data")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: config.exists() or process.poll() is not None, "the configuration")
        process.send_signal(signal.SIGKILL)
    if not (config / "data").exists():  # it had not ended yet
        restored(made, tmp_path)
    shutil.rmtree(config / "data")
    left = config / "data.restoring"
    left.mkdir()
    (left / "half").write_text("x")
    restored(made, tmp_path)
    assert not left.exists() and (config / "data" / "format.json").exists()
    assert not (config / "data" / "half").exists()


DAMAGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "config" / "addresses.json").write_text("{}"),
    lambda folder: (folder / "data" / "format.json").unlink(),
    lambda folder: (folder / "data" / "more").touch(),
    lambda folder: (folder / "manifest.json").write_text("{"),
    lambda folder: (folder / "manifest.json").write_text('{"schema": 1, "started": "", "files": {"a": 1}}'),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_changes_nothing(made: Path, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    copy = shutil.copytree(made, tmp_path / "copy")
    damage(copy)
    assert "[backup.files.damaged]" in restored(copy, tmp_path, status=1).stderr
    assert not (tmp_path / "c").exists()


def test_folders_that_hold_something_are_left_alone(made: Path, tmp_path: Path) -> None:
    (tmp_path / "c" / "data").mkdir(parents=True)
    (tmp_path / "c" / "data" / "mine").write_text("x")
    done = restored(made, tmp_path, status=1)
    assert len(done.stderr.splitlines()) == 1 and "is not empty; nothing was restored" in done.stderr
    assert os.listdir(tmp_path / "c" / "data") == ["mine"]
    (tmp_path / "c" / "data" / "mine").unlink()
    (tmp_path / "c" / "addresses.json").write_text("{}")
    assert "[backup.folder.in-use]" in restored(made, tmp_path, status=1).stderr


def test_a_stopped_suite_is_copied_and_kept_from_starting(config: Path, tmp_path: Path) -> None:
    offset = free_offset()
    data, place = tmp_path / "data", ("--port-offset", offset)
    for folders, reason in (
        (("--config", config, "--data", data), "is no data folder of EnMasse"),
        (("--config", tmp_path / "none", "--data", data), "no such configuration folder"),
        (("--config", config, "--data", tmp_path), "is inside what is copied"),
    ):
        nothing = enmasse("backup", tmp_path / "b", *folders, *place)
        assert nothing.returncode == 1 and reason in nothing.stderr
    with Up(config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()
        words = ("--config", config, "--data", tmp_path / "data", "--port-offset", offset)
        running = enmasse("backup", tmp_path / "c", *words)
        assert running.returncode == 1 and "[start.data.in-use]" in running.stderr
        assert up.end() == 0
    done = enmasse("backup", tmp_path / "d", *words)
    assert done.returncode == 0, done.stderr
    restored(tmp_path / "d", tmp_path / "new")


def test_what_the_pipeline_keeps_is_in_the_backup_of_a_stopped_suite_only(up: Up, made: Path, tmp_path: Path) -> None:
    (up.data / "spark").mkdir()  # of a pipeline that has run beside the suite
    (up.data / "spark" / "spool").write_text("x")
    said = run(up, "backup", tmp_path / "running")
    shutil.rmtree(up.data / "spark")
    assert "spool and checkpoint of the Spark pipeline are not in this backup" in said
    assert (tmp_path / "running" / "manifest.json").exists() and not (tmp_path / "running" / "data" / "spark").exists()
    restored(made, tmp_path)
    data = tmp_path / "c" / "data"
    (data / "spark").mkdir()
    (data / "spark" / "spool").write_text("x")
    words = ("--config", tmp_path / "c", "--data", data, "--port-offset", free_offset())
    done = enmasse("backup", tmp_path / "stopped", *words)
    assert done.returncode == 0 and "Spark" not in done.stderr
    assert (tmp_path / "stopped" / "data" / "spark" / "spool").read_text() == "x"


def test_a_file_that_is_replaced_while_its_folder_is_copied_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "stays").write_text("x")
    monkeypatch.setattr(manifest, "files_below", lambda folder: iter([Path(".stays.new"), Path("stays")]))
    manifest.copy_folder(tmp_path / "from", tmp_path / "to", live=True)
    assert os.listdir(tmp_path / "to") == ["stays"]
    with pytest.raises(FileNotFoundError):
        manifest.copy_folder(tmp_path / "from", tmp_path / "other")


@pytest.mark.parametrize("before", [False, True], ids=["always", "since the last start"])
def test_a_store_in_redis_is_missing_in_the_backup_of_a_space_with_a_warning(
    before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a file of an earlier start is in the data folder: what it has is old."""
    (tmp_path / "run").mkdir()
    store = {"kind": "redis", "url": "redis://127.0.0.1:1/0", "prefix": "enmasse"}
    (tmp_path / "run" / "subserv.json").write_text(json.dumps({"name": "subserv", "store": store}))
    if before:
        (tmp_path / "subserv").mkdir()
        (tmp_path / "subserv" / "store.db").touch()
    assert in_redis("subserv", tmp_path) and not in_redis("mqtt_lwt", tmp_path)
    assert list(copy_kept("one", tmp_path, tmp_path / "kept", tmp_path / "scratch", 0)) == []
    assert "warning: subserv keeps its data in Redis" in capsys.readouterr().err


def test_a_restore_of_a_space_names_what_it_waits_for_and_why() -> None:
    names = [AddressName(f"!!two/{name}") for name in ("a", "b", "c", "d")]
    rows = {names[0]: {"message": "full: the disk of broker b-0 has no room"}, names[1]: {"phase": "Configuring"}}
    expected = "a (full: the disk of broker b-0 has no room), b (Configuring), c (not known yet), 1 more"
    assert _missing(set(names), rows) == expected


def test_no_other_process_gets_a_port_of_the_broker_on_a_copy_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def late(command: tuple[str, ...], **more: Any) -> subprocess.Popen[bytes]:
        settings = json.loads(Path(command[-1]).read_text())
        for name in ("listen", "health"):
            host, _, port = settings[name].rpartition(":")
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))
        return start(command, **more)

    monkeypatch.setattr(subprocess, "Popen", late)
    data = tmp_path / "copy"
    data.mkdir()
    with private_broker.broker_on(data) as (port, _):
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()
