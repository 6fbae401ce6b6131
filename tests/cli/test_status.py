"""`enmasse status`: exit statuses, JSON in every case, --wait; with stand-ins for the services."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from enmasse.cli.commands.suite import status
from enmasse.cli.commands.suite.status import file_hashes
from enmasse.cli.output.tables import _print_entry_points
from enmasse.identity.processes.operator import secret_file
from tests.cli.running import ENMASSE, Up, address, enmasse, free_offset, on_a_terminal, wait_for
from tests.kit.waiting import DEADLINE

FIELDS = [
    "schema",
    "ready",
    "settled",
    "degraded",
    "config",
    "components",
    "addresses",
    "errors",
    "ca",
    "insecure",
    "certificates",
    "listeners",
]


def test_not_running() -> None:
    offset = free_offset()
    done = enmasse("status", "--json", "--port-offset", offset)
    assert done.returncode == 4
    assert json.loads(done.stdout) == {
        "schema": 1, "ready": False, "settled": False, "degraded": [], "config": {}, "components": [], "addresses": [],
        "errors": [], "ca": None, "insecure": [], "certificates": [], "listeners": [],
    }  # fmt: skip
    assert f"not running: nothing listens on 127.0.0.1:{8079 + offset}" in done.stderr
    assert done.stderr.endswith(" [suite.http.unreachable]\n")
    done = enmasse("status", "--port-offset", offset)
    assert (done.returncode, done.stdout) == (4, "")
    done = enmasse("status", "--json", "--wait", "0.3", "--port-offset", offset)
    assert done.returncode == 4 and list(json.loads(done.stdout)) == FIELDS
    done = enmasse("scale", "router=1", "--port-offset", offset)
    assert done.returncode == 4 and "not running" in done.stderr


def test_something_else_on_the_port() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello")

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    offset = free_offset()
    server = HTTPServer(("127.0.0.1", 8079 + offset), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = enmasse("status", "--json", "--port-offset", offset)
        assert done.returncode == 4 and list(json.loads(done.stdout)) == FIELDS
        assert "not running" in done.stderr
        assert enmasse("scale", "router=1", "--port-offset", offset).returncode == 4
    finally:
        server.shutdown()
        server.server_close()


def test_a_suite_that_answers_late_is_not_taken_for_none(tmp_path: Path) -> None:
    """However short the wait: its machine is loaded."""
    status = {**{key: [] for key in FIELDS}, "schema": 1, "ready": False, "config": {}}
    given_up: list[str] = []
    secret_file(tmp_path).parent.mkdir()
    secret_file(tmp_path).write_text("secret\n")

    class Late(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            folders = {"config_dir": str(tmp_path), "data_dir": str(tmp_path)}
            answer = folders if self.path == "/api/suite" else status
            if answer is status and select.select([self.connection], [], [], 2)[0]:
                given_up.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    offset = free_offset()
    server = HTTPServer(("127.0.0.1", 8079 + offset), Late)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = enmasse("status", "--json", "--wait", "0.1", "--port-offset", offset)
        assert (done.returncode, json.loads(done.stdout), given_up) == (1, status, [])
        assert done.stderr.endswith("not ready after 0.1 s [suite.status.not-ready]\n")
    finally:
        server.shutdown()
        server.server_close()


def test_ready_and_not_ready(empty_config: Path, tmp_path: Path) -> None:
    error = {"file": "flavors.json", "entry": "f", "field": None, "line": 2, "reason": "[odd]", "since": ""}
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed(address("fine"), address("waits", ready=False, phase="Configuring", message="no [broker] yet"))
        wait_for(lambda: isinstance(status := up.try_status(), dict) and status["addresses"])
        done = enmasse("status", "--json", "--port-offset", up.offset)
        assert done.returncode == 1 and json.loads(done.stdout)["ready"] is False
        table = enmasse("status", "--port-offset", up.offset)
        assert table.returncode == 1 and "no [broker] yet" in table.stdout
        assert table.stdout.rstrip().endswith("not ready") and "router-0" in table.stdout
        up.feed(address("fine"), errors=(error,))
        up.until_ready()
        done = enmasse("status", "--json", "--port-offset", up.offset)  # errors do not change ready
        assert done.returncode == 0 and json.loads(done.stdout)["errors"] == [error]
        table = enmasse("status", "--port-offset", up.offset)
        assert table.returncode == 0 and "flavors.json:2: entry 'f': [odd]" in table.stdout
        assert table.stdout.endswith("\nready, but 1 error in the files\n")
        failed = [address(name, ready=False, phase="Failed", message="no flavor") for name in ("f", "g")]
        wrong = [{**error, "file": "addresses.json", "entry": entry["name"]} for entry in failed]
        up.feed(address("fine"), *failed, errors=tuple(wrong))
        wait_for(lambda: len(up.status()["addresses"]) == 3)
        table = enmasse("status", "--port-offset", up.offset)
        assert table.returncode == 0
        assert table.stdout.endswith("\nready, but 2 addresses Failed, 2 errors in the files\n")


def test_what_carries_no_messages_is_a_warning(empty_config: Path, tmp_path: Path) -> None:
    here = tmp_path / "data"
    with Up(empty_config, here, fake=True) as up:
        leaves = address("leaves", ready=False, phase="Terminating", message="waits for its 3 messages")
        up.feed(address("fine"), leaves, config=file_hashes(empty_config))
        wait_for(lambda: isinstance(status := up.try_status(), dict) and len(status["addresses"]) == 2)
        wait_for(lambda: all(each["ready"] for each in up.status()["components"]))
        up.order("ragent", ready=False)
        wait_for(lambda: not up.component("ragent")["ready"])
        found = up.status()
        assert (found["ready"], found["settled"]) == (True, False)
        assert found["degraded"] == ["ragent: told to say so"]
        assert up.http("/readyz") == (200, {"ready": True, "detail": "degraded: ragent: told to say so"})
        table = enmasse("status", "--port-offset", up.offset)
        assert table.returncode == 0
        assert table.stdout.endswith("\nready, but 1 address Terminating, degraded: ragent: told to say so\n")
        late = enmasse("status", "--wait", "0.5", "--port-offset", up.offset)
        assert late.returncode == 0, "it has waited for nothing, which is no failure"
        up.order("router-0", ready=False)
        wait_for(lambda: not up.status()["ready"])
        assert enmasse("status", "--port-offset", up.offset).returncode == 1


def test_wait_is_for_the_files_as_they_are(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed(address("a"), config=file_hashes(empty_config))
        up.until_ready()
        assert enmasse("status", "--wait", "60", "--port-offset", up.offset).returncode == 0
        (empty_config / "addresses.json").write_text('{"b": {"type": "anycast"}}')
        late = enmasse("status", "--json", "--wait", "0.5", "--port-offset", up.offset)
        assert late.returncode == 1 and json.loads(late.stdout)["ready"] is True
        assert "not applied yet: addresses.json" in late.stderr
        late = enmasse("status", "--wait", "0.5", "--port-offset", up.offset)
        assert late.returncode == 1
        assert late.stdout.endswith("\nnot ready with the present files: not applied yet: addresses.json\n")
        waiting = subprocess.Popen([ENMASSE, "status", "--wait", "60", "--port-offset", str(up.offset)])
        up.feed(address("b", ready=False, phase="Pending"), config=file_hashes(empty_config))
        wait_for(lambda: not up.status()["ready"])
        assert waiting.poll() is None
        up.feed(address("b"), config=file_hashes(empty_config))
        assert waiting.wait(DEADLINE) == 0


def test_wait_is_for_a_brokers_json_that_has_gone(empty_config: Path, tmp_path: Path) -> None:
    (empty_config / "brokers.json").write_text("{}")
    with_it = file_hashes(empty_config)
    (empty_config / "brokers.json").unlink()
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed(address("a", message="a note"), config=with_it)
        up.until_ready()
        late = enmasse("status", "--json", "--wait", "0.5", "--port-offset", up.offset)
        assert late.returncode == 1 and json.loads(late.stdout)["ready"] is True
        assert "not applied yet: brokers.json (its removal)\naddress a: a note" in late.stderr
        waiting = subprocess.Popen([ENMASSE, "status", "--wait", "60", "--port-offset", str(up.offset)])
        up.feed(address("a"), config=file_hashes(empty_config))
        assert waiting.wait(DEADLINE) == 0


def test_wait_says_that_nobody_makes_brokers(empty_config: Path, tmp_path: Path) -> None:
    """No storage controller runs where the suite was started with brokers made by hand."""
    (empty_config / "brokers.json").write_text("{}")
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed(address("a"), config=file_hashes(empty_config))
        up.until_ready()
        (empty_config / "brokers.json").unlink()
        late = enmasse("status", "--wait", "0.5", "--port-offset", up.offset)
        assert late.returncode == 1
        assert "(its removal)\nbrokers.json was there when the suite started" in late.stderr


def test_wait_gives_up_where_no_suite_runs_or_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "BEGIN_SECONDS", 0.1)
    looks: list[bool] = []

    def is_starting(_: int) -> bool:
        looks.append(len(looks) < 2)
        return looks[-1]

    monkeypatch.setattr(status, "_is_starting", is_starting)
    found, problem = status.fetch(free_offset(), 10 * DEADLINE)
    assert found is None and "`enmasse up" in problem[0] and "nothing listens" in problem[0]
    assert looks == [True, True, False], "it has waited as long as one was starting"
    assert capsys.readouterr().err.count("an `enmasse up` is starting; waiting for it for up to ") == 1


@pytest.mark.parametrize(
    ("options", "variable", "others"),
    [
        (("--port-offset", "{}"), "", False),
        (("--port_offset={}",), "1", False),
        ((), "{}", False),
        (("--options", "up.json"), "", True),
    ],
)
def test_a_suite_that_starts_is_a_process_with_its_offset(
    options: tuple[str, ...], variable: str, others: bool
) -> None:
    offset = free_offset()
    command = [sys.executable, "-c", "input()", "enmasse", "up", *(each.format(offset) for each in options)]
    environment = {**os.environ, "ENMASSE_PORT_OFFSET": variable.format(offset)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert status._is_starting(offset)
        of_process = status._offset_of(" ".join(command), Path(f"/proc/{process.pid}"))
        assert of_process == (None if others else offset), "a suite with another offset is not awaited"
        process.communicate(b"\n")


def test_wait_begins_before_the_suite_runs(empty_config: Path, tmp_path: Path) -> None:
    offset = free_offset()
    waiting = subprocess.Popen(
        [ENMASSE, "status", "--json", "--wait", "60", "--port-offset", str(offset)], stdout=subprocess.PIPE, text=True
    )
    with Up(empty_config, tmp_path / "data", fake=True, offset=offset) as up:
        up.feed(config=file_hashes(empty_config))
        out, _ = waiting.communicate(timeout=DEADLINE)
        assert waiting.returncode == 0 and json.loads(out)["ready"] is True


def test_wait_names_what_is_not_ready(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed(
            address("slow", ready=False, phase="Configuring", message="no broker"), config=file_hashes(empty_config)
        )
        wait_for(lambda: len(up.lines) >= 4)
        up.order("ragent", ready=False)
        wait_for(lambda: not up.component("ragent")["ready"])
        done = enmasse("status", "--wait", "0.5", "--port-offset", up.offset)
        assert done.returncode == 1
        assert "ragent: told to say so" in done.stderr
        assert "address slow: Configuring: no broker" in done.stderr


def test_colors_and_columns_on_a_terminal(empty_config: Path, tmp_path: Path) -> None:
    """A message does not take the room of what stands beside it, however long it is."""
    error = {"file": "flavors.json", "entry": "f", "field": None, "line": 2, "reason": "odd", "since": ""}
    small: dict[str, Any] = {
        "flavor": "small-persisted-queue",
        "message": "in memory: messages are lost with their broker",
    }
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        waits = address("slow", ready=False, phase="Configuring", message="a reason " * 30)
        up.feed(waits, *(address(f"queue-{n}", **small) for n in range(8)), errors=(error,))
        wait_for(lambda: isinstance(status := up.try_status(), dict) and len(status["addresses"]) == 9)
        colored = on_a_terminal("status", "--port-offset", up.offset, env={"TERM": "xterm", "NO_COLOR": ""})
        assert "\x1b[31mno" in colored and "\x1b[32myes" in colored and "\x1b[31mnot ready" in colored
        for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            shown = on_a_terminal("status", "--port-offset", up.offset, env={"TERM": "xterm", **plain})
            assert "\x1b" not in shown
        lines = shown.splitlines()
        assert "slow     queue  f                      no     Configuring  0         0" in lines
        assert "queue-0  queue  small-persisted-queue  yes    Active       0         0" in lines
        told = " ".join(line.strip() for line in lines)  # wrapped
        assert f"slow: {'a reason ' * 30}" in f"{told} " and max(map(len, lines)) <= 80
        assert f"queue-0, queue-1, queue-2, queue-3, queue-4 and 3 more: {small['message']}" in told
        assert "flavors.json:2: entry 'f': odd" in lines
        for arguments in (("address", "list", "--config", empty_config), ("--help",), ("bench", "--help")):
            assert "\x1b" not in on_a_terminal(*arguments, env={"TERM": "xterm", "NO_COLOR": "1"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("scale", "router"),
        ("scale", "router=x"),
        ("status", "--wait", "-1"),
        ("status", "--wait", "nan"),
        ("status", "--wait", "inf"),
        ("receive", "q", "--timeout", "nan"),
        ("send", "q", "x", "--ttl", "nan"),
        *((name, "") for name in ("send", "receive", "request", "reply", "bench")),
        ("bench", "q", "--seconds", "nan"),
        ("nix",),
    ],
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...]) -> None:
    done = enmasse(*arguments)
    assert done.returncode == 2 and "Usage:" in done.stderr


def test_listeners_of_an_address_space_are_shown_beside_those_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    def gateway(name: str, port: int) -> dict[str, Any]:
        endpoints = {"mqtts": f"127.0.0.1:{port}"}
        return {"name": name, "kind": "mqtt_gateway", "endpoints": endpoints}

    gateways = [gateway("mqtt_gateway-0", 8883), gateway("mqtt_gateway-team-1-0", 20001)]
    gateways[0]["endpoints"]["mqtts-2"] = "127.0.0.1:8885"
    listener = {"protocol": "mqtts", "at": "127.0.0.1:8885", "space": "team-2", "problem": ""}
    components = [*gateways, gateway("mqtt_gateway-team-1-1", 20001)]
    _print_entry_points({"components": components, "listeners": [listener]}, 0)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "MQTTS   mqtts://127.0.0.1:8883",
        "MQTTS   mqtts://127.0.0.1:8885  of the address space team-2",
        "MQTTS   mqtts://127.0.0.1:20001  of the address space team-1",
    ]
