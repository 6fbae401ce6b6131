"""`enmasse backup --space` and `restore --space`, with kills in their middle, beside another space that is served."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from enmasse.testing import PROGRAM, Suite
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for
from tests.system import amqp_users
from tests.system.mqtt_of_spaces import PASSWORD, Device
from tests.system.mqtt_of_spaces import user as named
from tests.system.users import allow, entry

QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
TOPIC = {"type": "topic", "flavor": "small-persisted-topic"}
ADDRESSES = {"orders": {**QUEUE, "deadletter": "dead"}, "dead": QUEUE, "cast": {"type": "anycast"}, "news": TOPIC}
SUBSCRIPTION = ("receive", "news/day", "--durable", "kept", "--container", "reader")
NEWS = ["news 1", "news 2", "news 3"]
COUNT = 5000
"""Messages that wait: so many that a restore is killed between them."""


@pytest.fixture(scope="module")
def users() -> dict[str, Any]:
    return {"alice": entry(PASSWORD, allow("#", "$subctrl", "$lwt", "$sub/#"))}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, users: dict[str, Any]) -> Iterator[Suite]:
    files: dict[str, Any] = {"spaces.json": {"one": {}, "two": {}}, "users.json": users}
    for space in ("one", "two"):
        files |= {f"spaces/{space}/addresses.json": ADDRESSES, f"spaces/{space}/users.json": users}
    with running_with_spaces(tmp_path_factory.mktemp("spaces"), files, addresses=ADDRESSES, options=()) as suite:
        suite.up()
        run(suite, "send", "orders", "--count", str(COUNT), "--space", "one")
        run(suite, "send", "orders", "refused", "--space", "two")
        run(suite, "receive", "orders", "--reject", "--count", "1", "--space", "two")
        run(suite, "send", "orders", "of two", "--space", "two")
        yield suite
        assert suite.down() == 0


@pytest.fixture(scope="module")
def made(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "one"
    run(suite, "backup", str(folder), "--space", "one")
    return folder


@pytest.fixture
def alice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "alice.pw"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    monkeypatch.setenv("ENMASSE_USER", "alice")
    monkeypatch.setenv("ENMASSE_PASSWORD_FILE", str(file))


def run(suite: Suite, *arguments: str, status: int = 0) -> str:
    done = suite.command(*arguments, "--port-offset", str(suite.offset))
    assert done.returncode == status, (arguments, done.stdout[-500:], done.stderr)
    return done.stdout + done.stderr


def numbers(suite: Suite, space: str) -> list[int]:
    lines = run(suite, "receive", "orders", "--browse", "--json", "--space", space).splitlines()
    return [json.loads(line)["body"]["sequence"] for line in lines]


def two_is_untouched(suite: Suite) -> None:
    assert run(suite, "receive", "orders", "--browse", "--space", "two") == "of two\n"
    assert run(suite, "receive", "dead", "--browse", "--space", "two") == "refused\n"


def killed_when(suite: Suite, reached: Callable[[], object], *arguments: str) -> None:
    """Start a command, and kill it with SIGKILL as soon as that is so."""
    command = [str(PROGRAM), *arguments, "--port-offset", str(suite.offset)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: reached() or process.poll() is not None, "the middle of the command")
    finally:
        process.kill()
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, output


def begun(suite: Suite) -> bool:
    return (suite.config / "spaces/killed/.restoring").exists()


def sending(suite: Suite) -> bool:
    """Return whether the queue is there, to which the command then sends."""
    rows = {row["name"]: row for row in suite.status()["addresses"]}
    return "!!killed/orders" in rows and bool(rows["!!killed/orders"]["ready"])


@pytest.mark.usefixtures("alice")
def test_a_space_comes_back_under_another_name(suite: Suite, made: Path) -> None:
    run(suite, "send", "orders", "later", "--space", "one")
    done = run(suite, "restore", str(made), "--space", "again")
    assert f"restored {COUNT} messages of one" in done
    assert numbers(suite, "again") == list(range(1, COUNT + 1))
    assert run(suite, "receive", "orders", "--browse", "--space", "one").endswith("later\n")
    two_is_untouched(suite)
    text = (made / "space.json").read_text() + "".join(file.read_text() for file in (made / "files").iterdir())
    assert "two" not in text and not list(made.glob("copies*"))
    assert run(suite, "restore", str(made), "--space", "again", status=1).endswith("[space.name.in-use]\n")


@pytest.mark.slow  # test_what_is_kept_for_clients_comes_back has them too
@pytest.mark.usefixtures("alice")
def test_durable_subscriptions_come_with_their_messages(suite: Suite, tmp_path: Path) -> None:
    for space in ("one", "two"):
        run(suite, *SUBSCRIPTION, "--timeout", "0.5", "--space", space)
        for body in NEWS if space == "one" else ["of two"]:
            run(suite, "send", "news/day", body, "--space", space)
    run(suite, "backup", str(tmp_path / "made"), "--space", "one")
    run(suite, "restore", str(tmp_path / "made"), "--space", "followed")
    for space in ("followed", "one"):
        run(suite, "send", "news/day", "last", "--space", space)
        lines = run(suite, *SUBSCRIPTION, "--count", str(len(NEWS) + 1), "--timeout", "60", "--space", space)
        assert lines.splitlines() == [*NEWS, "last"]
    assert run(suite, *SUBSCRIPTION, "--count", "1", "--timeout", "60", "--space", "two") == "of two\n"


@pytest.mark.slow  # names of dead letters in a space have tests
@pytest.mark.usefixtures("alice")
def test_a_dead_letter_says_where_it_came_from_by_the_name_there(suite: Suite, tmp_path: Path) -> None:
    run(suite, "backup", str(tmp_path / "two"), "--space", "two")
    run(suite, "restore", str(tmp_path / "two"), "--space", "second")
    (line,) = run(suite, "receive", "dead", "--browse", "--json", "--space", "second").splitlines()
    assert "!!" not in line and json.loads(line)["annotations"]["x-opt-ORIG-ADDRESS"] == "orders"
    two_is_untouched(suite)


@pytest.mark.slow  # a restore that is not killed has a test
@pytest.mark.usefixtures("alice")
def test_a_restore_that_is_killed_lets_no_client_in_and_is_repeated(suite: Suite, made: Path) -> None:
    for middle in (begun, sending):
        killed_when(suite, partial(middle, suite), "restore", str(made), "--space", "killed")
        text = run(suite, "receive", "orders", "--browse", "--space", "killed", status=4)
        assert "[server.login.refused]" in text
        two_is_untouched(suite)
    run(suite, "restore", str(made), "--space", "killed")
    assert numbers(suite, "killed") == list(range(1, COUNT + 1))
    two_is_untouched(suite)


@pytest.mark.slow
def test_a_backup_that_is_killed_is_refused(suite: Suite, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    killed_when(suite, lambda: (folder / "copies").exists(), "backup", str(folder), "--space", "one")
    text = run(suite, "restore", str(folder), "--space", "never", status=1)
    assert text.endswith("[backup.files.damaged]\n")
    assert "never" not in json.loads((suite.config / "spaces.json").read_text())
    run(suite, "backup", str(tmp_path / "again"), "--space", "one")


def test_what_cannot_be_is_named(suite: Suite, made: Path, tmp_path: Path) -> None:
    text = run(suite, "backup", str(tmp_path / "x"), "--space", "none", status=1)
    assert "there is no address space 'none'" in text
    text = run(suite, "restore", str(made), "--config", str(tmp_path / "c"), "--data", str(tmp_path / "d"), status=1)
    assert "is the backup of one address space" in text


# what services keep for clients

DAYS = [f"day {number}" for number in range(200)]
WORK = [f"work {number}" for number in range(20)]
KEPT = {"news/kept/a", "news/kept/b"}
DEVICE: dict[str, Any] = {"client_id": "device", "expiry": 3600}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, users: dict[str, Any]) -> Iterator[Suite]:
    """Another installation, which has a space of its own."""
    files: dict[str, Any] = {"spaces.json": {"two": {}}, "users.json": users}
    files |= {"spaces/two/addresses.json": ADDRESSES, "spaces/two/users.json": users}
    with running_with_spaces(tmp_path_factory.mktemp("fresh"), files, addresses=ADDRESSES, options=()) as suite:
        suite.up()
        fill(suite, "two").close()
        run(suite, "send", "orders", "of two", "--space", "two")
        yield suite
        assert suite.down() == 0


def fill(suite: Suite, space: str) -> Device:
    """Give a space a session with messages, a shared subscription, one by `$subctrl`, and retained messages. Return a
    client with a will."""
    with Device(suite, space, "sender") as sender:
        for topic in sorted(KEPT):
            sender.publish(topic, f"{topic} of {space}", retain=True)
        with Device(suite, space, **DEVICE) as device:
            device.subscribe("news/day")
            device.subscribe("$share/group/news/work")
        subctrl(suite, space, "subscribe")
        for body in DAYS:
            sender.publish("news/day", f"{body} of {space}")
        for body in WORK:
            sender.publish("news/work", f"{body} of {space}")
    return Device(suite, space, "dying", expiry=3600, will=("news/will", f"bye of {space}", 1, True))


def subctrl(suite: Suite, space: str, subject: str) -> list[str]:
    """Ask for a subscription, or for what there is; return the messages that wait for it."""
    connection = amqp_users.proton(suite, named(space), PASSWORD, container_id="watcher")
    try:
        replies = connection.create_receiver(None, dynamic=True)
        reply_to = replies.link.remote_source.address
        body = "news/day" if subject == "subscribe" else None
        asking = Message(subject=subject, correlation_id="watch", reply_to=reply_to, body=body)
        connection.create_sender("$subctrl").send(asking)
        reply = replies.receive(DEADLINE)
        if subject == "subscribe":
            return []
        assert reply.body == {"news/day": True}
        queue = connection.create_receiver(reply.properties["addresses"], credit=1)
        found = []
        for _ in DAYS:
            message = queue.receive(DEADLINE)  # its body is a part of it
            found.append(bytes(message.body).decode())
            queue.accept()
        return found
    finally:
        connection.close()


def retained(suite: Suite, space: str) -> set[str]:
    found = json.loads(run(suite, "retained", "list", "--space", space, "--json"))["retained"]
    assert {row["user"] for row in found} == {"alice"} and not any(row["withheld"] for row in found)
    return {row["topic"] for row in found}


def is_let_in(suite: Suite, space: str) -> bool:
    with contextlib.suppress(AssertionError), Device(suite, space, "sender"):
        return True
    return False


def is_whole(suite: Suite, space: str, of: str) -> None:
    """Fail unless a space has all that `fill` has given to the space `of`, and goes on with it."""
    with Device(suite, space, clean=False, **DEVICE) as device:
        assert device.present
        with Device(suite, space, "sender") as sender:
            sender.publish("news/day", "the last")
            sender.publish("news/work", "the last")
            found = [device.receive() for _ in range(len(DAYS) + len(WORK) + 2)]
    for topic, bodies in (("news/day", DAYS), ("news/work", WORK)):
        got = [body for at, body in found if at == topic]
        assert got == [*(f"{body} of {of}" for body in bodies), "the last"]
    assert subctrl(suite, space, "list") == [f"{body} of {of}" for body in DAYS]


@pytest.fixture(scope="module")
def filled(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backup of a space with a client that has a will."""
    dying = [fill(suite, space) for space in ("two", "one")]
    folder = tmp_path_factory.mktemp("kept") / "one"
    run(suite, "backup", str(folder), "--space", "one")
    for each in dying:
        each.close()
    return folder


