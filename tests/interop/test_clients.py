"""Clients of other families against a running suite: protonj2 (Java), go-amqp (Go), rhea (JavaScript), fe2o3 (Rust)."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
from proton import Message, byte, int32, symbol, timestamp
from proton.utils import BlockingConnection

from enmasse.testing import Suite, running, wait_for
from tests.interop.clients import FAMILIES, Broken
from tests.kit.waiting import DEADLINE

pytestmark = pytest.mark.timeout(1200)  # where nobody has built the clients before, the first test does

LIMIT = 300
"""Seconds for one scenario; each of its steps gives up after 60."""
QUEUES = ("outcomes", "dead", "presettled", "ttl", "types")
SCENARIOS = [
    "queue", "outcomes", "anycast", "multicast", "topic", "request", "presettled", "large", "unknown", "ttl",
]  # fmt: skip
CONVERSING = ("protonj2",)
"""Families whose program takes the names of scenarios from standard input, one after the other."""
Run = Callable[[str], None]
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def addresses(family: str) -> dict[str, dict[str, str]]:
    """What the scenarios of a family use; each family has its own."""
    queue = {"type": "queue", "flavor": "small-persisted-queue"}
    return {
        **{f"{family}-{name}": queue for name in ("queue", *QUEUES)},
        f"{family}-outcomes": {**queue, "deadletter": f"{family}-dead"},
        f"{family}-topic": {"type": "topic", "flavor": "small-persisted-topic"},
        f"{family}-anycast": {"type": "anycast"},
        f"{family}-multicast": {"type": "multicast"},
        f"{family}-limbo": queue,
        f"{family}-limbo-topic": {"type": "topic", "flavor": "small-persisted-topic"},
    }


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    everything = {name: entry for family in FAMILIES for name, entry in addresses(family).items()}
    with running(tmp_path_factory.mktemp("interop"), everything) as suite:
        suite.up(240)
        yield suite


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def program(family: str) -> list[str]:
    try:
        return FAMILIES[family]()
    except Broken as error:
        pytest.fail(str(error), pytrace=False)


class Conversation:
    """A program that goes on from scenario to scenario: a JVM costs a second of processor time to start."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def run(self, scenario: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Timer(LIMIT, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(f"{scenario}\n")
            answer = self._process.stdout.readline().strip()
        finally:
            late.cancel()
        if answer != "ok":
            self.end()
            why = answer.replace("\t", "\n") or "the program has ended, or was killed because it did not end"
            pytest.fail(f"{scenario}: {why}", pytrace=False)

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def run_alone(command: list[str], scenario: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{scenario} did not end: {error.stdout!r} {error.stderr!r}", pytrace=False)
    if done.returncode:
        pytest.fail(f"{scenario}: exit status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.fixture(scope="module")
def run(suite: Suite, family: str, program: list[str]) -> Iterator[Run]:
    """Runs a scenario of the family, which checks itself."""
    where = ["127.0.0.1", str(5672 + suite.offset), f"{family}-"]
    if family not in CONVERSING:
        yield lambda scenario: run_alone([*program, scenario, *where], scenario)
        return
    conversation = Conversation([*program, *where])
    try:
        yield conversation.run
    finally:
        conversation.end()


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.slow
def test_scenario(suite: Suite, family: str, run: Run, scenario: str) -> None:
    run(scenario)
    nothing_is_left(suite, family)


@pytest.mark.parametrize("family", ["rhea"], indirect=True)  # its program can settle without an outcome
@pytest.mark.parametrize("scenario", ["limbo", "unstated"])
def test_a_settlement_without_an_outcome(suite: Suite, family: str, run: Run, scenario: str) -> None:
    run(scenario)
    nothing_is_left(suite, family)


def nothing_is_left(suite: Suite, family: str) -> None:
    """Wait until no message is in any queue or subscription of the family."""

    def is_empty() -> bool:
        held = [a["messages"] for a in suite.status()["addresses"] if a["name"].startswith(family)]
        return len(held) == len(addresses(family)) and not any(held)

    wait_for("no message left in any queue", is_empty)


def test_types_survive(suite: Suite, family: str, run: Run) -> None:
    """What another client sends, Proton reads with every type and value, and the other way round."""
    run("types-send")
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    try:
        receiver = connection.create_receiver(f"{family}-types", credit=1, name=f"{family}-r")
        message = receiver.receive(timeout=DEADLINE)
        assert message.body == ["a", 1, 2, True, 0.5] and isinstance(message.body[1], int32)
        assert (message.durable, message.priority) == (True, 7)
        assert (message.id, message.correlation_id, message.subject) == (ID, "c", "s")
        assert (message.reply_to, message.content_type, message.group_id) == ("r", "text/x", "g")
        assert message.creation_time == 1_600_000_000.123
        assert bytes(message.user_id) == b"\0\xff"
        assert message.annotations == {symbol("x-opt-a"): 1} and isinstance(message.annotations["x-opt-a"], byte)
        assert message.properties == {
            "string": "é", "int": -5, "long": 1 << 40, "double": 0.25, "bool": False, "uuid": ID,
        }  # fmt: skip
        assert isinstance(message.properties["int"], int32)
        receiver.accept()
        receiver.close()
        back = Message(
            body=["a", int32(1), 2, True, 0.5], durable=True, priority=7, id=ID, correlation_id="c", subject="s",
            reply_to="r", content_type="text/x", group_id="g", creation_time=timestamp(1_600_000_000_123) / 1000,
            user_id=b"\0\xff", annotations={symbol("x-opt-a"): byte(1)},
            properties={
                "string": "é", "int": int32(-5), "long": 1 << 40, "double": 0.25, "bool": False, "uuid": ID,
            },
        )  # fmt: skip
        connection.create_sender(f"{family}-types", name=f"{family}-s").send(back)
    finally:
        connection.close()
    run("types-receive")
