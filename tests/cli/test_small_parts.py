"""Parts of the supervisor that need no process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enmasse.cli.backups.space_kept import left_out
from enmasse.cli.commands.configuration.address import show
from enmasse.cli.commands.live import events
from enmasse.cli.commands.suite.logs import _names, shown
from enmasse.cli.commands.suite.scale import NAMES, _is_of
from enmasse.cli.commands.suite.status import command
from enmasse.cli.commands.suite.up import ComponentLevel, MqttLimit
from enmasse.cli.common import ADMIN_PORT, report
from enmasse.cli.configuration import cluster
from enmasse.cli.contexts.http import NotRunning, suite_info
from enmasse.cli.output import tables
from enmasse.cli.output.tables import age
from enmasse.http import health
from enmasse.metrics import OTHERS, counter, gauge, parse
from enmasse.metrics import text as exposition
from enmasse.process import process_usage
from enmasse.process.process_bounds import ProcessBounds
from enmasse.storage.disk_errors import disk_error
from enmasse.storage.files import read_json, write_json, write_text
from enmasse.supervisor import desired_processes, metrics, status
from enmasse.supervisor.children import logfile
from enmasse.supervisor.children.probe import Probe
from enmasse.supervisor.error_lines import error_lines
from enmasse.supervisor.feed import StatusFeed, _Changes
from enmasse.supervisor.plan.internal_ports import InternalPorts
from enmasse.supervisor.plan.own_routers import own_routers
from enmasse.testing import free_offset, free_ports, ports_of
from enmasse.text import named_as
from tests.cli.running import address, enmasse


def component(name: str, kind: str, *, ready: bool = True) -> dict[str, object]:
    return {
        "name": name,
        "kind": kind,
        "ready": ready,
        "leaving": False,
        "redundant": False,
        "pid": os.getpid(),
        "restarts": 0,
        "since": "",
        "endpoints": {},
        "counts": {},
        "detail": "",
    }


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk has no space left: free some (No space left on device)"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "give it the right"),
        (errno.ENOENT, "it was deleted or moved: put it back"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_errors_of_the_disk_say_what_to_do(number: int, words: str) -> None:
    assert words in disk_error(OSError(number, os.strerror(number), "/a"))


def test_logs_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    logfile.bound_log(path)  # none yet
    log = logfile.open_log(path)
    os.write(log, b"first\n" + b"x" * 100)
    logfile.bound_log(path, limit=200)
    assert path.stat().st_size == 106
    os.write(log, b"y" * 200)
    logfile.bound_log(path, limit=200)
    assert path.read_bytes() == b"" and (tmp_path / "x.log.1").read_bytes() == b"y" * 200
    os.write(log, b"\nafter\n\n")  # the child goes on at the file's new end
    os.close(log)
    assert path.read_bytes() == b"\nafter\n\n"
    assert logfile.last_line(path) == "after"
    assert logfile.last_line(tmp_path / "none") == ""


def test_a_log_is_bounded_where_nothing_can_be_kept_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    (tmp_path / "x.log.1").mkdir()
    path.write_bytes(b"x" * 300)
    logfile.bound_log(path, limit=200)
    assert path.read_bytes() == b""


def test_the_own_log_is_bounded(tmp_path: Path) -> None:
    log = logfile.OwnLog(tmp_path / "a.log", limit=100)
    for number in range(50):
        log.write(f"line {number:03}\n")
    kept = (tmp_path / "a.log.1").read_text() + (tmp_path / "a.log").read_text()
    assert kept.endswith("line 048\nline 049\n") and len(kept) < 250


@pytest.mark.parametrize("options", [(), ("--with", "http", "--with", "stomp")])
def test_ports_found_for_a_suite_are_its_own(options: tuple[str, ...]) -> None:
    offset = free_offset(options)
    for port in ports_of(options):
        assert not free_ports(port + offset), "somebody else looks for free ports"
        with socket.create_server(("127.0.0.1", port + offset)):  # as our servers do it
            pass


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1}, durable=True)
    assert read_json(path) == {"a": 1}
    with pytest.raises(TypeError):
        write_text(path, None)  # type: ignore[arg-type]  # wrong on purpose
    assert read_json(path) == {"a": 1} and os.listdir(tmp_path) == ["x.json"]
    path.write_text("{")
    assert read_json(path) is None and read_json(tmp_path / "none") is None


def test_readiness_follows_each_change_of_the_feed() -> None:
    feed, parts = StatusFeed("127.0.0.1:1"), [component("r", "router")]

    def ready(full: bool, *addresses: dict[str, Any], removed: tuple[str, ...] = ()) -> bool:
        errors = [{"file": "addresses.json", "entry": "wrong", "reason": "unknown flavor"}]
        texts = [msgspec.Raw(msgspec.json.encode(each)) for each in addresses]
        feed._taken(_Changes(schema=1, full=full, addresses=texts, removed=[*removed], errors=errors))
        assert feed.body is not None
        found = status.brief(parts, feed.body)
        assert status.merge(parts, {**feed.body, "unready": feed.body["addresses"]})["ready"] is found["ready"]
        return bool(found["ready"])

    assert not ready(True, address("a"), address("b", ready=False))
    assert ready(False, address("b"))
    assert not ready(False, address("a", ready=False), address("c", ready=False))
    assert not ready(False, address("a"))
    assert ready(False, removed=("c",))
    assert ready(False, address("wrong", ready=False, phase="Failed"))
    assert not ready(False, address("d", ready=False))
    assert ready(True, address("a"))


def test_merge() -> None:
    parts = [component("r", "router")]
    assert status.merge(parts, None)["ready"] is False  # nothing is known yet
    feed = {"schema": 1, "config": {"f": "1"}, "addresses": [address("a")], "errors": [{"file": "f", "reason": "r"}]}
    merged = status.merge(parts, feed)
    assert merged["ready"] is True and merged["config"] == {"f": "1"} and len(merged["errors"]) == 1
    assert status.merge([component("r", "router", ready=False)], feed)["ready"] is False
    assert status.merge(parts, feed | {"addresses": [address("a", ready=False)]})["ready"] is False
    assert status.merge(parts, feed | {"addresses": []})["ready"] is True
    failed = feed | {"addresses": [address("a", ready=False, phase="Failed")]}
    assert status.started(parts, [address("a", ready=False, phase="Failed")])
    assert status.merge(parts, failed)["ready"] is False  # a controller could not make it
    wrong = {"file": "addresses.json", "entry": "a", "reason": "unknown flavor"}
    assert status.merge(parts, failed | {"errors": [wrong]})["ready"] is True  # its entry is wrong, and always was
    assert not status.started(parts, [address("a", ready=False, phase="Pending")])
    assert not status.started([], [])


def test_scale() -> None:
    parts = [component("r", "router"), component("b0", "broker"), component("b1", "broker")]
    for wanted in (2, 3):
        accepted, said = status.scale(parts, "broker", ProcessBounds(wanted, wanted))
        assert not accepted and "change BROKERS" in said and "now 2 of all" in said
    parts += [component("c", "console")]
    assert status.scale(parts, "console", ProcessBounds(1, 1)) == (True, "console runs 1 process already")
    assert "enmasse up --with http`" in status.scale(parts, "http_gateway", ProcessBounds(1, 1))[1]


def test_which_processes_the_number_of_a_service_counts() -> None:
    for name, kind, counted in (
        ("small-persisted-queue-0", "broker", True),
        ("mqtt_gateway-1", "mqtt_gateway", True),
        ("mqtt_gateway-one-0", "mqtt_gateway", False),
        ("spark", "spark", True),
        ("ragent", "router", False),
    ):
        assert _is_of(component(name, name if kind == "router" else kind), kind) is counted, name


def test_error_lines() -> None:
    assert error_lines([{"file": "a.json", "entry": None, "field": None, "line": 3, "reason": "is not JSON"}]) == [
        "a.json:3: is not JSON"
    ]
    assert error_lines([{"file": "a.json", "entry": "q", "field": "flavor", "line": 3, "reason": "unknown"}]) == [
        "a.json:3: entry 'q', field 'flavor': unknown"
    ]


def test_metrics_are_bounded_and_their_sums_right() -> None:
    many = [address(f"a{i}", messages=i) for i in range(30)]
    failed = address("f", ready=False, phase="Failed", type=None, messages=None)
    merged = status.merge([component("r", "router")], {"addresses": [failed, *many]})
    text = exposition(metrics.families(merged, 10)).decode()
    shown = re.findall(r'^enmasse_address_messages{address="(.*)",type="(.*)"} (.*)$', text, re.MULTILINE)
    assert {name for name, _, _ in shown} == {*(f"a{i}" for i in range(20, 30)), OTHERS}
    assert sum(float(value) for _, _, value in shown) == sum(range(30))
    assert f"\nenmasse_messages {sum(range(30))}.0\n" in text
    assert 'enmasse_addresses{phase="Failed"} 1.0\n' in text
    assert process_usage.resident_bytes(None) == 0 and process_usage.resident_bytes(os.getpid()) > 0


def test_consumers_of_a_topic_include_mqtt_subscriptions_at_every_gateway() -> None:
    topics = [address("news", type="topic", consumers=2), address("!!one/news", type="topic", consumers=0)]
    line = 'enmasse_mqtt_topic_consumers{address="%s"%s} %d.0\n'
    first = (line % ("news", "", 3) + line % ("news", ',space="one"', 4) + line % (OTHERS, "", 5)).encode()
    answers = [("mqtt_gateway-0", first), ("mqtt_gateway-1", (line % ("news", "", 1)).encode()), ("broker", b"")]
    text = exposition(metrics.families(status.merge([], {"addresses": topics}), answers=answers)).decode()
    shown = set(re.findall(r"^enmasse_address_consumers{(.*)} (.*)$", text, re.MULTILINE))
    assert shown == {
        ('address="news",type="topic"', "6.0"), ('address="news",space="one",type="topic"', "4.0"),
        (f'address="{OTHERS}",type=""', "5.0"),
    }  # fmt: skip


def test_logs_of_all_brokers(tmp_path: Path) -> None:
    logs, desired = tmp_path / "logs", tmp_path / "desired"
    for path in (logs / "small-queue-1.log", logs / "router-0.log", desired / "small-queue-1.json"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert _names(logs, ("broker",)) == ["small-queue-1"]


def test_dashes_and_underscores_are_alike_in_names(tmp_path: Path) -> None:
    (tmp_path / "mqtt_gateway-0.log").touch()
    (tmp_path / "small-queue-1.log").touch()
    assert _names(tmp_path, ("mqtt-gateway", "small_queue-1")) == ["mqtt_gateway-0", "small-queue-1"]
    assert MqttLimit().convert("keep-alive=30", None, None) == ("keep_alive", 30)
    assert ComponentLevel().convert("mqtt-gateway=debug", None, None) == ("mqtt_gateway", "debug")
    assert named_as("http_gateways", NAMES) == "http-gateways" and named_as("rooters", NAMES) == "rooters"


def test_counts_of_services_are_metrics_and_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [component(f"mqtt_gateway-{i}", "mqtt_gateway") | {"counts": {"clients": i}} for i in (3, 4)]
    parts.append(component("subserv", "subserv") | {"counts": {"sessions": 2, "retained": 1, "other": 7}})
    merged = status.merge(parts, None)
    text = exposition(metrics.families(merged)).decode()
    assert 'enmasse_mqtt_clients{name="mqtt_gateway-3"} 3.0\n' in text and "other" not in text
    assert 'enmasse_mqtt_sessions{name="subserv"} 2.0\n' in text and "enmasse_mqtt_wills" not in text
    tables.print_status(merged, 0)
    shown = capsys.readouterr().out
    assert "4 clients\n" in shown and "2 sessions, 1 retained, 7 other\n" in shown


def test_status_shows_how_routers_reach_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    routes = {"b": {"cost": 1, "next": "b"}, "c": {"cost": 3, "next": "b"}}
    tables.print_status(status.merge([component("a", "router") | {"routes": routes}], None), None)
    assert "a reaches b (cost 1), c (cost 3, over b)\n" in capsys.readouterr().out


def test_status_says_that_consumers_of_topics_are_without_mqtt(capsys: pytest.CaptureFixture[str]) -> None:
    for parts in ([], [component("mqtt_gateway-0", "mqtt_gateway")]):
        tables.print_status(status.merge(parts, {"addresses": [address("news", type="topic", consumers=1)]}), None)
        assert (f"\n{tables.OF_BROKERS}\n" in capsys.readouterr().out) is bool(parts)


def test_names_of_others_do_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\x1b[2Jb", "c\nd", "e\0", "\u202ef", "g" * 5000]
    wrong = [address(name, ready=False, phase="Failed", message="no\x1b[31m") for name in names]
    tables.print_status(status.merge([], {"addresses": wrong}), None)
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown and "\x1b[31mn" not in shown and "\0" not in shown and "\u202e" not in shown
    for part in (r"a\x1b[2Jb", r"c\nd", r"e\x00", r"\u202ef", r": no\x1b[31m"):
        assert part in shown
    assert max(map(len, shown.splitlines()[:6])) < 200


def test_nor_do_they_outside_of_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = address("a\x1b[2J", ready=False, phase="Failed", message="no\x1b[31m")

    class Installation:
        def __init__(self, place: cluster.Place) -> None: ...
        def hashes(self) -> dict[str, str | None]:
            return {}

        def status(self) -> dict[str, Any]:
            return status.merge([], {"addresses": [wrong]})

        def parts(self, kind: str) -> list[cluster.Part]:
            return []

    monkeypatch.setattr(cluster, "Installation", Installation)
    show.main(["--namespace", "n", "--", wrong["name"]], standalone_mode=False)
    with pytest.raises(SystemExit):
        command.main(["--namespace", "n", "--wait", "0", "--json"], standalone_mode=False)
    shown = capsys.readouterr()
    assert r"a\x1b[2J: removed" in shown.out and r"message: no\x1b[31m" in shown.out
    assert r"address a\x1b[2J: Failed: no\x1b[31m" in shown.err
    assert "\x1b" not in shown.out + shown.err


def test_families_of_components_are_taken_over_each_series_with_its_process() -> None:
    async def ask() -> str:
        servers = []
        for broker in ("a", "b"):
            families = (
                gauge("artemis_lost_message_count", "Lost.", [({"broker": broker}, 2)]),
                gauge("artemis_message_count", "Stored.", [({"broker": broker}, 3)]),
                gauge("enmasse_ready", "The suite has one of its own.", [({}, 4)]),
                counter("enmasse_x_total", "Things.", [({}, 5)]),
            )
            servers.append(health.Health("127.0.0.1:0", partial(tuple, families)))
            await servers[-1].start()
        targets = [(f"p{n}", "127.0.0.1", int(each.address.rpartition(":")[2])) for n, each in enumerate(servers)]
        own = [gauge("enmasse_ready", "Ready.", [({}, 1)])]
        found = await asyncio.to_thread(metrics.ask, targets, "secret")
        for server in servers:
            await server.close()
        assert not metrics.of_components(await asyncio.to_thread(metrics.ask, targets, "secret"), own)
        return metrics.of_components(found, own).decode()

    text = asyncio.run(ask())
    lines = text.splitlines()
    assert [line for line in lines if line.startswith(("artemis", "enmasse_ready", "enmasse_x"))] == [
        'artemis_lost_message_count{process="p0",broker="a"} 2.0',
        'artemis_lost_message_count{process="p1",broker="b"} 2.0',
        'enmasse_x_total{process="p0"} 5.0',
        'enmasse_x_total{process="p1"} 5.0',
    ]
    assert lines.count("# TYPE enmasse_x_total counter") == 1
    families = {family.name for family in parse(text.encode())}
    assert {"enmasse_build_info", "enmasse_loop_lag_seconds"} <= families
    assert "enmasse_ready" not in families


def test_the_folder_desired_is_seen_when_they_change(tmp_path: Path) -> None:
    empty = desired_processes.look(tmp_path)
    write_json(tmp_path / "b.json", {"schema": 1, "name": "b", "kind": "broker", "flavor": "f", "settings": {"a": 1}})
    one = desired_processes.look(tmp_path)
    assert one != empty and desired_processes.look(tmp_path) == one
    write_json(tmp_path / "b.json", {"schema": 1, "name": "b", "kind": "broker", "flavor": "f", "settings": {"a": 2}})
    assert desired_processes.look(tmp_path) != one
    found, problems = desired_processes.read_desired(tmp_path, ())
    assert found["b"].settings == {"a": 2} and problems == {}
    (tmp_path / "b.json").unlink()
    assert desired_processes.look(tmp_path) == empty and desired_processes.read_desired(tmp_path, ()) == ({}, {})
    assert desired_processes.look(tmp_path / "none") == ()


def test_a_file_that_desires_nothing_hides_no_other_and_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "pipe.json")
    before = desired_processes.look(tmp_path)
    write_json(tmp_path / "b.json", {"schema": 1, "name": "b", "kind": "broker", "flavor": "f", "settings": {}})
    assert desired_processes.look(tmp_path) != before
    found, problems = desired_processes.read_desired(tmp_path, ())
    assert list(found) == ["b"] and sorted(problems) == ["deep", "folder", "pipe"]


@pytest.mark.parametrize(
    ("answer", "ready", "detail"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"ready": true, "detail": "", "endpoints": {"amqp": "h:1"}}', True, ""),
        (b'HTTP/1.1 503 No\r\n\r\n{"ready": false, "detail": "why"}', False, "why"),
        (b'HTTP/1.1 503 No\r\n\r\n{"ready": true}', False, ""),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", False, "health check failed: not a health answer"),
        (b"nonsense", False, "health check failed: that is not HTTP: peer unexpectedly closed connection"),
        (b"", False, "health check failed: the connection was closed without an answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20), False, "health check failed: answer too long"),
    ],
)
def test_probe(answer: bytes, ready: bool, detail: str) -> None:
    async def ask() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = await Probe("127.0.0.1", port).ask()
        assert (found.ready, found.detail) == (ready, detail)
        server.close()
        await server.wait_closed()
        assert await Probe("127.0.0.1", port).ask() == type(found)(False, "starting")

    asyncio.run(ask())


def test_a_probe_keeps_its_connection_while_that_lasts() -> None:
    async def ask() -> None:
        server = health.Health("127.0.0.1:0")
        await server.start()
        host, _, port = server.address.rpartition(":")
        probe = Probe(host, int(port))
        assert (await probe.ask()).detail == "starting"
        assert server.connections == 1
        server.set(True, "fine")
        found = await probe.ask()
        assert (found.ready, found.detail) == (True, "fine") and server.connections == 1
        probe.close()
        assert (await probe.ask()).ready
        await server.close()
        assert not (await probe.ask()).ready
        probe.close()

    asyncio.run(ask())


def test_ages() -> None:
    now = datetime.now(UTC)
    for seconds, text in ((5, "5s"), (65, "1m5s"), (7500, "2h5m"), (200_000, "2d7h")):
        assert age((now - timedelta(seconds=seconds)).isoformat()) == text
    assert age("when?") == "when?"


def test_very_many_errors_are_counted() -> None:
    errors = [{"file": "f", "entry": f"e{number}", "reason": "wrong"} for number in range(1000)]
    lines = error_lines(errors)
    assert len(lines) == 101 and lines[99] == "f: entry 'e99': wrong"
    assert lines[100] == "… and 900 more errors; `enmasse status --json` shows all"


def test_no_character_of_an_error_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files and texts of servers are in it."""
    report("first\x1b[2Jline\r\nüber 🎉")
    assert capsys.readouterr().err == "first\\x1b[2Jline\\r\nüber 🎉\n"


