"""Gateways that come and leave under load: what is acknowledged stays, what is promised once comes once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import Executed, Suite, running, wait_for
from tests.kit.processes import COMMAND, run, start
from tests.system import roaming_gateways
from tests.system.mqtt_devices import PATIENCE, check, publishing
from tests.system.roaming import ADDRESSES, Fleet, Roamer, Steady, burning, more, scale_both, wait_number, wait_spread

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("leaving"), ADDRESSES, options=()) as found:
        found.up()
        yield found
        assert found.down() == 0


def scale(suite: Suite, service: str, count: int) -> str:
    done = run(COMMAND, "scale", service, str(count), "--port-offset", str(suite.offset), seconds=PATIENCE)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def gateways(suite: Suite) -> dict[str, dict[str, Any]]:
    return {c["name"]: c for c in suite.status()["components"] if c["kind"] == "mqtt_gateway"}


def test_gateways_come_and_leave_and_sessions_have_everything_once(suite: Suite) -> None:
    """1 → 3 → 1 twice; the second time one of those that leave is killed meanwhile."""
    port = suite.mqtt_port
    publishers = [Roamer("new", port), Roamer("old", port, 4), Roamer("new-2", port)]
    readers = [Roamer("reader", port), Roamer("reader-old", port, 4), Roamer("slow", port, slow=True)]
    idle = [Roamer(f"idle-{number}", port, 4 if number % 2 else 5) for number in range(24)]
    every = [*publishers, *readers, *idle]
    try:
        scale(suite, "gateways", 3)
        for device in every:
            device.connect()
        for reader in readers:
            reader.subscribe("mytopic/+/state", 2)
        with publishing(list(publishers), "mytopic") as work:
            wait_for("messages arrive", more(readers[0]), PATIENCE)
            assert "leaving" in scale(suite, "gateways", 1)
            assert list(gateways(suite)) == ["mqtt_gateway-0"]
            wait_for("messages arrive after it", more(readers[0]), PATIENCE)
            scale(suite, "gateways", 3)
            others = ("mqtt_gateway-1", "mqtt_gateway-2")
            wait_for("clients spread", lambda: sum(_clients(suite, name) for name in others) > 6, PATIENCE)
            victim = max(others, key=lambda name: _clients(suite, name))
            scaling = start(COMMAND, "scale", "gateways", "1", "--port-offset", str(suite.offset))
            wait_for("it leaves", lambda: gateways(suite).get(victim, {}).get("leaving"), PATIENCE)
            os.kill(gateways(suite)[victim]["pid"], signal.SIGKILL)
            assert scaling.wait(PATIENCE) == 0
            wait_for("messages arrive after the kill", more(readers[0]), PATIENCE)
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        for reader in readers:
            wait_for("all has come", lambda reader=reader: reader.got.keys() >= sent.keys(), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
            check(reader, sent, publishers)
        wait_for("all are connected", lambda: _clients(suite, "mqtt_gateway-0") == len(every), PATIENCE)
        gaps = sorted(gap for device in every for gap in device.gaps)
        reasons = sum((device.reasons for device in every), Counter())
        print(f"{len(gaps)} gaps, the longest of {gaps[-3:]} s; {len(sent)} messages; closed: {dict(reasons)}")
        assert gaps and reasons["Server moved"]
    finally:
        for device in every:
            device.end()


def test_routers_and_gateways_come_and_leave_with_clients_of_all_kinds(suite: Suite) -> None:
    """1 → 3 → 1, both at once; `tests.soak.coming` does more."""
    fleet = Fleet(suite.url, suite.mqtt_port)
    try:
        fleet.goes_on()
        fleet.gaps()
        scale_both(suite, "3")
        wait_spread(suite)
        fleet.goes_on()
        print(f"3 came: longest gaps in s: {fleet.gaps()}")
        scale_both(suite, "1")
        fleet.goes_on()
        print(f"2 left: longest gaps in s: {fleet.gaps()}")
        assert fleet.still.opened > 12, "no idle connection has moved"
        print(fleet.check())
    finally:
        fleet.end()


def test_who_is_stopped_by_a_signal_holds_clients_up_for_a_moment_only(suite: Suite) -> None:
    """SIGSTOP of each router, gateway and broker in turn, and a router that hands its clients on."""
    scale(suite, "routers", 2)
    scale(suite, "gateways", 2)
    steady = Steady(suite.url, "orders")
    publishers, reader = [Roamer("p5", suite.mqtt_port), Roamer("p4", suite.mqtt_port, 4)], Roamer("r", suite.mqtt_port)
    for device in (*publishers, reader):
        device.connect()
    reader.subscribe("mytopic/+/state", 2)
    kinds = ("router", "mqtt_gateway", "broker")
    try:
        with publishing(list(publishers), "mytopic") as work:
            wait_for("messages are accepted", steady.more(), PATIENCE)
            for victim in [each for each in suite.status()["components"] if each["kind"] in kinds]:
                steady.longest, began = 0.0, time.monotonic()
                os.kill(victim["pid"], signal.SIGSTOP)
                wait_for("it is started again", lambda v=victim: _is_another(suite, v), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                again = time.monotonic() - began
                wait_for("messages are accepted", steady.more(), PATIENCE)
                wait_for("messages arrive", more(reader), PATIENCE)
                print(f"{victim['name']}: ready after {again:.1f} s, longest gap of Proton {steady.longest:.2f} s")
            steady.longest = 0.0
            for count in (1, 2, 1):
                scale(suite, "routers", count)
                wait_for("messages are accepted", steady.more(), PATIENCE)
            print(f"routers that leave: longest gap of Proton {steady.longest:.2f} s")
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        check(reader, sent, publishers)
        wait_for("all accepted has come", lambda: steady.came.keys() >= steady.accepted, PATIENCE)
    finally:
        steady.end()
        gaps = sorted(gap for device in (*publishers, reader) for gap in device.gaps)
        print(f"longest gaps of MQTT clients: {gaps[-4:]}, {len(steady.accepted)} accepted, doubtful {steady.doubtful}")
        for device in (*publishers, reader):
            device.end()


def test_routers_and_gateways_come_and_leave_by_load(tmp_path: Path) -> None:
    """1 → 2 → 1, as programs that send as fast as they can come and end; less work counts as much than for users."""
    with running(tmp_path, ADDRESSES, options=()) as suite:
        suite.commands = Executed(sys.executable, "-m", "tests.kit.eager_up")
        suite.up()
        scale_both(suite, "1..2")
        steady, reader = Steady(suite.url, "jobs", pause=0.5), Roamer("reader", suite.mqtt_port)
        reader.connect()
        try:
            with burning(suite, 1):
                wait_number(suite, 2)
            wait_for("messages are accepted", steady.more(), PATIENCE)
            wait_number(suite, 1)
            wait_for("messages are accepted", steady.more(), PATIENCE)
            wait_for("all accepted has come", lambda: steady.came.keys() >= steady.accepted, PATIENCE)
            print(f"longest gap of Proton {steady.longest:.2f} s, of MQTT {max(reader.gaps, default=0):.2f} s")
        finally:
            steady.end()
            reader.end()
        assert suite.down() == 0


def test_clients_of_gateways_while_routers_and_gateways_come_go_and_die(tmp_path: Path) -> None:
    """STOMP, HTTP (answers, long poll, events), CoAP, AMQP over WebSocket: what is acknowledged comes."""
    with running(tmp_path, roaming_gateways.ADDRESSES, options=roaming_gateways.WITH) as suite:
        suite.up()
        clients = roaming_gateways.Mixed(suite)

        def step(name: str) -> None:
            clients.goes_on()
            print(f"{name}, load {os.getloadavg()[0]:.0f}: longest gaps in s: {clients.gaps()}")

        try:
            for service in ("routers", "http-gateways", "gateways"):
                scale(suite, service, 2)
            step("2 of each")
            for name in ("router-0", "http_gateway-0", "stomp_gateway-0", "coap_gateway-0", "mqtt_gateway-0"):
                victim = next(each for each in suite.status()["components"] if each["name"] == name)
                suite.kill(victim)
                wait_for("it is started again", lambda v=victim: _is_another(suite, v), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                step(f"{name} was killed")
            for service in ("routers", "http-gateways", "gateways"):
                scale(suite, service, 1)
                step(f"{service} left")
            print(clients.check())
            assert not any("status 500" in reasons for reasons in clients.lost().values())
        finally:
            clients.end()
        assert suite.down() == 0


def _is_another(suite: Suite, before: dict[str, Any]) -> bool:
    found = [each for each in suite.status()["components"] if each["name"] == before["name"]]
    return bool(found and found[0]["ready"] and found[0]["pid"] != before["pid"])


def _clients(suite: Suite, name: str) -> int:
    return int(gateways(suite).get(name, {}).get("counts", {}).get("clients", 0))
