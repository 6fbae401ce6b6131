"""`enmasse up` without options, and options from the environment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from enmasse.cli.registry import COMMANDS, FORMER, OF_OTHERS, SECTIONS, WITHOUT_VARIABLE, group
from tests.cli.running import Up, enmasse, free_offset, wait_for
from tests.kit.waiting import DEADLINE

NAMES = {"myqueue", "mytopic", "mqtt", "anycast", "broadcast"}


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "", **more}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A suite started without options, by a user who has no folder of EnMasse yet."""
    home, offset = tmp_path_factory.mktemp("home"), free_offset()
    folders = home / f".config/enmasse-{offset}", home / f".local/share/enmasse-{offset}"
    variables = environment(home, ENMASSE_PORT_OFFSET=str(offset), ENMASSE_LOG_LEVEL="info broker=debug")
    with Up(*folders, fake=False, offset=offset, environment=variables) as up:
        yield up.until_ready()
        assert up.end() == 0
        assert [event["event"] for event in logged(up, "enmasse")][-1] == "component.process.stopped"
        assert not [line for line in (*up.lines, *up.errors) if line.startswith("{")], "the log is not for the terminal"


def welcome(up: Up) -> list[str]:
    """What follows the ready line."""
    wait_for(lambda: up.lines[-1].startswith("  ") and "address add" in up.lines[-1], what="the last command")
    return up.lines[up.lines.index("EnMasse is ready") + 1 :]


def test_it_makes_its_folders_and_names_them(up: Up) -> None:
    assert up.lines[0] == f"wrote addresses.json, flavors.json, README.md to {up.config}"
    assert [line.split() for line in welcome(up)[1:8]] == [
        ["AMQP", f"amqp://127.0.0.1:{5672 + up.offset}"],
        ["MQTT", f"mqtt://127.0.0.1:{1883 + up.offset}"],
        ["WS", f"ws://127.0.0.1:{8083 + up.offset}/mqtt"],
        ["WS", f"ws://127.0.0.1:{8083 + up.offset}/amqp"],
        ["CONSOLE", f"http://127.0.0.1:{8080 + up.offset}"],
        ["config", str(up.config)],
        ["data", str(up.data)],
    ]
    assert {path.name for path in up.config.iterdir()} == {"addresses.json", "flavors.json", "README.md"}
    assert (up.data / "format.json").exists()
    assert {a["name"] for a in up.status()["addresses"]} >= NAMES


def logged(up: Up, component: str) -> list[dict[str, Any]]:
    """The events in a component's log."""
    return [json.loads(line) for line in (up.data / "logs" / f"{component}.log").read_text().splitlines()]


def test_each_component_has_its_log_level(up: Up) -> None:
    levels = {c["kind"]: json.loads((up.data / "run" / f"{c['name']}.json").read_text())["log_level"]
              for c in up.status()["components"]}  # fmt: skip
    assert levels == {
        "configserv": "info", "ragent": "info", "storage_controller": "info", "router": "info", "broker": "debug",
        "subserv": "info", "mqtt_lwt": "info", "mqtt_gateway": "info", "console": "info",
    }  # fmt: skip


def test_the_log_has_starts_deaths_and_changes(up: Up) -> None:
    here = {"ENMASSE_PORT_OFFSET": str(up.offset)}
    assert logged(up, "enmasse")[0].items() >= {"event": "suite.start.begun", "config": str(up.config)}.items()
    pid = up.pids()["ragent"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: up.runs("ragent", after=pid))
    events = [(e["event"], e.get("pid")) for e in logged(up, "enmasse") if e.get("component") == "ragent"]
    restart = events[events.index(("component.process.ended", None)) :]
    assert restart[1:3] == [
        ("component.process.started", up.pids()["ragent"]),
        ("component.readiness.gained", up.pids()["ragent"]),
    ]
    assert enmasse("address", "add", "stays", "--type", "anycast", env=here).returncode == 0
    assert enmasse("status", "--wait", "120", env=here).returncode == 0
    changes = [e for e in logged(up, "configserv") if e["event"] == "configserv.configuration.changed" and "added" in e]
    assert "stays" in changes[-1]["added"] and changes[-1]["file"] == "addresses.json"
    applied = [e for e in logged(up, "enmasse") if e["event"] == "suite.configuration.applied"]
    assert applied[-1]["sha256"] == up.status()["config"]["addresses.json"]


