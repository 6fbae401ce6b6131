"""Life of a service's process: its signals, its parent, its exit status."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.waiting import DEADLINE
from tests.kit.waiting import wait_for as wait_until

SERVICE = """
import asyncio, sys
from enmasse.http import health
from enmasse.process import runner as process, settings

class Settings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str = "serve"

async def serve(config, stop):
    if config.mode == "fail":
        raise ValueError("broken")
    http = health.Health(config.health)
    await http.start()
    print("up", flush=True)
    if config.mode == "stubborn":
        process.GRACE = 0.05
        await asyncio.Event().wait()
    await stop.wait()
    await http.close()

process.start(Settings, serve, use_uvloop=True)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[list[str]]:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "config.json").write_text(json.dumps({"name": "s", "health": "127.0.0.1:0"}))
    yield [sys.executable, str(tmp_path / "service.py"), "--config", str(tmp_path / "config.json")]


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def configure(command: list[str], **values: str) -> None:
    path = Path(command[-1])
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly_on_a_signal(service: list[str], number: signal.Signals) -> None:
    process = start(service)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")


def test_is_cancelled_when_it_does_not_stop(service: list[str]) -> None:
    configure(service, mode="stubborn")
    process = start(service)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.terminate()
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert "process.stop.timed-out" in errors


def test_dies_with_its_parent(service: list[str]) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], env={**os.environ, 'ENMASSE_PARENT': str(os.getpid())})\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    parent = start([sys.executable, "-c", code, *service])
    assert parent.stdout is not None
    told = {parent.stdout.readline(), parent.stdout.readline()}  # by two processes: either may be the first
    assert "up\n" in told
    (pid,) = told - {"up\n"}
    child = psutil.Process(int(pid))
    parent.kill()
    parent.wait()
    wait_until(lambda: is_gone(child), "the child is gone")
    parent.stdout.close()


def is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_does_not_start_when_its_parent_is_gone(service: list[str]) -> None:
    process = start(service, ENMASSE_PARENT="1")
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert "parent process 1 is gone" in errors


def test_a_port_in_use_is_one_line(service: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(service, health=f"127.0.0.1:{port}")
        process = start(service)
        _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert errors == (
        f"cannot listen on 127.0.0.1:{port}: the port is in use by another process; "
        "choose another one in the setting 'health' [service.port.not-available]\n"
    )


def test_an_exception_is_logged_and_ends_it(service: list[str]) -> None:
    configure(service, mode="fail")
    process = start(service)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert "ValueError: broken" in json.loads(errors)["exception"]


def test_usage(service: list[str]) -> None:
    process = start(service[:2])
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert "--config FILE.json" in errors
