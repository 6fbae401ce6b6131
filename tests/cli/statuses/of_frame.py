"""Exit statuses that each command has from the frame of all: usage, standard output, Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from enmasse.cli.common import OPERATORS_PORT
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.running import ENMASSE, enmasse, free_offset
from tests.cli.statuses.cases import Case, case, configuration, of, running
from tests.cli.statuses.of_messaging import asking, passing_on
from tests.cli.statuses.of_operators import ANSWERS, ASKS
from tests.cli.subctrl import answering
from tests.cli.test_client import giving, peer, taking
from tests.kit import processes
from tests.kit.waiting import DEADLINE

OPTIONS: dict[str, tuple[str, ...]] = {
    "init": ("{folder}/new",),
    "status": ("--json", "--port-offset", "{offset}"),
    "scale": ("router=1", "--port-offset", "{offset}"),
    "address": ("list", "--config", "{config}", "--json"),
    "down": ("--port-offset", "{offset}"),
    "reload": ("--port-offset", "{offset}"),
    "restart": ("ragent", "--port-offset", "{offset}"),
    "logs": ("--data", "{folder}/stored", "--port-offset", "{offset}"),
    "flavor": ("list", "--config", "{config}", "--json"),
    "config": ("check", "{config}", "--port-offset", "{offset}"),
    "backup": ("{folder}/made", "--config", "{config}", "--data", "{folder}/stored", "--port-offset", "{offset}"),
    "restore": ("{folder}/made", "--config", "{folder}/c", "--data", "{folder}/d", "--port-offset", "{offset}"),
    "version": ("--port-offset", "{offset}"),
    "help": ("send",),
    "request": ("-a", "127.0.0.1:{port}/q", "--subject", "sessions", "--timeout", "60"),
    "reply": ("-a", "127.0.0.1:{port}/q", "--count", "1", "--timeout", "60"),
    "user": ("list", "--config", "{config}", "--json"),
    "subscription": ("list", "--json", "--port-offset", "{operators}"),
    "retained": ("list", "--json", "--port-offset", "{operators}"),
    "mqtt": ("clients", "--json", "--port-offset", "{operators}"),
    "send": ("-a", "127.0.0.1:{port}/q", "-m", "5", "--json"),
    "receive": ("-a", "127.0.0.1:{port}/q"),
    "publish": ("t", "x", "--server", "127.0.0.1:{port}"),
    "subscribe": ("t", "--server", "127.0.0.1:{port}"),
    "bench": ("-a", "127.0.0.1:{port}/q", "--seconds", "0.1"),
}
"""What makes each command print something."""


def wrong_usage(command: str) -> Case:
    def run(folder: Path) -> int:
        done = enmasse(command, "--nonsense")
        assert "Usage:" in done.stderr
        return done.returncode

    return run


def into(stdout: int, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command that has something to say with this as its standard output."""

    def run(**given: object) -> subprocess.CompletedProcess[str]:
        arguments = [option.format(folder=folder, **given) for option in OPTIONS[command]]
        return processes.run(processes.COMMAND, command, *arguments, stdout=stdout)

    if command in ("scale", "restart", "down", "reload"):
        with running(folder) as up:
            return run(offset=up.offset)
    if command in ASKS:
        with peer(answering(ANSWERS)) as port:
            return run(operators=port - OPERATORS_PORT)
    if command in ("publish", "subscribe"):
        with mqtt_peer(Broker(*["x" * 1000] * 100)) as port:
            return run(port=port)
    if command in ("send", "receive", "request", "reply", "bench"):
        peers = {
            "request": answering(ANSWERS),
            "reply": asking,
            "send": taking(lambda delivery, _: delivery.accept()),
            "receive": giving(*["x" * 1000] * 100),
            "bench": passing_on(),
        }
        with peer(peers[command]) as port:
            return run(port=port)
    config = configuration(folder)
    if command == "restore":
        assert of("backup", folder / "made", "--config", config, "--data", folder / "stored") == 0
    return run(offset=free_offset(), config=config)


def nobody_reads(command: str) -> Case:
    def run(folder: Path) -> int:
        reading, writing = os.pipe()
        os.close(reading)
        done = into(writing, command, folder)
        os.close(writing)
        assert "Traceback" not in done.stderr and "Broken pipe" not in done.stderr, done.stderr
        return done.returncode

    return run


def disk_of_stdout_full(command: str) -> Case:
    def run(folder: Path) -> int:
        with open("/dev/full", "w") as full:
            done = into(full.fileno(), command, folder)
        assert done.stderr.endswith(
            "cannot write to standard output: No space left on device [command.output.failed]\n"
        ), done.stderr
        return done.returncode

    return run


def interrupted(command: str) -> Case:
    """Ctrl-C while the command waits for somebody who accepts its connection and says nothing."""

    def run(folder: Path) -> int:
        arguments: tuple[str, ...] = OPTIONS[command]
        if command in ("init", "help", "restore"):  # waits for nobody
            return interrupted_at_an_import([command, str(folder / "new")])
        if command in ("address", "flavor", "user"):
            arguments = ("list", "--port-offset", "{offset}")
        if command == "backup":
            arguments = (str(folder / "new"), "--port-offset", "{offset}")
        if command in ("config", "logs"):  # which ask where the suite has its files
            arguments = (*(["check"] if command == "config" else []), "--port-offset", "{offset}")
        with socket.socket() as silent:
            offset = free_offset()
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            silent.bind(("127.0.0.1", OPERATORS_PORT + offset if command in ASKS else 8079 + offset))
            silent.listen()
            given = [argument.format(offset=offset, operators=offset, port=8079 + offset) for argument in arguments]
            with subprocess.Popen([ENMASSE, command, *given], stderr=subprocess.PIPE, text=True) as process:
                silent.settimeout(DEADLINE)
                connection, _ = silent.accept()
                with connection:
                    process.send_signal(signal.SIGINT)
                    _, err = process.communicate(timeout=DEADLINE)
        assert "Traceback" not in err, err
        return process.returncode

    return run


def interrupted_at_an_import(arguments: list[str]) -> int:
    code = """
import importlib.abc, os, signal, sys
class Told(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Told())
from enmasse.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, timeout=DEADLINE)
    assert "Traceback" not in done.stderr
    return done.returncode


_EACH = (
    "init", "up", "down", "reload", "restart", "status", "logs", "scale", "address", "flavor", "config", "user", *ASKS,
    "send", "receive", "request", "reply", "publish", "subscribe", "bench", "backup", "restore", "version", "help",
)  # fmt: skip
SOME = ("status", "address", "send", "subscribe")
"""Commands of each kind: one that asks the suite, one of files, one of AMQP, one of MQTT. The statuses that the frame
of all commands gives are seen with these in `make test`, with the others in `make test-slow`."""
OF_THE_FRAME: set[Case] = set()
for name in _EACH:
    case(name, 2)(wrong_usage(name))
    if name != "up":
        for status, made in ((141, nobody_reads(name)), (1, disk_of_stdout_full(name)), (130, interrupted(name))):
            case(name, status)(made)
            if name not in SOME:
                OF_THE_FRAME.add(made)
case("deploy", 2)(wrong_usage("deploy"))
for name in ("connection", "space", "plan", "top", "events", "token"):
    case(name, 2)(wrong_usage(name))