@pytest.mark.slow  # test_a_space_comes_back_under_another_name
@pytest.mark.parametrize(("where", "space"), [("suite", "kept"), ("fresh", "one")])
def test_what_is_kept_for_clients_comes_back(
    request: pytest.FixtureRequest, filled: Path, where: str, space: str
) -> None:
    suite: Suite = request.getfixturevalue(where)

    def stored() -> bool:
        """Return whether the subscription service has written something of the space."""
        files = (suite.data / "subserv").glob("store.db*")
        return any(f"@{space}/".encode() in file.read_bytes() for file in files)

    killed_when(suite, stored, "restore", str(filled), "--space", space)
    assert not is_let_in(suite, space)
    run(suite, "restore", str(filled), "--space", space)
    wait_for(partial(is_let_in, suite, space), "clients are let in")
    text = (filled / "kept").read_text()
    assert "of two" not in text and "@two" not in text
    with Device(suite, space, "observer") as observer:
        observer.subscribe("news/will")
        assert observer.receive() == ("news/will", "bye of one")
    wait_for(lambda: retained(suite, space) == {*KEPT, "news/will"}, "all is retained")
    is_whole(suite, space, "one")
    if where == "fresh":
        assert retained(suite, "two") == KEPT
        is_whole(suite, "two", "two")
        assert run(suite, "address", "browse", "orders", "--space", "two").count("of two") == 1