def test_a_wrong_entry_of_a_tenant_is_no_reason_not_to_be_ready() -> None:
    failed = [{"name": name, "phase": "Failed", "ready": False} for name in ("a", "!!one/b")]
    errors = [{"file": "addresses.json", "entry": "a"}, {"file": "spaces/one/addresses.json", "entry": "b"}]
    parts = [{"ready": True}]
    assert status.brief(parts, {"errors": errors, "unready": failed})["ready"]
    for missing in errors:
        kept = [each for each in errors if each is not missing]
        assert not status.brief(parts, {"errors": kept, "unready": failed})["ready"]
    same = [{"file": "addresses.json", "entry": "b"}, errors[0]]
    assert not status.brief(parts, {"errors": same, "unready": failed})["ready"]


@pytest.mark.parametrize(
    "words",
    [
        ("space", "add", "x"),
        ("space", "remove", "x"),
        ("address", "add", "y", "--type", "anycast", "--space", "x"),
        ("user", "add", "q", "--generate", "--space", "x"),
        ("user", "allow", "q", "send", "a", "--space", "x"),
    ],
)
def test_an_edit_in_a_space_without_a_running_suite_ends_with_the_message(words: tuple[str, ...]) -> None:
    ended = enmasse(*words, "--port-offset", free_offset())
    assert ended.returncode == 4 and ended.stderr.startswith("EnMasse is not running") and not ended.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("address", "list"),
        ("address", "remove", "a"),
        ("user", "add", "q", "--generate"),
        ("user", "allow", "q", "send", "a"),
        ("user", "remove", "q"),
        ("user", "list"),
        ("user", "check", "q", "send", "a"),
    ],
)
def test_a_space_is_never_that_of_a_folder(words: tuple[str, ...], tmp_path: Path) -> None:
    """Not of one that a variable names either, whose files are those of the default space."""
    (tmp_path / "addresses.json").write_text('{"a": {"type": "anycast"}}')
    (tmp_path / "users.json").write_text('{"q": {}}')
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    there = (*words, "--space", "x", "--port-offset", str(free_offset()))
    ended = enmasse(*there, env={"ENMASSE_CONFIG": str(tmp_path)})
    assert ended.returncode == 4 and ended.stderr.startswith("EnMasse is not running") and not ended.stdout
    ended = enmasse(*there, "--config", tmp_path)
    assert ended.returncode == 2 and "--space works on a running suite" in ended.stderr
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_backup_names_the_messages_that_it_has_not() -> None:
    assert left_out({"a": 3, "b": None, "c": 2}, {"a": 3, "c": 4}) == ""
    text = left_out({"a": 3, "b": 2}, {"a": 1})
    assert text == (
        "messages that are not durable, or were received meanwhile, are not in this backup: 2 of a, 2 of b."
    )
    assert "and more of 2 other queues" in left_out(dict.fromkeys("abcdefg", 1), {})


