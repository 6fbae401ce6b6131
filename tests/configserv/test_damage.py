"""Data of configserv that was damaged, or taken away: it starts all the same, says so, and nobody deletes anything."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.configserv.running import Client, Configserv, content
from tests.configserv.test_service import ANYCAST, QUEUE
from tests.kit.waiting import DEADLINE
from tests.kit.waiting import wait_for as wait_until

Connect = Callable[[], Client]
STATE, FORCED = "configuration.json", "forced.json"


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def write(data: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(data)

    return put


def without_its_flavors(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "flavors": {}}))


def replaced_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


HARM = {
    "cut off": cut_off,
    "empty": write(b""),
    "garbage": write(b"\xff\x00garbage"),
    "nothing but an object": write(b"{}"),
    "wrong schema": write(b'{"schema": "one"}'),
    "wrong types": write(b'{"schema": 1, "addresses": 7}'),
    "deeply nested": write(b'{"schema": 1, "addresses": ' + b"[" * 100_000),
    "without its flavors": without_its_flavors,
    "a directory": replaced_by(lambda path: (path / "in" / "it").mkdir(parents=True)),
    "a pipe": replaced_by(os.mkfifo),
    "a link in a circle": replaced_by(lambda path: path.symlink_to(path)),
}


def begin(service: Configserv) -> None:
    """It has run, and has kept a configuration."""
    service.write("addresses.json", {"q": QUEUE, "a": ANYCAST})
    service.start()
    service.kill()


@pytest.mark.parametrize("harm", HARM)
def test_it_is_set_aside_and_made_anew_from_the_files(service: Configserv, connect: Connect, harm: str) -> None:
    begin(service)
    HARM[harm](service.data / STATE)
    service.start()
    client = connect()
    assert content(client.next("addresses")) == {"schema": 1, "addresses": {"q": QUEUE, "a": ANYCAST}, "forced": []}
    status = client.next("status")
    kept = service.data / f"{STATE}.damaged"
    ((file, reason),) = [(e["file"], e["reason"]) for e in status["errors"]]
    assert file == STATE
    assert reason.startswith(f"was damaged and is kept as {kept}; ") and "Remove that file" in reason
    (event,) = [
        e for e in map(json.loads, service.log.read_text().splitlines()) if e["event"] == "configserv.data.set-aside"
    ]
    assert (event["file"], event["kept"]) == (str(service.data / STATE), str(kept)) and event["reason"]
    assert os.path.lexists(kept)
    # It is the last good configuration again, the word stands over a restart, and ends with the file.
    service.kill()
    service.write("addresses.json", "{")
    service.start()
    client = connect()
    assert set(client.next("addresses")["addresses"]) == {"q", "a"}
    errors = client.next("status")["errors"]
    assert [e["file"] for e in errors] == ["addresses.json", STATE]
    shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    client.find("status", lambda body: [e["file"] for e in body["errors"]] == ["addresses.json"])


def test_what_was_damaged_before_is_not_overwritten(service: Configserv, connect: Connect) -> None:
    begin(service)
    for text in ("first", "second"):
        (service.data / STATE).write_text(text)
        service.start()
        service.kill()
    assert (service.data / f"{STATE}.damaged").read_text() == "first"
    assert (service.data / f"{STATE}.damaged-2").read_text() == "second"


def test_without_usable_files_it_waits_for_them(service: Configserv, connect: Connect) -> None:
    begin(service)
    (service.data / STATE).write_text("garbage")
    service.write("addresses.json", '{"q": ')
    service.start()
    health = service.health()
    assert health is not None and not health["ready"]
    assert "addresses.json:1: is not JSON" in health["detail"]
    client, agent = connect(), connect()
    early = client.connection.create_receiver("addresses/changes", credit=1)
    agent.ready("ragent", "q")
    # What runs is not on its way out only because nobody knows any more that it is wanted.
    status = client.find("status", lambda body: body["addresses"])
    ((name, phase, message),) = [(a["name"], a["phase"], a["message"]) for a in status["addresses"]]
    assert (name, phase) == ("q", "Pending") and "the configuration files cannot be used" in message
    assert [e["file"] for e in status["errors"]] == ["addresses.json", STATE]
    assert not early.fetcher.has_message
    service.write("addresses.json", {"q": QUEUE})
    assert json.loads(early.receive(timeout=DEADLINE).body)["addresses"] == {"q": QUEUE}
    client.phases(q="Pending")
    wait_until(lambda: (service.health() or {}).get("ready"), "ready")


def test_an_entry_that_nobody_knows_any_more_is_named(service: Configserv, connect: Connect) -> None:
    """So that whoever finds something of it leaves it alone: it is in the file, so it was not removed."""
    begin(service)
    (service.data / STATE).unlink()
    service.write("addresses.json", {"q": {**QUEUE, "flavour": 1}, "a": ANYCAST})
    service.start()
    client = connect()
    expected = {"schema": 1, "addresses": {"a": ANYCAST}, "forced": [], "invalid": ["q"]}
    assert content(client.next("addresses")) == expected
    controller = connect()
    controller.ready("storage_controller", "q", ready=False, message="what lies there goes on", messages=4)
    status = client.find("status", lambda body: body["addresses"][-1]["messages"] == 4)
    entry = status["addresses"][-1]
    assert (entry["name"], entry["phase"]) == ("q", "Failed")
    assert "flavour: unknown key" in entry["message"] and entry["message"].endswith("; what lies there goes on")
    service.write("addresses.json", {"a": ANYCAST})
    assert content(client.next("addresses")) == {"schema": 1, "addresses": {"a": ANYCAST}, "forced": []}
    service.write("addresses.json", {"a": ANYCAST, "q": 1})
    assert content(client.next("addresses")) == expected


def test_a_broker_that_nobody_knows_any_more_is_named(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"q": QUEUE})
    service.write("brokers.json", {"b": {"host": "h"}})
    service.start()
    client = connect()
    placements = client.next("placements")
    assert content(placements) == {"schema": 1, "brokers": {}, "addresses": {}, "invalid": ["b"]}
    service.write("brokers.json", {"b": {"host": "h", "port": 1}})
    assert "invalid" not in client.next("placements")


def test_the_list_of_what_is_forced(service: Configserv, connect: Connect) -> None:
    begin(service)
    (service.data / FORCED).write_text("[")
    service.start()
    client = connect()
    assert client.next("addresses")["forced"] == []
    (error,) = client.next("status")["errors"]
    assert error["file"] == FORCED and "repeat orders to discard addresses by force" in error["reason"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_deleted_while_it_runs_is_written_again(service: Configserv, connect: Connect, what: str) -> None:
    service.write("addresses.json", {"q": {**QUEUE, "maxSize": 5}})
    service.start()
    if what == "file":
        (service.data / STATE).unlink()
    else:
        shutil.rmtree(service.data)
    wait_until(lambda: (service.data / STATE).exists(), "it is written again")
    service.kill()
    service.write("addresses.json", {"q": 1})
    service.start()
    assert connect().next("addresses")["addresses"] == {"q": {**QUEUE, "maxSize": 5}}