def test_what_it_suggests_works_as_it_is(up: Up) -> None:
    suggested = [line for line in welcome(up) if line.startswith("  ")]
    words = ["status", "send", "receive", "publish", "subscribe", "address"]
    for line, word in zip(suggested, words, strict=True):
        assert f" {word} " in line
        done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if word == "receive":
            assert done.stdout == "hello\n"
        if word == "subscribe":
            assert done.stdout == "21.5\n"
    assert "orders" in json.loads((up.config / "addresses.json").read_text())


def test_only_the_entry_points_are_shown(up: Up) -> None:
    welcome(up)
    internal = set(json.loads((up.data / "run" / "ports.json").read_text()).values()) | {5673 + up.offset}
    # An address that an earlier test has added may still be on its way.
    shown = enmasse("status", "--wait", "60", env={"ENMASSE_PORT_OFFSET": str(up.offset)}).stdout
    assert re.match("ready: [0-9]+ of [0-9]+ components, ([0-9]+) of \\1 addresses, ", shown)
    assert shown.splitlines()[2:7] == [
        f"AMQP    amqp://127.0.0.1:{5672 + up.offset}",
        f"MQTT    mqtt://127.0.0.1:{1883 + up.offset}",
        f"WS      ws://127.0.0.1:{8083 + up.offset}/mqtt",
        f"WS      ws://127.0.0.1:{8083 + up.offset}/amqp",
        f"CONSOLE http://127.0.0.1:{8080 + up.offset}",
    ]
    status = enmasse("status", "--json", env={"ENMASSE_PORT_OFFSET": str(up.offset)}).stdout
    pids = {str(each["pid"]) for each in json.loads(status)["components"]}  # a port may be the same number
    for port in internal:
        assert str(port) not in set(shown.replace(str(up.process.pid), "").split()) - pids, port
        assert f":{port}" not in shown and f":{port}" not in "\n".join(up.lines)


def test_other_commands_find_the_suite_by_its_variable(up: Up) -> None:
    here = {"ENMASSE_PORT_OFFSET": str(up.offset)}
    assert enmasse("status", "--wait", "120", env=here).returncode == 0
    assert enmasse("send", "mytopic", "to nobody", env=here).returncode == 0
    sent = enmasse("send", "myqueue", env={**here, "ENMASSE_COUNT": "2", "ENMASSE_JSON": "1", "ENMASSE_TIMEOUT": "60"})
    assert json.loads(sent.stdout)["accepted"] == 2
    assert enmasse("receive", "myqueue", "--timeout", "60", env={**here, "ENMASSE_COUNT": "2"}).returncode == 0
    listed = enmasse("address", "list", env={**here, "ENMASSE_JSON": "1"})
    assert {a["phase"] for a in json.loads(listed.stdout)["addresses"]} == {"Active"}
    there = {"ENMASSE_ADDRESS": f"127.0.0.1:{5672 + up.offset}/myqueue"}
    assert enmasse("send", "a body", env=there).returncode == 0
    assert enmasse("receive", env={**there, "ENMASSE_COUNT": "1", "ENMASSE_TIMEOUT": "60"}).stdout == "a body\n"