def test_routers_of_spaces_keep_their_names_and_are_never_more_than_there_may_be() -> None:
    first, missing = own_routers({"one": 1, "two": 1}, {}, 1)
    assert (first, missing) == ({"router-7": "one", "router-6": "two"}, [])
    assert own_routers({"a": 1, "two": 2}, first, 1) == ({"router-6": "two", "router-7": "a", "router-5": "two"}, [])
    assert own_routers({"two": 7}, first, 5) == ({"router-6": "two", "router-7": "two", "router-5": "two"}, ["two"])
    assert own_routers({"one": 1}, first, 8) == ({}, ["one"])


def test_a_suite_that_hangs_is_not_said_to_be_stopped() -> None:
    offset = free_offset()
    with socket.create_server(("127.0.0.1", ADMIN_PORT + offset)), pytest.raises(NotRunning) as caught:
        suite_info(offset, timeout=0.05)
    assert "does not answer" in str(caught.value) and "not running" not in str(caught.value)
    assert f"`enmasse status --port-offset {offset}`" in str(caught.value)


@contextlib.contextmanager
def port_of_the_next_run(file: Path, port: int) -> Iterator[int]:
    """Give the port of a suite that had this one in its last run."""
    write_json(file, {"router-one/amqp": port})
    ports = InternalPorts(file)
    yield ports.get("router-one/amqp")
    ports.close()


