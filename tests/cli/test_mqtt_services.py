"""The MQTT services of a suite, with stand-ins for them: settings, ports, the number of gateways, leaving them out."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Up, enmasse, free_offset, wait_for


def start(config: Path, tmp_path: Path, **environment: str) -> Up:
    up = Up(config, tmp_path / "data", fake=True, environment={"FAKE_MQTT": "1", **environment})
    up.feed()
    return up


def gateways(up: Up) -> list[str]:
    """The names of the gateways, once all of them are ready."""
    found = [c for c in up.status()["components"] if c["kind"] == "mqtt_gateway"]
    return [c["name"] for c in found] if all(c["ready"] for c in found) else []


def settings(up: Up, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((up.data / "run" / f"{name}.json").read_text())
    return found


def scale(up: Up, count: int) -> str:
    done = enmasse("scale", "gateways", count, "--port-offset", up.offset)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_there_with_their_settings(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.until_ready()
        router, configserv = settings(up, "router-0"), settings(up, "configserv")["listen"]
        services = next(body for kind, body in router["entities"] if body.get("name") == "services")
        assert (services["role"], services["management"]) == ("route-container", False)
        at_router = f"{services['host']}:{services['port']}"
        for name in ("subserv", "mqtt_lwt", "mqtt_gateway-0"):
            found = settings(up, name)
            assert (found["name"], found["configserv"], found["router"][0]) == (name, configserv, at_router)
        assert settings(up, "subserv")["store"] == {"kind": "sqlite", "path": f"{up.data}/subserv/store.db"}
        assert settings(up, "mqtt_lwt")["store"] == {"kind": "sqlite", "path": f"{up.data}/mqtt_lwt/store.db"}
        assert settings(up, "ragent")["mqtt"] is True
        *shared, own = settings(up, "mqtt_gateway-0")["listeners"]
        assert [(each["kind"], each["port"], each["shared"]) for each in shared] == [
            ("mqtt", 1883 + up.offset, True), ("ws", 8083 + up.offset, True),
        ]  # fmt: skip
        assert (own["kind"], own["shared"]) == ("mqtt", False)
        wait_for(lambda: "address add" in up.lines[-1], what="the last line of the welcome")
        welcome = "\n".join(up.lines)
        assert f"mqtt://127.0.0.1:{1883 + up.offset}" in welcome
        assert f"ws://127.0.0.1:{8083 + up.offset}/mqtt" in welcome
        shown = enmasse("status", "--port-offset", up.offset).stdout
        assert f"MQTT    mqtt://127.0.0.1:{1883 + up.offset}\n" in shown and str(own["port"]) not in shown
        assert shown.count("0 clients") == len(up.status()["components"])
        metrics = up.http("/metrics")[1]
        assert 'enmasse_mqtt_clients{name="mqtt_gateway-0"} 0.0' in metrics


def test_gateways_are_scaled_and_their_number_stays(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path) as up:
        up.until_ready()
        assert "runs 1 process already" in scale(up, 1)
        assert "runs 3 processes from now on" in scale(up, 3)
        wait_for(lambda: gateways(up) == [f"mqtt_gateway-{number}" for number in range(3)])
        own = [settings(up, name)["listeners"][-1]["port"] for name in gateways(up)]
        assert len(set(own)) == 3
        pid = up.component("mqtt_gateway-1")["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: up.component("mqtt_gateway-1")["restarts"] == 1 and len(gateways(up)) == 3)
        refused = enmasse("scale", "mqtt_gateway=0", "--port-offset", up.offset)
        assert refused.returncode == 1 and "`enmasse up --without mqtt`" in refused.stderr
        assert len(gateways(up)) == 3
        scale(up, 2)
        wait_for(lambda: len(gateways(up)) == 2)
        for count in (1, 2):  # the second one is still ending, perhaps
            assert up.http("/api/scale", {"service": "mqtt_gateway", "count": count})[0] == 200
        wait_for(lambda: len(gateways(up)) == 2)
        assert up.http("/api/scale", {"service": "mqtt_gateway", "count": 65})[0] == 409
        for service in ("subserv", "mqtt_lwt"):
            assert "exactly one" in up.http("/api/scale", {"service": service, "count": 2})[1]["message"]
        assert up.end() == 0
    with start(empty_config, tmp_path) as up:
        up.until_ready()
        assert gateways(up) == ["mqtt_gateway-0", "mqtt_gateway-1"]
        assert up.end() == 0
    (tmp_path / "data" / "scale.json").write_text('{"schema": 1, "mqtt_gateway": 0}')  # written by 0.1.0
    with start(empty_config, tmp_path) as up:
        up.until_ready()
        assert gateways(up) == ["mqtt_gateway-0"]


def test_a_component_is_restarted(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path, ENMASSE_GATEWAYS="2") as up:
        up.until_ready()
        before = {c["name"]: c["pid"] for c in up.status()["components"]}
        done = enmasse("restart", "mqtt-gateway", "subserv", "--json", "--port-offset", up.offset)
        assert done.returncode == 0, done.stderr
        restarted = ["mqtt_gateway-0", "mqtt_gateway-1", "subserv"]
        assert json.loads(done.stdout) == {"done": "restarted", "components": restarted}
        assert done.stderr.count("hands its clients on") == 2, "another gateway serves its ports"
        assert [f"{name} is ready again" in done.stderr for name in restarted] == [True] * 3
        after = {c["name"]: c for c in up.status()["components"]}
        assert {name for name, pid in before.items() if after[name]["pid"] != pid} == set(restarted)
        assert all(c["ready"] and not c["leaving"] and c["restarts"] == 0 for c in after.values())
        assert {name for name, c in after.items() if c["redundant"]} == {"mqtt_gateway-0", "mqtt_gateway-1"}
        up.order("mqtt_gateway-1", ready=False)
        wait_for(lambda: not up.component("mqtt_gateway-1")["ready"])
        assert up.http("/readyz") == (200, {"ready": True, "detail": "degraded: mqtt_gateway-1: told to say so"})
        up.order("mqtt_gateway-0", ready=False)
        wait_for(lambda: up.http("/readyz")[0] == 503, what="not ready: no gateway is left")
        os.kill(after["subserv"]["pid"], signal.SIGKILL)
        wait_for(lambda: up.component("subserv")["restarts"] == 1, what="a restart that nobody ordered")
        assert up.component("subserv")["endedAt"] >= after["subserv"]["since"]
        for name, reason in (
            ("enmasse", "the suite itself"),
            ("subser", "Did you mean 'subserv'"),
            ("routers", "Did you mean 'router'?"),
        ):
            refused = enmasse("restart", name, "--port-offset", up.offset)
            assert refused.returncode == 1 and reason in refused.stderr, refused.stderr


@pytest.mark.slow  # test_gateways_are_scaled_and_their_number_stays has two, too
def test_their_number_is_set_at_the_start(empty_config: Path, tmp_path: Path) -> None:
    with start(empty_config, tmp_path, ENMASSE_GATEWAYS="3") as up:
        up.until_ready()
        assert gateways(up) == [f"mqtt_gateway-{number}" for number in range(3)]
        scale(up, 2)
        wait_for(lambda: len(gateways(up)) == 2)
        assert up.end() == 0
    with start(empty_config, tmp_path) as up:
        up.until_ready()
        assert gateways(up) == ["mqtt_gateway-0", "mqtt_gateway-1"], "as in the last run"
        assert up.end() == 0
    with start(empty_config, tmp_path, ENMASSE_GATEWAYS="1") as up:
        up.until_ready()
        assert gateways(up) == ["mqtt_gateway-0"]


@pytest.mark.parametrize(
    ("options", "what"),
    [(("--gateways", "0"), "1<=x<=64"), (("--gateways", "2", "--without", "mqtt"), "leave --gateways out")],
)
def test_a_number_of_gateways_that_cannot_be(options: tuple[str, ...], what: str) -> None:
    done = enmasse("up", *options)
    assert done.returncode == 2 and what in " ".join(done.stderr.split())


def test_without_mqtt_and_with_redis(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()
        kinds = {c["kind"] for c in up.status()["components"]}
        assert not kinds & {"mqtt_gateway", "subserv", "mqtt_lwt"}
        assert settings(up, "ragent")["mqtt"] is False
        done = enmasse("scale", "mqtt_gateway=2", "--port-offset", up.offset)
        assert done.returncode == 1 and "no service 'mqtt_gateway'" in done.stderr
        assert "mqtt://" not in "".join(up.lines)
    with start(empty_config, tmp_path, ENMASSE_STORE="redis://:secret@127.0.0.1:1/3") as up:
        up.until_ready()
        stores = [settings(up, name)["store"] for name in ("subserv", "mqtt_lwt")]
        assert [store["url"] for store in stores] == ["redis://:secret@127.0.0.1:1/3"] * 2
        assert [store["prefix"] for store in stores] == [f"enmasse-{up.offset}:{n}" for n in ("subserv", "mqtt_lwt")]
        assert "secret" not in "".join(up.lines) + enmasse("status", "--json", "--port-offset", up.offset).stdout


def test_a_port_of_mqtt_that_is_taken_is_named(empty_config: Path, tmp_path: Path) -> None:
    offset = free_offset()
    with socket.create_server(("127.0.0.1", 8083 + offset)):
        up = Up(empty_config, tmp_path / "data", fake=True, offset=offset, environment={"FAKE_MQTT": "1"})
        assert up.ended() == 2
    told = "".join(up.errors)
    assert f"port {8083 + offset} (WS) is in use by" in told and "--without mqtt" in told
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("url", ["redis://", "http://x", "x", "redis://a\nb"])
def test_a_store_that_is_no_redis_url(url: str, tmp_path: Path) -> None:
    done = enmasse("up", "--store", url, "--config", tmp_path, "--data", tmp_path / "d")
    assert done.returncode == 2 and "is no URL of a Redis server" in done.stderr


def test_a_part_that_cannot_be_left_out(tmp_path: Path) -> None:
    done = enmasse("up", "--without", "router", "--config", tmp_path, "--data", tmp_path / "d")
    assert done.returncode == 2 and "mqtt" in done.stderr
