"""The table of exit statuses in docs/cli.md: each of its cells has a case here, and is what the command does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import proton
import pytest

from enmasse.cli.common import OPERATORS_PORT
from enmasse.control import ControlLink, ControlReceiver, ControlSender, Delivery
from enmasse.testing import wait_for
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.running import ENMASSE, Up, enmasse, free_offset
from tests.cli.subctrl import RETAINED, ROW, SESSION, answering
from tests.cli.test_client import PASSES, giving, peer, taking
from tests.kit import processes
from tests.kit.waiting import DEADLINE

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
OPTIONS: dict[str, tuple[str, ...]] = {
    "init": ("{folder}/new",),
    "status": ("--json", "--port-offset", "{offset}"),
    "scale": ("router=1", "--port-offset", "{offset}"),
    "address": ("list", "--config", "{config}", "--json"),
    "down": ("--port-offset", "{offset}"),
    "reload": ("--port-offset", "{offset}"),
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
ASKS: dict[str, tuple[str, ...]] = {
    "subscription": ("list",),
    "retained": ("clear", "a"),
    "mqtt": ("disconnect", "a"),
}
"""Commands that ask the subscription service."""
ANSWERS = {
    "subscriptions": {"subscriptions": [ROW]},
    "retained": {"retained": [RETAINED], "total": 1},
    "sessions": {"sessions": [SESSION]},
    "clear_retained": {"count": 1},
    "disconnect": {"count": 1},
}
Case = Callable[[Path], int]
CASES: dict[tuple[str, int], list[Case]] = {}


def case(command: str, status: int) -> Callable[[Case], Case]:
    """A way to get this status of that command. It returns the one it got."""

    def add(function: Case) -> Case:
        CASES.setdefault((command, status), []).append(function)
        return function

    return add


def of_the_table() -> list[tuple[str, int]]:
    """Command and status of each cell that says something."""
    lines = DOCS.read_text().split("## Exit statuses")[1].split("\n## ")[0].splitlines()
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [
        (name.strip("`"), int(status))
        for name, *cells in rows
        for status, cell in zip(heads[1:], cells, strict=True)
        if cell
    ]


# What the cases need


def configuration(folder: Path) -> Path:
    config = folder / "config"
    config.mkdir()
    (config / "addresses.json").write_text('{"a": {"type": "anycast"}}')
    (config / "flavors.json").write_text("{}")
    (config / "users.json").write_text('{"alice": {}}')
    (folder / "stored" / "logs").mkdir(parents=True)
    (folder / "stored" / "logs" / "a.log").write_text("line\n")
    (folder / "stored" / "format.json").write_text('{"format": 1}')
    return config


@contextmanager
def running(folder: Path) -> Iterator[Up]:
    """A suite of stand-ins that is ready."""
    with Up(configuration(folder), folder / "data", fake=True) as up:
        up.feed()
        yield up.until_ready()


def passing_on() -> Callable[[ControlLink], None]:
    """A peer that gives what it gets to the one who receives."""
    receivers: list[ControlSender] = []

    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            receivers.append(link)
            link.accept()
            return
        assert isinstance(link, ControlReceiver)
        link.on_message = passes_on
        link.accept()
        link.window = 10
        link.grant(10)

    def passes_on(delivery: Delivery) -> None:
        receivers[0].send(delivery.message)
        delivery.accept()

    return attached


def refusing(link: ControlLink) -> None:
    link.refuse("amqp:not-found", "no such address")


def of(*arguments: object) -> int:
    """The status of a command to which nothing odd happens."""
    done = enmasse(*map(str, arguments))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


# The cells


@case("init", 0)
def new(folder: Path) -> int:
    return of("init", folder / "new")


@case("init", 1)
def there(folder: Path) -> int:
    configuration(folder)
    return of("init", folder / "config")


@case("up", 0)
def told_to_stop(folder: Path) -> int:
    return up_told(folder, signal.SIGTERM)


@case("up", 0)
def ctrl_c(folder: Path) -> int:
    return up_told(folder, signal.SIGINT)


def up_told(folder: Path, number: signal.Signals) -> int:
    with Up(configuration(folder), folder / "data", fake=False) as up:
        up.until_ready()
        return up.end(number)


@case("up", 1)
def broken_inside(folder: Path) -> int:
    code = (
        "from enmasse.supervisor.suite import Supervisor; Supervisor._look_at_desired = None\n"
        "from enmasse.cli import main; main()"
    )
    options = ("--config", configuration(folder), "--data", folder / "data", "--port-offset", free_offset())
    return subprocess.run([sys.executable, "-c", code, "up", *map(str, options)], timeout=DEADLINE).returncode


@case("up", 2)
def could_not_start(folder: Path) -> int:
    return of("up", "--config", folder / "none", "--data", folder / "data", "--port-offset", free_offset())


@case("status", 0)
def ready(folder: Path) -> int:
    with running(folder) as up:
        return of("status", "--port-offset", up.offset)


@case("status", 1)
def not_ready(folder: Path) -> int:
    with Up(configuration(folder), folder / "data", fake=True) as up:  # its status feed says nothing
        return of("status", "--wait", "5", "--port-offset", up.offset)


@case("status", 4)
def status_of_nothing(folder: Path) -> int:
    return of("status", "--port-offset", free_offset())


@case("status", 4)
def nothing_that_is_waited_for(folder: Path) -> int:
    return of("status", "--wait", "0.2", "--port-offset", free_offset())


@case("scale", 0)
def scaled(folder: Path) -> int:
    with running(folder) as up:
        return of("scale", "router=1", "--port-offset", up.offset)


@case("scale", 1)
def not_scaled(folder: Path) -> int:
    with running(folder) as up:
        return of("scale", "router=9", "--port-offset", up.offset)


@case("scale", 4)
def scale_of_nothing(folder: Path) -> int:
    return of("scale", "router=1", "--port-offset", free_offset())


@case("down", 0)
def ended(folder: Path) -> int:
    with running(folder) as up:
        return of("down", "--port-offset", up.offset)


@case("down", 3)
def not_waited_for(folder: Path) -> int:
    with running(folder) as up:
        return of("down", "--timeout", 0, "--port-offset", up.offset)


@case("down", 4)
def end_of_nothing(folder: Path) -> int:
    return of("down", "--port-offset", free_offset())


def reloaded(folder: Path, again: str) -> int:
    with running(folder) as up:
        (up.data / "again.json").write_text(again)
        return of("reload", "--port-offset", up.offset)


case("reload", 0)(lambda folder: reloaded(folder, "{}"))
case("reload", 1)(lambda folder: reloaded(folder, "{"))
case("reload", 3)(lambda folder: reloaded(folder, '{"router": "another"}'))
case("reload", 4)(lambda folder: of("reload", "--port-offset", free_offset()))


@case("logs", 0)
def logs_shown(folder: Path) -> int:
    configuration(folder)
    return of("logs", "--data", folder / "stored")


@case("logs", 1)
def no_such_log(folder: Path) -> int:
    configuration(folder)
    return of("logs", "none", "--data", folder / "stored")


@case("flavor", 0)
def flavor_added(folder: Path) -> int:
    return of("flavor", "add", "f", "--template", "queue-inmemory", "--config", configuration(folder))


@case("flavor", 1)
def no_such_flavor(folder: Path) -> int:
    return of("flavor", "show", "f", "--config", configuration(folder))


@case("config", 0)
def valid_configuration(folder: Path) -> int:
    return of("config", "check", configuration(folder))


@case("config", 1)
def invalid_configuration(folder: Path) -> int:
    config = configuration(folder)
    (config / "flavors.json").write_text("{")
    return of("config", "check", config)


@case("backup", 0)
def backed_up(folder: Path) -> int:
    config = configuration(folder)
    return of("backup", folder / "made", "--config", config, "--data", folder / "stored")


@case("backup", 1)
def nothing_to_back_up(folder: Path) -> int:
    return of("backup", folder / "made", "--config", folder, "--data", folder)


@case("restore", 0)
def restored(folder: Path) -> int:
    assert backed_up(folder) == 0
    return of("restore", folder / "made", "--config", folder / "c", "--data", folder / "d")


@case("restore", 1)
def no_backup(folder: Path) -> int:
    return of("restore", folder, "--config", folder / "c", "--data", folder / "d")


@case("version", 0)
def version_shown(folder: Path) -> int:
    return of("version", "--port-offset", free_offset())


@case("help", 0)
def help_shown(folder: Path) -> int:
    return of("help", "send")


def asking(link: ControlLink) -> None:
    """A peer that has one request, and accepts its reply."""
    if isinstance(link, ControlSender):
        link.accept()
        link.send(proton.Message(body="?", reply_to="replies", correlation_id="1"))
        return
    assert isinstance(link, ControlReceiver)
    link.on_message = Delivery.accept
    link.accept()
    link.window = 1
    link.grant(1)


@case("request", 0)
def request_answered(folder: Path) -> int:
    with peer(answering(ANSWERS)) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--subject", "sessions", "--timeout", 60)


@case("request", 1)
def request_rejected(folder: Path) -> int:
    with peer(answering({})) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--timeout", 60)


@case("request", 3)
def request_without_reply(folder: Path) -> int:
    def taken(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.proton_link.source.address = "replies"
            link.accept()
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(taken) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--timeout", PASSES)


@case("reply", 0)
def reply_accepted(folder: Path) -> int:
    with peer(asking) as port:
        return of("reply", "-a", f"127.0.0.1:{port}/q", "--count", 1, "--timeout", 60)


@case("reply", 3)
def no_request(folder: Path) -> int:
    with peer(giving()) as port:
        return of("reply", "-a", f"127.0.0.1:{port}/q", "--count", 1, "--timeout", 0.5)


@case("address", 0)
def added(folder: Path) -> int:
    return of("address", "add", "b", "--type", "anycast", "--config", configuration(folder))


@case("address", 1)
def added_twice(folder: Path) -> int:
    return of("address", "add", "a", "--type", "anycast", "--config", configuration(folder))


@case("address", 1)
def listed_from_nowhere(folder: Path) -> int:
    return of("address", "list", "--config", folder / "none")


@case("address", 4)
def forced_while_nothing_runs(folder: Path) -> int:
    config = configuration(folder)
    return of("address", "remove", "a", "--force", "--config", config, "--port-offset", free_offset())


@case("user", 0)
def user_added(folder: Path) -> int:
    return of("user", "add", "bob", "--generate", "--config", configuration(folder))


@case("user", 1)
def user_added_twice(folder: Path) -> int:
    return of("user", "add", "alice", "--generate", "--config", configuration(folder))


@case("user", 1)
def user_not_allowed(folder: Path) -> int:
    return of("user", "check", "alice", "send", "a", "--config", configuration(folder))


@case("send", 0)
def accepted(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.accept())) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 1)
def released(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.release())) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 1)
def rejected(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.reject("amqp:not-allowed", "no"))) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 3)
def no_credit(folder: Path) -> int:
    with peer(taking(lambda delivery, _: None, credit=0)) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5, "--timeout", PASSES)


@case("send", 3)
def no_outcome(folder: Path) -> int:
    with peer(taking(lambda delivery, _: None)) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5, "--timeout", PASSES)


@case("receive", 0)
def received(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--count", 2, "--timeout", 60)


@case("receive", 0)
def received_as_long_as_something_came(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--timeout", 1)


@case("receive", 1)
def no_such_subscription(folder: Path) -> int:
    with peer(refusing) as port:  # by a null source: subscriptions are looked for by their names
        return of("receive", "-a", f"127.0.0.1:{port}/t", "--durable", "sub", "--unsubscribe")


@case("receive", 3)
def too_few(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--count", 3, "--timeout", 1)


@case("publish", 0)
def acknowledged(folder: Path) -> int:
    with mqtt_peer(Broker()) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}")


@case("publish", 1)
def publications_refused(folder: Path) -> int:
    with mqtt_peer(Broker(reason=0x97)) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}")


@case("publish", 3)
def no_acknowledgement(folder: Path) -> int:
    with mqtt_peer(Broker(acknowledges=False)) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}", "--timeout", PASSES)


@case("subscribe", 0)
def printed(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--count", 2, "--timeout", 60)


@case("subscribe", 0)
def printed_as_long_as_something_came(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--timeout", 1)


@case("subscribe", 3)
def too_few_messages(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--count", 3, "--timeout", 1)


@case("subscribe", 4)
def filter_refused(folder: Path) -> int:
    with mqtt_peer(Broker(reason=0x87)) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}")


@case("bench", 0)
def measured(folder: Path) -> int:
    with peer(passing_on()) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


@case("bench", 1)
def messages_of_others(folder: Path) -> int:
    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            giving("somebody else's")(link)
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(attached) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


@case("bench", 3)
def nothing_came_through(folder: Path) -> int:
    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.accept()
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(attached) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


def deploying(folder: Path, helm: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """`enmasse deploy` with a shell script as helm."""
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\n{helm}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = [ENMASSE, "deploy", "--namespace", "n"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def sparking(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`enmasse spark` with a folder of its own for its jobs."""
    return enmasse("spark", *words, env={"XDG_STATE_HOME": str(folder / "state"), **(env or {})})