def test_a_port_is_kept_over_a_restart_while_the_system_remembers_its_last_connections(tmp_path: Path) -> None:
    ports = InternalPorts(tmp_path / "ports.json")
    port = ports.get("router-one/amqp")
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the server's side first: it is remembered (TIME_WAIT)
        assert client.recv(1) == b""
        with port_of_the_next_run(tmp_path / "another.json", port) as other:
            assert other != port, "somebody listens there"
    ports.close()
    with port_of_the_next_run(tmp_path / "ports.json", port) as again:
        assert again == port


def test_a_line_of_a_log_names_the_component_that_it_is_about() -> None:
    line = '{"event": "component.process.ended", "level": "error", "service": "enmasse", "component": "small-0"}'
    assert shown("enmasse", line).split()[-2:] == ["component.process.ended", "component=small-0"]


@pytest.mark.parametrize(("peer", "facts"), [("", "component=mqtt_gateway-1"), ("[::1]:4711", "peer=[::1]:4711")])
def test_an_event_names_its_client_otherwise_its_component(peer: str, facts: str) -> None:
    texts = dict.fromkeys(("condition", "address", "user", "client"), "")
    row = {"time": "12:00", "kind": "a.b.c", "description": "why", "count": 1, "more": {}, **texts}
    assert events._line(events.FACTS, {**row, "component": "mqtt_gateway-1", "peer": peer}) == (
        f"12:00  a.b.c  why  {facts}"
    )
