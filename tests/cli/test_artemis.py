"""`enmasse up --broker artemis`: what is refused before the start, and the suite with a real Artemis."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from enmasse.engines import mark as engine_mark
from enmasse.engines.artemis.broker import ArtemisProgram
from enmasse.engines.program import Spec
from enmasse.supervisor.desired_processes import check_data
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.datadir import DataDir, open_data_dir
from tests.artemis import ENVIRONMENT
from tests.cli.running import Up, alive, enmasse, wait_for

BROKER = ("--without", "mqtt", "--broker", "artemis")
QUEUE = "small-persisted-queue-0"


def test_no_java_to_run_it_with(config: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    nothing = {"PATH": str(tmp_path / "bin"), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path)}
    ended = enmasse("up", "--config", config, "--data", tmp_path / "data", env={**nothing, "ENMASSE_BROKER": "artemis"})
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "--broker artemis: java is not on PATH" in line and "--broker embedded" in line
    assert not (tmp_path / "data").exists()


def test_messages_of_the_other_engine_are_found_before_artemis_is_fetched(config: Path, tmp_path: Path) -> None:
    """There is no Java and no Maven to do that with."""
    data = open_data_dir(tmp_path / "data")
    desire(data, "broker", "b")
    data.close()
    folder = tmp_path / "data" / "brokers" / "b"
    folder.mkdir(parents=True)
    engine_mark.claim(folder, "embedded")
    nothing = {"PATH": str(tmp_path), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path)}
    ended = enmasse("up", "--config", config, "--data", tmp_path / "data", *BROKER, env=nothing)
    assert ended.returncode == 2
    assert f"{folder} holds the messages of a broker of engine embedded" in ended.stderr


@pytest.mark.slow
def test_a_suite(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "data"
    with Up(config, data, fake=False, options=BROKER) as up:
        up.until_ready()
        shown = up.component(QUEUE)
        assert (shown["kind"], shown["engine"]) == ("broker", "artemis")
        assert shown["detail"] == "Apache ActiveMQ Artemis 2.56.0"
        port = ("--port-offset", up.offset)
        for body in ("one", "two"):
            assert enmasse("send", "myqueue", body, *port).returncode == 0

        os.kill(shown["pid"], signal.SIGKILL)
        wait_for(lambda: up.runs(QUEUE, after=shown["pid"]), "the broker runs again")
        again = up.component(QUEUE)
        assert again["endpoints"] == shown["endpoints"]
        assert enmasse("receive", "myqueue", "--count", 1, *port).stdout == "one\n"
        wait_for(lambda: messages(up) == 1, "the broker knows that it was accepted")  # else it may come once more
        up.end(signal.SIGKILL)
        wait_for(lambda: not alive(again["pid"]), what="it ends with its parent")

    other = enmasse("up", "--config", config, "--data", data, "--port-offset", up.offset)
    assert other.returncode == 2
    assert f"{data}/brokers/{QUEUE} holds the messages of a broker of engine artemis" in other.stderr
    assert "--broker artemis" in other.stderr

    with Up(config, data, fake=False, offset=up.offset, options=BROKER) as up:
        up.until_ready()
        assert enmasse("receive", "myqueue", "--count", 1, *port).stdout == "two\n"
        pid = up.component(QUEUE)["pid"]
        assert up.end() == 0
        assert not alive(pid)
        log = [line for line in (data / "logs" / f"{QUEUE}.log").read_text().splitlines() if line.startswith("{")]
        assert all("AMQ601" not in json.loads(line)["event"] for line in log)  # nothing of what messages contain


def messages(up: Up) -> int:
    return next(int(each["messages"]) for each in up.status()["addresses"] if each["name"] == "myqueue")


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    opened = open_data_dir(tmp_path / "data")
    opened.close()
    return opened


def desire(data: DataDir, kind: str, data_dir: str | None) -> Path:
    """A file as the storage controller writes it, for a broker `b`."""
    body = {"schema": 1, "name": "b", "kind": kind, "flavor": "f", "settings": {"data_dir": data_dir}}
    (data.desired / "b.json").write_text(json.dumps(body))
    return data.desired / "b.json"


@pytest.mark.parametrize(("kind", "mark", "engine"), [("broker", None, "artemis"), ("artemis", "artemis", "embedded")])
def test_messages_of_one_engine_are_not_started_with_the_other(
    data: DataDir, kind: str, mark: str | None, engine: str
) -> None:
    file, folder = desire(data, kind, "b"), data.path / "brokers" / "b"
    folder.mkdir(parents=True)
    (folder / "CATALOGUE").touch()  # of before there were marks
    if mark is not None:
        (folder / engine_mark.FILE).write_text(f"{mark}\n")
    owner = mark or "embedded"
    with pytest.raises(
        StartError, match=f"{folder} holds .* engine {owner}, which engine {engine} cannot read.*--data"
    ):
        check_data(data, engine)
    assert file.exists()
    check_data(data, owner)
    assert file.exists()


@pytest.mark.parametrize("data_dir", [None, "b"])
def test_what_held_nothing_is_made_anew_by_the_other(data: DataDir, data_dir: str | None) -> None:
    file = desire(data, "broker", data_dir)
    check_data(data, "embedded")
    assert file.exists()
    check_data(data, "artemis")
    assert not file.exists()


def test_a_folder_of_the_embedded_broker_is_not_opened(tmp_path: Path) -> None:
    folder = tmp_path / "brokers" / "b"
    engine_mark.claim(folder, "embedded")
    engine_mark.claim(folder, "embedded")
    settings = {
        "data_dir": str(folder),
        "listen": "127.0.0.1:1",
        "global_max_size": 1,
        "settings": {},
        "log_level": "info",
    }
    with pytest.raises(OSError, match="holds the messages of a broker of engine embedded") as refused:
        ArtemisProgram("/home", "java").prepare(Spec("b", "broker", settings, engine="artemis"), tmp_path / "run")
    assert refused.value.filename == str(folder)
    assert [path.name for path in folder.iterdir()] == [engine_mark.FILE]
