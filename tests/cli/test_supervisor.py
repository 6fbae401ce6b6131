"""The supervisor with stand-ins for the services: start, ready line, restarts, brokers on demand, end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.identity.processes.credentials import Peers, read_credential
from enmasse.identity.processes.operator import OPERATOR, SECRET_FILE, secret_file
from enmasse.identity.processes.roles import Peer, Role
from enmasse.supervisor.plan.datadir import DataDir, end_orphans
from tests.cli.running import Up, address, alive, configured, enmasse, order_before, wait_for
from tests.kit.waiting import DEADLINE

FIXED = ["configserv", "ragent", "storage_controller", "console", "router-0"]


def start(config: Path, tmp_path: Path) -> Up:
    return Up(config, tmp_path / "data", fake=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A suite for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("shared")
    with start(configured(folder), folder) as up:
        up.feed(address("a"))
        yield up.until_ready()


@pytest.fixture
def standing(shared: Up) -> Up:
    """The shared suite: ready, and nothing is told on its stderr."""
    wait_for(lambda: shared.status()["ready"])
    shared.errors.clear()
    return shared


def test_ready_line_once_after_components_and_addresses(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        wait_for(lambda: len(up.lines) >= 4)  # configserv cannot be ready: its feed has not spoken
        up.feed(address("a", ready=False, phase="Configuring"))
        wait_for(lambda: len(up.lines) == 5)
        wait_for(lambda: up.status()["addresses"])
        assert "EnMasse is ready" not in up.lines
        assert not up.status()["ready"]
        up.feed(address("a"))
        up.until_ready()
        assert sorted(line.split(" is ready (pid")[0] for line in up.lines[:5]) == sorted(FIXED)
        assert up.lines[5] == "EnMasse is ready"
        up.feed(address("a", ready=False, phase="Configuring"))
        wait_for(lambda: not up.status()["ready"])
        up.feed(address("a"))
        wait_for(lambda: up.status()["ready"])
        assert up.end() == 0
        assert up.lines.count("EnMasse is ready") == 1


def test_a_failed_address_does_not_hang_the_start_and_is_told(empty_config: Path, tmp_path: Path) -> None:
    error = {"file": "addresses.json", "entry": "bad", "field": "flavor", "line": 3, "reason": "unknown", "since": ""}
    with start(empty_config, tmp_path) as up:
        up.feed(address("bad", ready=False, phase="Failed", message="unknown flavor"), errors=(error,))
        up.until_ready()
        up.reports("addresses.json:3: entry 'bad', field 'flavor': unknown")
        up.reports("address bad is Failed: unknown flavor")
        wait_for(lambda: up.status()["ready"], what="ready: errors do not change it")


def test_status_json_has_exactly_the_schema(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed(address("a"))
        up.until_ready()
        status = up.status()
        brief = ["schema", "ready", "settled", "degraded", "config"]
        assert list(status) == [
            *brief,
            "components",
            "addresses",
            "errors",
            "ca",
            "insecure",
            "certificates",
            "listeners",
        ]
        assert [c["name"] for c in status["components"]] == FIXED
        for component in status["components"]:
            fields = ["name", "kind", "engine", "pid", "ready", "leaving", "redundant", "restarts", "ended"]
            assert list(component) == [*fields, "endedAt", "since", "endpoints", "counts", "detail"]
            assert str(up.data / "run" / f"{component['name']}.json") in Path(
                f"/proc/{component['pid']}/cmdline"
            ).read_text().split("\0")
        assert up.component("router-0")["endpoints"]["amqp"] == f"127.0.0.1:{5672 + up.offset}"


@pytest.mark.parametrize("name", FIXED)
def test_a_killed_service_is_not_ready_at_once_and_comes_back(name: str, standing: Up) -> None:
    before = standing.component(name)
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(lambda: not alive(before["pid"]))
    after = standing.component(name)
    assert not after["ready"] or after["pid"] != before["pid"]
    wait_for(lambda: standing.component(name)["restarts"] == 1)  # without the console the suite stays ready
    wait_for(lambda: standing.status()["settled"])
    after = standing.component(name)
    assert after["pid"] != before["pid"] and after["since"] > before["since"]
    assert after["ended"] == "killed by SIGKILL"
    standing.reports(f"{name}: killed by SIGKILL; starting again")


def test_files_deleted_by_hand_are_made_again(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed(address("a"))
        up.wish("broker-a")
        up.until_ready()
        wait_for(lambda: up.facts().get("broker-a", {}).get("ready") and up.status()["ready"])
        for folder in ("run", "logs"):  # renamed first: a file that a service writes meanwhile would keep the folder
            (up.data / folder).rename(tmp_path / f"deleted-{folder}")
            shutil.rmtree(tmp_path / f"deleted-{folder}")
        wait_for(secret_file(up.data).exists)
        pids = up.pids()
        for name in ("storage_controller", "broker-a"):
            os.kill(pids[name], signal.SIGKILL)
        wait_for(lambda: all(up.runs(name, after=pids[name]) for name in ("storage_controller", "broker-a")))
        wait_for(lambda: up.status()["ready"])
        actual = up.data / "run" / "actual.json"
        wait_for(lambda: up.facts().get("broker-a", {}).get("ready"))
        actual.unlink()  # a storage controller that starts reads from it what runs
        os.kill(up.pids()["storage_controller"], signal.SIGKILL)
        wait_for(actual.exists)


def test_a_service_that_keeps_dying_is_restarted_with_growing_delays(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        up.order("ragent", die=7)
        wait_for(lambda: up.component("ragent")["restarts"] >= 4)
        assert not up.status()["settled"]
        died = "ragent: ended with status 7 (fake: told to die; see "
        wait_for(lambda: len([line for line in up.errors if line.startswith(died)]) >= 3)
        told = [line for line in up.errors if line.startswith(died)]
        assert [line.rpartition("; ")[2] for line in told[:3]] == [
            "starting again", "starting again in 0.1 s", "starting again in 0.5 s",
        ]  # fmt: skip
        up.order("ragent")
        wait_for(lambda: up.status()["settled"])


def test_a_service_that_says_not_ready(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        up.order("router-0", ready=False)
        wait_for(lambda: up.component("router-0")["detail"] == "told to say so")
        assert not up.status()["ready"]
        assert up.component("router-0")["restarts"] == 0
        assert up.http("/healthz")[0] == 503


def test_brokers_come_change_and_go_as_the_folder_says(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        up.wish("broker-a")
        wait_for(lambda: up.runs("broker-a"))
        fact = wait_for(lambda: ready_fact(up, restarts=0))
        assert sorted(fact) == ["detail", "host", "kind", "name", "pid", "port", "ready", "restarts", "settings"]
        assert fact["settings"] == {"data_dir": None}, "as they were wished for"
        assert (fact["name"], fact["kind"], fact["restarts"]) == ("broker-a", "broker", 0)
        assert 20000 <= fact["port"] < 32768

        os.kill(fact["pid"], signal.SIGKILL)  # restarted on the same port
        assert wait_for(lambda: ready_fact(up, restarts=1))["port"] == fact["port"]

        pid = up.pids()["broker-a"]
        settings = {"data_dir": None, "global_max_size": 1000}
        up.wish("broker-a", settings=settings)  # another setting: started anew
        wait_for(lambda: up.runs("broker-a", after=pid))
        assert json.loads((up.data / "run" / "broker-a.json").read_text())["global_max_size"] == 1000
        assert wait_for(lambda: ready_fact(up, restarts=0, settings=settings))["port"] == fact["port"]

        pid = up.pids()["broker-a"]
        (up.data / "desired" / "broker-a.json").write_text("{ half")  # not a wish withdrawn
        up.wish("broker-b")
        wait_for(lambda: "broker-b" in up.pids())
        assert up.pids()["broker-a"] == pid
        up.reports("broker-a.json: JSON is malformed")

        (up.data / "desired" / "broker-a.json").unlink()
        wait_for(lambda: "broker-a" not in up.pids())
        wait_for(lambda: not alive(pid))
        wait_for(lambda: list(up.facts()) == ["broker-b"])


def ready_fact(up: Up, **expected: object) -> dict[str, Any]:
    """What the storage controller is told of broker-a, once that is ready with these values; empty before."""
    fact = up.facts().get("broker-a", {})
    return fact if all(fact.get(key) == value for key, value in {"ready": True, **expected}.items()) else {}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("evil", {"kind": "router"}, "kind: expected one of ['artemis', 'broker']"),
        ("evil", {"kind": "../../evil"}, "kind: expected one of ['artemis', 'broker']"),
        ("evil", {"name": "other"}, "name: expected 'evil'"),
        ("evil", {"schema": 2}, 'expected an object with "schema": 1'),
        ("evil", {"settings": []}, "settings: expected an object"),
        ("router-0", {}, "belongs to another process"),
    ],
)
def test_a_wish_that_is_none_starts_nothing(name: str, changes: dict[str, object], reason: str, standing: Up) -> None:
    standing.wish(name, **changes)
    standing.reports(reason)
    assert sorted(standing.pids()) == sorted(FIXED)
    (standing.data / "desired" / f"{name}.json").unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_status_0_and_no_child_is_left(number: int, empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.wish("broker-a")
        up.until_ready()
        wait_for(lambda: len(up.pids()) == 6)
        pids = up.pids()
        assert up.end(number) == 0
        assert not [name for name, pid in pids.items() if alive(pid)]


def test_a_signal_during_the_start(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        wait_for(lambda: (up.data / "run" / "children.json").exists())
        assert up.end() == 0


def test_a_child_that_does_not_end_is_killed_by_a_second_signal(empty_config: Path, tmp_path: Path) -> None:
    order_before(tmp_path / "data", "configserv", deaf=True)
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        pids = up.pids()
        deaf = pids.pop("configserv")
        up.process.terminate()
        wait_for(lambda: not any(alive(pid) for pid in pids.values()))
        assert alive(deaf)
        assert up.end() == 0
        assert not alive(deaf)


def test_a_second_signal_starts_nothing_again(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.wish("broker-a")
        up.until_ready()
        wait_for(lambda: len(up.pids()) == 6)
        pids = up.pids()
        deaf = ("storage_controller", "router-0", "broker-a")  # which are ended one after the other
        for name in deaf:
            up.order(name, deaf=True)
            os.kill(pids[name], signal.SIGKILL)
        wait_for(lambda: all(up.runs(name, after=pids[name]) for name in deaf))
        wait_for(lambda: all(any(f"{name}: killed" in line for line in up.errors) for name in deaf))
        pids = up.pids()
        before = len(up.errors)
        up.process.terminate()
        wait_for(lambda: not alive(pids["ragent"]))
        assert up.end() == 0
        assert not [name for name, pid in pids.items() if alive(pid)]
        assert not [line for line in up.errors[before:] if "starting again" in line], up.errors


def test_children_die_with_a_killed_supervisor_and_it_starts_again(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        pids = up.pids()
        up.process.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids.values()))
    with Up(empty_config, tmp_path / "data", fake=True, offset=up.offset) as again:
        again.until_ready()


def test_children_that_a_killed_supervisor_left_are_ended(empty_config: Path, tmp_path: Path) -> None:
    run = tmp_path / "data" / "run"
    run.mkdir(parents=True)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(run / "router-0.json")])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    # A child of ours stays a zombie until it is waited for: somebody has to.
    threading.Thread(target=left.wait, daemon=True).start()
    (run / "children.json").write_text(json.dumps([left.pid, other.pid, 999_999_999]))
    try:
        with start(empty_config, tmp_path) as up:
            up.feed()
            up.until_ready()
            assert left.wait(DEADLINE) == -signal.SIGKILL
            assert other.poll() is None
    finally:
        left.kill()
        other.kill()
        other.wait()


def test_the_data_directory_is_locked(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        with Up(empty_config, tmp_path / "data", fake=True) as second:
            assert second.ended() == 2
        assert f"is in use by process {up.process.pid} (enmasse up)" in "".join(second.errors)
        assert "--data" in "".join(second.errors)
        wait_for(lambda: up.status()["ready"], what="the first one to be ready still")


def test_ports_in_use(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        with Up(empty_config, tmp_path / "data2", fake=True, offset=up.offset) as second:
            assert second.ended() == 2
        told = "".join(second.errors)
        assert f"port {8079 + up.offset} (ADMIN) is in use by" in told and f"(pid {up.process.pid})" in told
        assert "--port-offset" in told
    with socket.create_server(("127.0.0.1", 5672 + up.offset)):
        with Up(empty_config, tmp_path / "data2", fake=True, offset=up.offset) as third:
            assert third.ended() == 2
        assert f"port {5672 + up.offset} (AMQP) is in use by" in "".join(third.errors)
        assert not (tmp_path / "data2" / "run" / "configserv.json").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"format": 99}', "has format 99, written by a newer EnMasse"),
        ("{", 'expected {"format": 1}'),
        ('{"format": true}', 'expected {"format": 1}'),
    ],
)
def test_a_data_directory_of_another_version(content: str, reason: str, empty_config: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format.json").write_text(content)
    with start(empty_config, tmp_path) as up:
        assert up.ended() == 2
    assert reason in "".join(up.errors)
    assert (tmp_path / "data" / "format.json").read_text() == content


def test_a_data_directory_that_is_a_file(empty_config: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with start(empty_config, tmp_path) as up:
        assert up.ended() == 2
    assert f"data directory {tmp_path / 'data'} is not a directory" in "".join(up.errors)


def test_scale_and_force_over_http(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed(address("a"))
        up.until_ready()
        assert up.http("/api/scale", {"service": "router", "count": 1}) == (
            200, {"accepted": True, "message": "router runs 1 process already"},
        )  # fmt: skip
        for service, count, reason in (
            ("router", 0, "cannot run without router"),
            ("ragent", 3, "controller"),
            ("broker", 3, "BROKERS"),
            ("broker", 0, "BROKERS"),
            ("nonsense", 1, "no service 'nonsense'"),
        ):
            code, answer = up.http("/api/scale", {"service": service, "count": count})
            assert code == 409 and reason in answer["message"], answer
            done = enmasse("scale", f"{service}={count}", "--port-offset", up.offset)
            assert done.returncode == 1 and reason in done.stderr
        assert enmasse("scale", "ragent=1", "--port-offset", up.offset).returncode == 0
        body: object
        for body in ({}, {"service": "router"}, {"service": "router", "count": -1}, [], "x", '{"count": ', None):
            assert up.http("/api/scale", body, method="POST", Content_Type="application/json")[0] == 400
        assert up.http("/api/force", {"addresses": ["a", "b"]})[0] == 200
        assert json.loads((up.data / "forced.json").read_text()) == ["a", "b"]
        assert up.http("/api/force", {"addresses": []})[0] == 400
        assert up.http("/api/force", {"addresses": ["\ud800"]})[0] == 400
        for path, body in (("scale", {"service": "router", "count": 1}), ("force", {"addresses": ["a"]})):
            code, answer = up.http(f"/api/{path}", {**body, "more": 1})
            assert code == 400 and "unknown field 'more'" in answer["message"], answer


def test_what_http_clients_do_wrong_is_not_told_on_stderr(standing: Up) -> None:
    wrong = {b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n": b"431", b"nonsense\r\n\r\n": b"400"}
    for request, status in wrong.items():
        with socket.create_connection(("127.0.0.1", 8079 + standing.offset), 60) as client:
            client.sendall(request)
            assert client.recv(12) == b"HTTP/1.1 " + status
    with socket.create_connection(("127.0.0.1", 8079 + standing.offset), 60) as client:
        client.sendall(
            b"POST /api/force HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"
        )
        assert client.recv(12) == b"HTTP/1.1 100"
    wait_for(lambda: standing.http("/healthz")[0] == 200)
    assert not [line for line in standing.errors if "Traceback" in line or "Error" in line], standing.errors


def test_web_pages_cannot_order_or_read_anything(standing: Up) -> None:
    port = 8079 + standing.offset
    order = {"service": "router", "count": 1}
    assert standing.http("/api/scale", order, Host=f"evil.example:{port}")[0] == 403
    assert standing.http("/api/status", Host="evil.example")[0] == 403
    assert standing.http("/api/scale", order, Content_Type="text/plain")[0] == 415
    assert standing.http("/api/scale", order, Origin="http://evil.example")[0] == 403
    assert standing.http("/api/scale", order, Origin="null")[0] == 403
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert standing.http("/api/scale", order, Host=host)[0] == 200
    assert standing.http("/api/scale", order, Origin=f"http://localhost:{port}")[0] == 200
    assert standing.http("/api/scale", method="OPTIONS", Origin="http://evil.example")[0] == 403
    assert standing.http("/api/scale", "x" * 2_000_000)[0] == 413


def test_only_who_has_the_operators_secret_reads_and_orders(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        secret = secret_file(up.data).read_text().strip()
        assert secret_file(up.data).stat().st_mode & 0o777 == 0o600
        wrong = (
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {secret}x",
            f"Bearer {secret[:-1]}",
            f"Basic {secret}",
            "Bearer \xff",
        )
        for sent in wrong:
            for path in ("/api/status", "/api/ready", "/metrics", "/nothing"):
                assert up.http(path, Authorization=sent)[0] == 401, (path, sent)
            assert up.http("/api/scale", {"service": "router", "count": 1}, Authorization=sent)[0] == 401
            assert up.http("/api/force", {"addresses": ["a"]}, Authorization=sent)[0] == 401
        for path in ("/livez", "/readyz", "/healthz", "/api/suite"):
            assert up.http(path, Authorization="")[0] == 200
        assert up.http("/api/status", Authorization=f"Bearer {secret}")[0] == 200
        files = [file for file in up.data.rglob("*") if file.is_file()]
        holding = {file.name for file in files if secret in file.read_text(errors="replace")}
        assert holding == {SECRET_FILE}  # in no log, settings file or list of peers
        assert secret not in "".join((*up.lines, *up.errors))
        done = enmasse("status", "--port-offset", up.offset)
        assert done.returncode == 0, done.stderr
        secret_file(up.data).chmod(0)
        if os.geteuid() != 0:  # root reads it in any case
            done = enmasse("status", "--port-offset", up.offset)
            assert done.returncode == 4 and "cannot read" in done.stderr
        up.end()
        assert not secret_file(up.data).exists()


def test_each_start_of_a_process_has_a_secret_of_its_own(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed()
        up.until_ready()
        folder = up.data / "run"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir() if file.is_file()} == {0o600}
        before = read_credential(folder / "ragent.credential")
        assert (before.name, before.role) == ("ragent", Role.AGENT)
        peers = Peers(folder / "peers.verifiers")
        assert peers.peer("ragent") == Peer("ragent", Role.AGENT)
        assert peers.peer(OPERATOR) == Peer(OPERATOR, Role.OPERATOR)
        pid = up.pids()["ragent"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: up.runs("ragent", after=pid))
        assert read_credential(folder / "ragent.credential").secret != before.secret


def test_metrics(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.feed(address('a"b', messages=7), address("c", ready=False, phase="Configuring", messages=None))
        wait_for(lambda: len(up.lines) == 5)
        wait_for(lambda: up.status()["addresses"])
        code, text = up.http("/metrics")
        assert code == 200
        assert "\nenmasse_ready 0.0\n" in text
        assert 'enmasse_component_up{kind="router",name="router-0"} 1.0\n' in text
        assert 'enmasse_component_restarts_total{kind="router",name="router-0"} 0.0\n' in text
        assert 'enmasse_addresses{phase="Configuring"} 1.0\n' in text
        assert 'enmasse_address_messages{address="a\\"b",type="queue"} 7.0\n' in text
        assert 'address="c"' not in text.split("enmasse_address_messages")[-1].split("enmasse_address_consumers")[0]
        rss = next(line for line in text.splitlines() if line.startswith("enmasse_component_resident"))
        assert float(rss.rpartition(" ")[2]) > 1_000_000


def test_two_suites_side_by_side(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "one", fake=True) as one, Up(empty_config, tmp_path / "two", fake=True) as two:
        one.feed()
        two.feed()
        one.until_ready()
        two.until_ready()
        ports = [set(json.loads((up.data / "run" / "ports.json").read_text()).values()) for up in (one, two)]
        assert not ports[0] & ports[1]


def test_stdout_that_nobody_reads_does_not_stop_it(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "data", fake=True, unread=True) as up:
        up.feed()
        wait_for(lambda: isinstance(status := up.try_status(), dict) and status["ready"])
        assert up.end() == 0


ENDING = """
import ctypes, os, socket, sys, threading
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A process whose first thread has ended: like one that is killed, it has no command line and still its port."""


def test_a_start_waits_for_the_ports_of_a_child_that_is_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataDir(tmp_path)
    data.run.mkdir()
    command = [sys.executable, "-c", ENDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None and stdout is not None
        port = int(stdout.readline())
        wait_for(lambda: not Path(f"/proc/{child.pid}/cmdline").read_bytes(), "its first thread has ended")
        (data.run / "children.json").write_text(json.dumps([child.pid]))
        opened = os.pidfd_open

        def and_let_it_end(pid: int) -> int:
            handle = opened(pid)
            stdin.close()
            return handle

        monkeypatch.setattr(os, "pidfd_open", and_let_it_end)
        end_orphans(data)
        socket.create_server(("127.0.0.1", port)).close()
