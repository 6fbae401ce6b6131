"""SIGKILL of gateway, subscription service, authentication service and configuration service while MQTT clients log in
and permissions change: what was acknowledged arrives, and nobody gets in or reads what the rules do not allow."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.mqtt import reasons
from enmasse.testing import Suite, running, wait_for
from tests.system.mqtt_devices import PATIENCE, SOME, Device, check, publishing
from tests.system.mqtt_users import Device as Packets
from tests.system.mqtt_users import Front, front
from tests.system.seeing import kill, wait_process
from tests.system.users import allow, entry, write_users

TOPIC = "small-persisted-topic"
ADDRESSES = {"devices": {"type": "topic", "flavor": TOPIC}}
KILLED = ("mqtt_gateway-0", "subserv", "authserv", "configserv")
STABLE = {
    "alice": entry("pw-a", allow("devices/alice/#")),
    "reader": entry("pw-r", allow("devices/alice/#", operations=["recv"])),
}
ALLOWED = entry("pw-t", allow("devices/temp/#"), allow("devices/alice/#", operations=["recv"]))
DENIED = entry("pw-t", allow("devices/temp/#"))


class Intruder:
    """Tries to log in with what is wrong, and to read and write what is never allowed, as often as it can."""

    def __init__(self, port: int) -> None:
        self.tries = 0
        self.found: list[Any] = []
        """What it was wrongly given."""
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        wrong = [("alice", "pw-r"), ("nobody", "pw-a"), ("anonymous", "anonymous"), (None, None), ("reader", "")]
        for user, password in itertools.cycle(wrong):
            if self._stop.is_set():
                return
            with contextlib.suppress(OSError), Packets(self._port, "intruder", user, password) as device:
                if device.connected().answer.reason == 0:
                    self.found.append((user, password))
            with contextlib.suppress(OSError), Packets(self._port, "insider", "temp", "pw-t") as device:
                if device.connected().answer.reason == 0:
                    codes = device.subscribe("#", "devices/#", "devices/reader/#")
                    outcome = device.publish("devices/alice/0/state", b"forged")
                    self.found += [code for code in (*codes, outcome) if code < reasons.UNSPECIFIED_ERROR]
            self.tries += 1


@pytest.mark.slow
def test_rights_hold_while_processes_are_killed_during_logins_and_changes(tmp_path: Path) -> None:
    with running(tmp_path, ADDRESSES, options=()) as suite, front(suite) as clients:
        write_users(suite, {**STABLE, "temp": DENIED})
        suite.up()
        clients.wait_code(0, "temp", "pw-t")
        port = suite.mqtt_port
        publishers = [Device("new", port, 5, "alice", "pw-a"), Device("old", port, 4, "alice", "pw-a")]
        reader, away = Device("reader", port, 5, "reader", "pw-r"), Device("away", port, 4, "reader", "pw-r")
        intruder = Intruder(port)
        for device in (*publishers, reader, away):
            device.connect()
        for device in (reader, away):
            device.subscribe("devices/alice/+/state", 2)
        away.close()
        with intruder.at_work(), publishing(publishers, "devices/alice") as work:
            wait_for("messages arrive", lambda: len(reader.got) > SOME, PATIENCE)
            for name in KILLED:
                _kill_amid_changes(suite, clients, name)
                before, tries = len(reader.got), intruder.tries
                wait_for("messages arrive", lambda before=before: len(reader.got) > before + SOME, PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                wait_for("the intruder tries", lambda tries=tries: intruder.tries > tries, PATIENCE)  # type: ignore[misc]  # likewise
        assert intruder.found == []
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        away.connect()
        wait_for("all has come later", lambda: away.got.keys() >= sent.keys(), PATIENCE)
        check(reader, sent, publishers)
        check(away, sent, publishers)
        for device in (*publishers, reader, away):
            device.end()
        assert suite.down() == 0


def _kill_amid_changes(suite: Suite, clients: Front, name: str) -> None:
    """The user temp gets a right, and the process is killed as that is taken away, also from a stored session."""
    write_users(suite, {**STABLE, "temp": ALLOWED})
    wait_for("the right is given", lambda: _codes(clients) == [1])
    stored = _insisting(clients, f"stored-{name}")
    assert stored.subscribe("devices/alice/#") == [1]
    stored.close()
    write_users(suite, {**STABLE, "temp": DENIED})
    pid = kill(suite, name)
    wait_process(suite, name, pid)
    wait_for("the right is taken away", lambda: _codes(clients) == [reasons.NOT_AUTHORIZED])
    stored = _insisting(clients, f"stored-{name}")
    assert stored.answer.session_present
    assert stored.publish("devices/temp/x", b"own") in (0, 0x10)
    stored.close()
    assert [each for each in stored.messages if not each.dup] == []  # nothing of what waited


def _codes(clients: Front) -> list[int]:
    """Return what a new client of temp gets when it subscribes; nothing if it could not ask."""
    with contextlib.suppress(OSError, AssertionError):
        device = clients.device("", "temp", "pw-t", expiry=0)
        if device.answer.reason == 0:
            return device.subscribe("devices/alice/#")
    return []


def _insisting(clients: Front, client_id: str) -> Packets:
    """Return a client of temp that is connected, with its session."""
    found: list[Packets] = []

    def connected() -> bool:
        with contextlib.suppress(OSError):
            found.append(clients.device(client_id, "temp", "pw-t", clean=False))
        return bool(found) and found[-1].answer.reason == 0

    wait_for(f"{client_id} is connected", connected)
    return found[-1]