def test_devices_may_publish_to_any_topic_without_any_configuration(up: Up) -> None:
    here = {"ENMASSE_PORT_OFFSET": str(up.offset)}
    told = enmasse("publish", "sensors/temp", "21", "--retain", env=here)
    assert told.returncode == 0, told.stderr
    assert "Did you mean" not in told.stderr
    wrong = enmasse("publish", "mytopc/x", "21", env=here)
    assert "the topic 'mytopc/x' has no address of its own. Did you mean 'mytopic'?" in wrong.stderr
    assert enmasse("subscribe", "sensors/#", "--count", "1", "-v", env=here).stdout == "sensors/temp 21\n"
    assert enmasse("publish", "sensors/temp", "", "--retain", env=here).returncode == 0


def test_existing_files_are_left_alone(tmp_path: Path) -> None:
    """An own configuration in the default folder is used as it is."""
    offset = free_offset()
    config = tmp_path / "xdg" / f"enmasse-{offset}"
    config.mkdir(parents=True)
    own = {"addresses.json": '{"mine": {"type": "anycast"}}', "flavors.json": "{}"}
    for name, text in own.items():
        (config / name).write_text(text)
    variables = environment(
        tmp_path / "home",
        XDG_CONFIG_HOME=str(tmp_path / "xdg"),
        XDG_DATA_HOME=str(tmp_path / "data"),
        ENMASSE_PORT_OFFSET=str(offset),
    )
    with Up(config, tmp_path / "data" / f"enmasse-{offset}", fake=False, offset=offset, environment=variables) as up:
        up.until_ready()
        assert [a["name"] for a in up.status()["addresses"]] == ["mine"]
        assert (up.data / "format.json").exists()
        assert up.end() == 0
    assert {path.name: path.read_text() for path in config.iterdir()} == own


def test_a_file_of_two_is_no_empty_folder(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "enmasse"
    config.mkdir(parents=True)
    (config / "addresses.json").write_text("{}")
    done = enmasse("up", env=environment(tmp_path))
    assert done.returncode == 2 and "flavors.json" in done.stderr
    assert [path.name for path in config.iterdir()] == ["addresses.json"]


@pytest.mark.parametrize("home", ["", "a/relative/path"])
def test_a_home_folder_without_a_full_path_is_not_used(home: str) -> None:
    """Neither the root directory nor the current one gets the files."""
    done = enmasse("up", env={**environment(Path()), "HOME": home, "ENMASSE_PORT_OFFSET": str(free_offset())})
    assert (done.returncode, done.stdout) == (2, "")
    assert "set HOME to its full path, or name a folder with --config DIR" in done.stderr


def test_a_default_folder_that_is_a_file(tmp_path: Path) -> None:
    offset = free_offset()
    file = tmp_path / ".config" / f"enmasse-{offset}"
    file.parent.mkdir()
    file.touch()
    done = enmasse("up", env=environment(tmp_path, ENMASSE_PORT_OFFSET=str(offset)))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} is not a directory. Name a folder with --config DIR" in done.stderr


def test_folders_that_the_system_refuses(tmp_path: Path) -> None:
    refused = tmp_path / ("x" * 300)
    variables = environment(tmp_path, ENMASSE_PORT_OFFSET=str(free_offset()))
    up = enmasse("up", "--data", refused, env=variables)
    assert up.returncode == 2 and f"data directory {refused}: File name too long" in up.stderr
    add = enmasse("address", "add", "a", "--type", "anycast", "--config", refused, env=variables)
    assert add.returncode == 1 and add.stderr == (
        f"configuration directory {refused}: File name too long. [configuration.folder.not-readable]\n"
    )


def test_addresses_are_edited_where_up_reads_them(tmp_path: Path) -> None:
    """Without a suite and without a file in this directory."""
    offset = free_offset()
    variables = environment(tmp_path, ENMASSE_PORT_OFFSET=str(offset))
    folder = tmp_path / ".config" / f"enmasse-{offset}"
    assert enmasse("init", folder, env=variables).returncode == 0
    assert enmasse("address", "add", "orders", "--type", "anycast", env=variables).returncode == 0
    assert "orders" in json.loads((folder / "addresses.json").read_text())


