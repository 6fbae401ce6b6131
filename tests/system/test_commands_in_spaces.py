"""Commands in an address space: as the operator and as a user of it, each by the names there."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.cli.contexts.contexts import OF_ONE_SPACE, WITHOUT_SPACE
from enmasse.cli.registry import COMMANDS
from enmasse.cli.same_suite import WITH_SPACE
from enmasse.testing import Suite
from tests.console.client import Client
from tests.kit.marks import first_soon
from tests.kit.waiting import wait_for
from tests.system.mqtt_of_spaces import ALL, PASSWORD, Device, suite_with_spaces

OPERATOR, USER, NAMED = "operator", "alice", "alice@one"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with suite_with_spaces(tmp_path_factory.mktemp("commands")) as suite:
        yield suite


@pytest.fixture
def as_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands log in as alice."""
    file = tmp_path / "alice.pw"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    monkeypatch.setenv("ENMASSE_USER", USER)
    monkeypatch.setenv("ENMASSE_PASSWORD_FILE", str(file))


@pytest.fixture(params=[OPERATOR, USER, NAMED])
def caller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let commands log in as this caller; the operator has no user."""
    if request.param != OPERATOR:
        request.getfixturevalue("as_user")
        monkeypatch.setenv("ENMASSE_USER", request.param)
    return str(request.param)


def done(suite: Suite, *arguments: str, status: int = 0) -> str:
    """Run a command of this suite to its end, with this status; return what it prints on both streams."""
    outcome = suite.command(*arguments, "--port-offset", str(suite.offset))
    assert outcome.returncode == status, (arguments, outcome)
    return outcome.stdout + outcome.stderr


def test_each_command_takes_a_space_or_says_why_not(suite: Suite) -> None:
    assert WITH_SPACE | OF_ONE_SPACE | WITHOUT_SPACE.keys() == COMMANDS.keys()
    assert not WITH_SPACE & WITHOUT_SPACE.keys()
    group = ("space", "flavor", "config", "spark", "context")
    for command, why in WITHOUT_SPACE.items():
        sub = {"space": "list", "flavor": "list", "config": "check", "spark": "status", "context": "list"}
        arguments = (command, *((sub[command],) if command in group else ()), "--space", "one")
        outcome = suite.command(*arguments)
        assert outcome.returncode == 2 and f"`enmasse {command}` takes no --space: {why}" in outcome.stderr, outcome


def test_an_address_that_is_not_there_is_named_as_in_the_space(suite: Suite, caller: str) -> None:
    text = done(suite, "send", "jobz", "x", "--space", "one", status=4)
    assert "[address.name.unknown]" in text and "jobs" in text and "!!" not in text
    assert f"`enmasse address list --port-offset {suite.offset} --space one`" in text


def test_requests_are_answered_in_the_space(suite: Suite) -> None:
    """`reply`; `request`, `send` and `receive`: tests/tenants."""
    replying: list[str] = []
    arguments = ("reply", "jobs", "an answer", "--count", "1", "--timeout", "60", "--space", "one")
    thread = threading.Thread(target=lambda: replying.append(done(suite, *arguments)))
    thread.start()
    assert done(suite, "request", "jobs", "a question", "--timeout", "60", "--space", "one") == "an answer\n"
    thread.join()
    assert replying == ["a question\n"]


@pytest.mark.parametrize("caller", first_soon([NAMED, OPERATOR, USER]), indirect=True)
def test_a_benchmark_runs_in_the_space(suite: Suite, caller: str) -> None:
    found = json.loads(done(suite, "bench", "jobs", "--seconds", "0.1", "--json", "--space", "one"))
    assert found["received"] == found["accepted"] > 0 and found["address"] == "jobs"
    over_mqtt = ("bench", "jobs", "--seconds", "0.1", "--json", "--space", "one", "--protocol", "mqtt")
    if caller == OPERATOR:
        assert "[space.user.missing]" in done(suite, *over_mqtt, status=2)
        return
    found = json.loads(done(suite, *over_mqtt))
    assert found["received"] == found["accepted"] > 0 and found["protocol"] == "mqtt"


@pytest.mark.usefixtures("as_user")
def test_mqtt_is_published_and_subscribed_in_the_space(suite: Suite) -> None:
    for space in ("one", "two"):
        done(suite, "publish", "news/day", f"of {space}", "--retain", "--space", space)
    for space in ("one", "two"):
        arguments = ("subscribe", "news/#", "--count", "1", "--timeout", "20", "--space", space)
        assert done(suite, *arguments, "-v") == f"news/day of {space}\n"


def test_retained_messages_are_listed_and_cleared_in_the_space(suite: Suite) -> None:
    for space in ALL:
        with Device(suite, space) as device:
            for topic in ("news/kept/a", "news/kept/b", "news/kept/c"):
                device.publish(topic, "x", retain=True)

    def topics(*at: str) -> set[str]:
        found = json.loads(done(suite, "retained", "list", "+/kept/#", *at, "--json"))
        assert found["total"] == len(found["retained"])
        return {row["topic"] for row in found["retained"]}

    of = {"one": ("--space", "one"), "two": ("--space", "two"), "default": ()}
    every = {"news/kept/a", "news/kept/b", "news/kept/c"}
    for at in of.values():
        wait_for(partial(_equals, topics, at, every), "all are retained")
    assert "cleared 1 " in done(suite, "retained", "clear", "news/kept/a", *of["one"])
    assert "cleared 0 " in done(suite, "retained", "clear", "news/kept/a", *of["one"])
    done(suite, "retained", "clear", "news/kept/+", "--force", *of["two"])
    with Client(suite, **suite.operator_headers) as client:
        kept = "spaces/one/retained/news%2Fkept%2Fc"
        assert client("GET", kept).status == 200
        assert client("DELETE", "retained/!!one%2Fnews%2Fkept%2Fc").status == 404
        assert client("DELETE", kept).status == 204
        assert client("GET", kept).status == client("DELETE", kept).status == 404
    assert {space: topics(*at) for space, at in of.items()} == {
        "one": {"news/kept/b"}, "two": set(), "default": every,
    }  # fmt: skip


def test_a_user_is_added_in_the_space_whatever_folder_a_variable_names(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENMASSE_CONFIG", str(suite.config))
    done(suite, "user", "add", "guest", "--generate", "--space", "one")
    done(suite, "user", "allow", "guest", "manage", "#", "--space", "one")
    assert "guest" in done(suite, "user", "list", "--space", "one")
    assert "guest" not in done(suite, "user", "list") + (suite.config / "users.json").read_text()
    done(suite, "user", "remove", "guest", "--space", "one")


def _equals(found: Callable[..., set[str]], at: tuple[str, ...], expected: set[str]) -> bool:
    return found(*at) == expected


@pytest.mark.parametrize("as_tenant", [False, True], ids=["--space", "a context of the tenant"])
@pytest.mark.usefixtures("as_user")
def test_mqtt_clients_are_listed_and_disconnected_in_the_space(
    suite: Suite, as_tenant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    subscribing = ("subscribe", "news/#", "-i", "device", "--timeout", "60", "--no-retained", "--count", "1")
    thread = threading.Thread(target=lambda: ended.append(done(suite, *subscribing, "--space", "one", status=4)))
    thread.start()

    def clients(space: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(done(suite, "mqtt", "clients", "--json", "--space", space))["clients"]
        return found

    (row,) = wait_for(lambda: clients("one"), "the client is connected")
    assert row["client"] == "~alice@one/device" and "!!" not in json.dumps(row)
    assert clients("two") == []
    done(suite, "mqtt", "disconnect", row["client"], "--space", "two", status=1)

    def there(*command: str) -> str:
        if not as_tenant:
            return done(suite, *command, "--space", "one")
        outcome = suite.command(*command, "--context", "team")
        assert outcome.returncode == 0, outcome
        return outcome.stdout

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    here = (f"http://127.0.0.1:{8080 + suite.offset}", "--password-file", str(tmp_path / "alice.pw"))
    assert suite.command("context", "add", "team", *here, "--user", NAMED).returncode == 0
    assert re.search(r"^~alice@one/device +alice +yes", there("mqtt", "clients"), re.MULTILINE)
    assert re.search(r"mqtt +~alice@one/device +alice +yes", there("subscription", "list"), re.MULTILINE)
    there("mqtt", "disconnect", "device", "--owner", "alice")
    thread.join()
    assert "administrative action" in ended[0]


REFUSED = {
    "send": ("jobs", "x"),
    "receive": ("jobs", "--timeout", "5"),
    "request": ("jobs", "x"),
    "reply": ("jobs", "--timeout", "5"),
    "bench": ("jobs",),
    "publish": ("news", "x"),
    "subscribe": ("news", "--timeout", "5"),
}
MQTT = ("publish", "subscribe")


@pytest.mark.parametrize("command", REFUSED)
def test_a_space_that_is_not_there_refuses_as_a_wrong_password(
    suite: Suite, command: str, monkeypatch: pytest.MonkeyPatch, as_user: None
) -> None:
    unknown = done(suite, command, *REFUSED[command], "--space", "none", status=4)
    monkeypatch.setenv("ENMASSE_USER", "nobody")
    wrong = done(suite, command, *REFUSED[command], "--space", "one", status=4)
    stated = "The user was '{}': an address space has its own users"
    assert stated.format("alice@none") in unknown and stated.format("nobody@one") in wrong
    assert unknown.replace("alice@none", "nobody@one") == wrong and "[server.login.refused]" in wrong
    assert ("without ENMASSE_USER the command works there as the operator" in wrong) == (command not in MQTT)
    monkeypatch.delenv("ENMASSE_USER")
    mqtt = command in MQTT
    text = done(suite, command, *REFUSED[command], "--space", "none", status=2 if mqtt else 4)
    assert ("[space.user.missing]" if mqtt else "[server.login.refused]") in text


@pytest.mark.usefixtures("as_user")
def test_a_context_has_a_space_for_its_listeners(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    port = 8080 + suite.offset
    adding = ("context", "add", "team", f"http://127.0.0.1:{port}", "--user", "alice", "--space", "one")
    listeners = ("--amqp", suite.url, "--mqtt", f"mqtt://127.0.0.1:{suite.mqtt_port}")
    added = suite.command(*adding, *listeners, "--password-file", str(tmp_path / "alice.pw"))
    assert added.returncode == 0, added
    for command in (("send", "jobs", "in the context"), ("receive", "jobs", "--count", "1", "--timeout", "20")):
        outcome = suite.command(*command, "--context", "team")
        assert outcome.returncode == 0, outcome
    assert outcome.stdout == "in the context\n"
    assert suite.command("publish", "news", "x", "--context", "team").returncode == 0
    outcome = suite.command("send", "jobs", "x", "--context", "team", "--space", "none")
    assert outcome.returncode == 4 and "[server.login.refused]" in outcome.stderr