@case("spark", 0)
def no_job_runs(folder: Path) -> int:
    return sparking(folder, "status").returncode


@case("spark", 1)
def no_such_job(folder: Path) -> int:
    return sparking(folder, "stop", "other").returncode


@case("spark", 1)
def no_table_to_draw(folder: Path) -> int:
    (folder / "p.toml").write_text(f'[source]\naddress = "a"\nwork = "{folder}"\n[windows]\naddress = "w"\n')
    done = sparking(folder, "chart", str(folder / "p.toml"), "windows", str(folder / "p.png"))
    assert "has no section [table]" in done.stderr and "spark.chart.failed" in done.stderr
    return done.returncode


@case("spark", 2)
def no_java(folder: Path) -> int:
    (folder / "job.py").touch()
    done = sparking(folder, "run", str(folder / "job.py"), env={"JAVA_HOME": str(folder)})
    assert "Java 17" in done.stderr
    return done.returncode


@case("spark", 130)
def interrupted_while_a_job_runs(folder: Path) -> int:
    (folder / "job.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(1000)")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    command = [ENMASSE, "spark", "run", str(folder / "job.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=DEADLINE)
    assert shown == "job is stopped\n"
    return process.returncode


@case("spark", 141)
def nobody_reads_the_jobs(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    done = processes.run(processes.COMMAND, "spark", "status", "--json", stdout=writing)
    os.close(writing)
    return done.returncode


@case("deploy", 0)
def all_is_ready(folder: Path) -> int:
    process = deploying(folder, "exit 0")
    process.communicate(timeout=DEADLINE)
    return process.returncode


@case("deploy", 1)
def helm_failed(folder: Path) -> int:
    process = deploying(folder, "echo the cluster is gone >&2; exit 7")
    _, shown = process.communicate(timeout=DEADLINE)
    assert "the cluster is gone" in shown
    return process.returncode


@case("deploy", 2)
def no_helm(folder: Path) -> int:
    done = enmasse("deploy", "--namespace", "n", env={"PATH": str(folder)})
    assert "needs helm" in done.stderr
    return done.returncode


@case("deploy", 130)
def interrupted_while_helm_waits(folder: Path) -> int:
    process = deploying(folder, "touch $(dirname $0)/running; exec sleep 600")
    wait_for("helm runs", (folder / "running").exists)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=DEADLINE)
    assert "helm rollback" in shown and "Traceback" not in shown
    return process.returncode


@case("deploy", 141)
def nobody_reads_that_it_is_ready(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    process = deploying(folder, "exit 0", writing)
    os.close(writing)
    process.communicate(timeout=DEADLINE)
    return process.returncode


# What is so of several commands


def wrong_usage(command: str) -> Case:
    def run(folder: Path) -> int:
        done = enmasse(command, "--nonsense")
        assert "Usage:" in done.stderr
        return done.returncode

    return run


def no_connection(command: str) -> Case:
    def run(folder: Path) -> int:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            return of(command, "-a", f"127.0.0.1:{nobody.getsockname()[1]}/q", *(["x"] if command == "send" else []))

    return run


def no_mqtt_connection(command: str) -> Case:
    def run(folder: Path) -> int:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            return of(command, *(option.format(port=nobody.getsockname()[1]) for option in OPTIONS[command]))

    return run


def client_refused(command: str) -> Case:
    def run(folder: Path) -> int:
        with mqtt_peer(Broker(connack=0x87)) as port:
            return of(command, *(option.format(port=port) for option in OPTIONS[command]))

    return run


def address_refused(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(refusing) as port:
            return of(command, "-a", f"127.0.0.1:{port}/q", *(["x"] if command == "send" else []))

    return run


def answered(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(answering(ANSWERS)) as port:
            return of(command, *ASKS[command], "--port-offset", port - OPERATORS_PORT)

    return run


def not_done(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(answering({})) as port:
            return of(command, *ASKS[command], "--port-offset", port - OPERATORS_PORT)

    return run


def nobody_to_ask(command: str) -> Case:
    return lambda folder: of(command, *ASKS[command], "--port-offset", free_offset())


def into(stdout: int, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command that has something to say with this as its standard output."""

    def run(**given: object) -> subprocess.CompletedProcess[str]:
        arguments = [option.format(folder=folder, **given) for option in OPTIONS[command]]
        return processes.run(processes.COMMAND, command, *arguments, stdout=stdout)

    if command in ("scale", "down", "reload"):
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


def waiting_for_a_suite(folder: Path) -> int:
    """Ctrl-C in `status --wait`: between two looks, too."""
    looked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        offset = other.getsockname()[1] - 8079

        def look() -> None:
            connection, _ = other.accept()
            connection.close()
            looked.set()

        thread = threading.Thread(target=look)
        thread.start()
        command = [ENMASSE, "status", "--json", "--wait", "60", "--port-offset", str(offset)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert looked.wait(DEADLINE)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE)
        thread.join()
    assert "Traceback" not in err
    return process.returncode


_EACH = (
    "init", "up", "down", "reload", "status", "logs", "scale", "address", "flavor", "config", "user", *ASKS, "send",
    "receive", "request", "reply", "publish", "subscribe", "bench", "backup", "restore", "version", "help",
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
for name in ASKS:
    case(name, 0)(answered(name))
    case(name, 1)(not_done(name))
    case(name, 4)(nobody_to_ask(name))
for name in ("send", "receive", "request", "reply", "bench"):
    case(name, 4)(no_connection(name))
    case(name, 4)(address_refused(name))
for name in ("publish", "subscribe"):
    case(name, 4)(no_mqtt_connection(name))
    case(name, 4)(client_refused(name))
case("status", 130)(waiting_for_a_suite)
case("connection", 2)(wrong_usage("connection"))
case("connection", 4)(lambda folder: of("connection", "list", "--port-offset", free_offset()))
case("space", 4)(lambda folder: of("space", "list", "--port-offset", free_offset()))
for command in ("space", "top", "events", "token"):
    case(command, 2)(wrong_usage(command))
case("token", 4)(lambda folder: of("token", "list", "--port-offset", free_offset()))
case("token", 1)(lambda folder: of("token", "add", "ci", "--port-offset", free_offset()))
case("top", 4)(lambda folder: of("top", "--once", "--port-offset", free_offset()))
case("events", 4)(lambda folder: of("events", "--port-offset", free_offset()))
ELSEWHERE = [
    ("connection", 0), ("connection", 1), ("space", 0), ("space", 1), ("token", 0), ("top", 0), ("events", 0),
    ("events", 1),
    *(("context", n) for n in range(3)),
]  # fmt: skip
"""Cells that tests/console has, with a console that answers: test_commands, test_spaces, test_top, test_contexts."""


def test_the_table_has_no_other_cells() -> None:
    assert sorted(of_the_table()) == sorted([*CASES, *ELSEWHERE])


@pytest.mark.parametrize(
    ("run", "status"),
    [
        pytest.param(
            run,
            status,
            id=f"{command}-{status}-{run.__qualname__.partition('.')[0]}",
            marks=[pytest.mark.slow] if run in OF_THE_FRAME else [],
        )
        for (command, status), runs in CASES.items()
        for run in runs
    ],
)
def test_each_cell(run: Case, status: int, tmp_path: Path) -> None:
    assert run(tmp_path) == status


def test_what_cannot_be_said_changes_no_status(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        for arguments in (["status", "--port-offset", str(free_offset())], ["send", "-a", "127.0.0.1:1/q", "x"]):
            assert subprocess.run([ENMASSE, *arguments], stderr=full, timeout=DEADLINE).returncode == 4
        assert subprocess.run([ENMASSE, "send"], stderr=full, timeout=DEADLINE).returncode == 2