@pytest.mark.parametrize(
    ("variable", "value", "command"),
    [
        ("ENMASSE_PORT_OFFSET", "x", "status"),
        ("ENMASSE_TIMEOUT", "nan", "receive"),
        ("ENMASSE_LOG_LEVEL", "broker=x", "up"),
        ("ENMASSE_LOG_LEVEL", "rooter=info", "up"),
        ("ENMASSE_MQTT_LIMIT", "connection=5", "up"),
        ("ENMASSE_MQTT_LIMIT", "connections=0", "up"),
        ("ENMASSE_MQTT_LIMIT", "connections=many", "up"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, value: str, command: str) -> None:
    done = enmasse(command, env={variable: value})
    assert done.returncode == 2 and variable in done.stderr
    assert variable not in enmasse("status", "--port-offset", "-1").stderr


WITH_VARIABLES = [name for name in COMMANDS if name != "context"]


def options(command: click.Command) -> Iterator[click.Option]:
    found = (option for option in command.params if isinstance(option, click.Option))
    yield from (option for option in found if option.name not in WITHOUT_VARIABLE)
    for subcommand in getattr(command, "commands", {}).values():
        yield from options(subcommand)


@pytest.mark.parametrize("name", WITH_VARIABLES)
def test_every_option_has_a_variable(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    for option in options(command):
        names = [word[2:].upper().replace("-", "_") for word in option.opts if word.startswith("--")]
        assert option.envvar in [f"ENMASSE_{word}" for word in names], option.opts


def test_documented_are_the_variables_that_there_are() -> None:
    """docs/cli.md lists exactly those."""
    known = set()
    for name in WITH_VARIABLES:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        known |= {str(option.envvar) for option in options(command)}
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = text[text.index("## Environment variables") :].split("\n## ")[0]
    assert set(re.findall(r"ENMASSE_\w+", section)) == known


def test_a_variable_stands_for_one_kind_of_option() -> None:
    kinds: dict[str, set[tuple[bool, bool]]] = {}
    for name in WITH_VARIABLES:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        for option in options(command):
            kinds.setdefault(str(option.envvar), set()).add((option.is_flag, option.multiple))
    assert [variable for variable, found in kinds.items() if len(found) > 1] == []


def test_an_argument_that_is_not_utf8_is_wrong_usage() -> None:
    wrong = os.fsdecode(b"\xff bad")
    text, file = "write it in UTF-8", "use --file or stdin for what is no text"
    for words, remedy in (
        (("send", "q"), file), (("--context", "local", "request", "q"), file), (("receive", "q", "--selector"), text),
        (("user", "add"), text), (("up", "--config"), text), ((), text),
    ):  # fmt: skip
        done = enmasse(*words, wrong)
        told = f"Error: argument {len(words) + 1} is not UTF-8; {remedy}.\n"
        assert (done.returncode, done.stderr) == (2, told)
    done = enmasse("send", "q", "x", env={"ENMASSE_SUBJECT": wrong})
    assert done.returncode == 2 and done.stderr.startswith("Error: ENMASSE_SUBJECT is not UTF-8")


def test_former_words_and_underscores_still_work() -> None:
    others = {("address", word): now for word, now in OF_OTHERS.items()}
    for (name, former), now in (FORMER | others).items():
        shown = enmasse(name, "--help").stdout
        assert f"\n  {now} " in shown and f"\n  {former} " not in shown
        words = [enmasse(name, word, "--help").stdout.partition("\n")[2] for word in (former, now)]
        assert words[0] == words[1] != ""
    offset = free_offset()
    done = enmasse("status", "--port_offset", offset)
    assert done.returncode == 4 and f"127.0.0.1:{8079 + offset}" in done.stderr


def test_help_has_each_command_in_a_group() -> None:
    shown = enmasse("--help").stdout
    assert [f"\n{title}:\n" in shown for title in SECTIONS.values()] == [True] * len(SECTIONS)
    assert all(re.search(rf"^  {name} +\S", shown, re.MULTILINE) for name in COMMANDS)
