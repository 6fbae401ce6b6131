"""`enmasse up --router qdrouterd`: what is refused before the start, and the suite with a real Qpid Dispatch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from enmasse.engines.choices import ROUTERS
from enmasse.engines.engine import RouterEngine
from enmasse.engines.program import Spec
from enmasse.supervisor import start
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import InternalPorts
from enmasse.supervisor.plan.services import Options, fixed_services, router
from tests import one_program
from tests.cli.running import Up, alive, enmasse, wait_for

ROUTER = ("--router", "qdrouterd")


def program(folder: Path, script: str) -> dict[str, str]:
    """The environment with a `qdrouterd` that does this."""
    folder.mkdir()
    file = folder / "qdrouterd"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": str(folder), "ENMASSE_ROUTER": "qdrouterd"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no program qdrouterd is on PATH"),
        ("echo 1.18.0", "is version 1.18.0"),
        ("echo 1.9.0", "is version 1.9.0"),
        ("echo what", "does not show a version"),
        ("echo 1.19.0; exit 3", "does not show a version"),
    ],
)
def test_no_router_to_run(config: Path, tmp_path: Path, script: str | None, said: str) -> None:
    environment = program(tmp_path / "bin", script or "")
    if script is None:
        (tmp_path / "bin" / "qdrouterd").unlink()
    ended = enmasse("up", "--config", config, "--data", tmp_path / "data", env=environment)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert said in line
    assert "Install Apache Qpid Dispatch Router 1.19" in line
    assert not (tmp_path / "data").exists()


def test_address_spaces_need_users_behind_dispatch(config: Path, tmp_path: Path) -> None:
    (config / "spaces.json").write_text('{"one": {}}')
    found = []
    for users in (False, True):
        if users:
            (config / "users.json").write_text(json.dumps({"alice": {"permissions": []}}))
            (config / "users.json").chmod(0o600)
        options = Options(config, tmp_path / "data", router="qdrouterd", users=users)
        with contextlib.suppress(StartError) if users else pytest.raises(StartError, match="Add a user to users"):
            start._check_separation(options)
        ports = InternalPorts(tmp_path / f"ports-{users}", [])
        settings = {each.kind: each.settings for each in fixed_services(options, DataDir(tmp_path), ports)}
        ports.close()
        found.append(settings["ragent"]["spaces"])
    assert found == [False, True]


OURS = ("management", "mode", "port", "access")
"""Attributes that Dispatch does not get, or with another value."""


def specs(folder: Path, engine: str) -> Spec:
    ports = InternalPorts(folder / f"{engine}.json")
    try:
        return router(Options(folder, folder, router=engine), DataDir(folder), ports, "router-0")
    finally:
        ports.close()


@pytest.mark.parametrize("engine", ROUTERS.values(), ids=ROUTERS)
def test_the_suite_asks_a_router_for_metrics_if_it_serves_them(tmp_path: Path, engine: RouterEngine) -> None:
    assert ("health" in specs(tmp_path, engine.name).settings) is engine.serves_http


def test_the_same_entities(tmp_path: Path) -> None:
    """Dispatch gets what the embedded router gets, without an attribute that it would refuse, and what a mesh needs."""
    ours, theirs = specs(tmp_path, "embedded"), specs(tmp_path, "qdrouterd")
    assert (ours.engine, theirs.engine, theirs.kind) == ("embedded", "qdrouterd", "router")
    assert ours.wanted_endpoints == theirs.wanted_endpoints
    made = {attributes.get("name", kind): attributes for kind, attributes in theirs.settings["entities"]}
    for kind, attributes in ours.settings["entities"]:
        if kind == "authServicePlugin":
            continue  # Dispatch is not for suites with users
        wanted = {key: value for key, value in attributes.items() if key not in OURS}
        assert made[attributes.get("name", kind)].items() >= wanted.items()
    assert made["router"]["mode"] == "interior"
    assert made["inter-router"]["role"] == "inter-router"
    for listener in ("operators", "services", "inter-router"):
        assert not {"management", "access"} & made[listener].keys()
        assert made[listener]["authenticatePeer"] and made[made[listener]["saslPlugin"]]["port"]
    assert made["ragent"]["saslUsername"] == "router-0"
    assert made["ragent"]["saslPassword"].startswith("file:")


@pytest.mark.needs("qdrouterd")
def test_a_dispatch_without_scram_says_what_it_needs(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SASL_PATH", str(tmp_path))  # where Cyrus SASL looks for its modules
    with Up(config, tmp_path / "data", fake=False, options=(*ROUTER, "--without", "mqtt")) as up:

        def says() -> bool:
            status = up.try_status()
            if isinstance(status, str):  # not there yet
                return False
            [shown] = [each for each in status["components"] if each["name"] == "router-0"]
            return "libsasl2-modules" in shown["detail"] and not shown["ready"]

        wait_for(says, what="the reason in the status")


@pytest.mark.needs("qdrouterd")
def test_a_suite(config: Path, tmp_path: Path) -> None:
    """The brokers are embedded."""
    with Up(config, tmp_path / "data", fake=False, options=ROUTER) as up:
        up.until_ready()
        shown = up.component("router-0")
        assert shown["engine"] == "qdrouterd"
        assert shown["detail"].startswith("Apache Qpid Dispatch 1.")
        assert shown["endpoints"]["amqp"] == f"127.0.0.1:{5672 + up.offset}"
        _passes(up)

        os.kill(shown["pid"], signal.SIGKILL)
        wait_for(lambda: up.runs("router-0", after=shown["pid"]) and up.status()["ready"], what="the router is back")
        assert up.component("router-0")["restarts"] == 1
        _passes(up)
        assert "Listening on" in (up.data / "logs" / "router-0.log").read_text()

        pid = up.pids()["router-0"]
        assert 'enmasse_component_up{kind="router",name="router-0"} 1.0' in up.http("/metrics")[1]
        up.process.kill()
        wait_for(lambda: not alive(pid), what="the router ends with its parent")


def _passes(up: Up) -> None:
    one_program.check(f"amqp://127.0.0.1:{5672 + up.offset}", f"mqtt://127.0.0.1:{1883 + up.offset}")
