"""Apache Qpid JMS against a broker, and through the entry port of a running suite: the same scenarios hold."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import Suite, free_port, running, wait_for
from tests.artemis import ENVIRONMENT
from tests.broker.harness import BrokerProcess
from tests.interop.clients import JMS_VERSIONS, Broken, jms
from tests.kit.spaces import running_with_spaces

pytestmark = pytest.mark.timeout(1200)  # where nobody has built the clients before, the first test does

LIMIT = 600
"""Seconds for all scenarios; each of their steps gives up after 60."""
QUEUES = (
    "told-queue", "told-topic", "told-lifetime", "request", "plain", "delay", "simple", "selector", "browser",
    "transacted", "pull", "recover", "redelivered", "dead",
    "each", "states", "across-from", "across-to",
)  # fmt: skip
TOPICS = (
    "durable", "unsubscribe", "elsewhere", "shared", "shared-durable", "shared-global", "local", "delay-topic",
    "simple-topic", "states-topic", "across-topic",
)  # fmt: skip
EVERYWHERE = [
    "temporary-queue", "temporary-topic", "temporary-lifetime", "request-reply", "durable", "unsubscribe", "shared",
    "shared-durable", "shared-durable-global", "no-local", "subscription-on-queue", "delay", "simple-producer",
    "unknown", "selector", "browser", "transacted", "pull", "recover", "max-redeliveries",
    "one-consumer-each", "states",
]  # fmt: skip
DIRECT = ["anycast", "multicast"]  # there is no broker behind these


def prefix(version: str) -> str:
    return f"jms{version.replace('.', '')}-"


def addresses(start: str) -> dict[str, dict[str, str]]:
    queue = {"type": "queue", "flavor": "small-persisted-queue"}
    topic = {"type": "topic", "flavor": "small-persisted-topic"}
    return {
        **{start + name: queue for name in QUEUES},
        f"{start}redelivered": {**queue, "deadletter": f"{start}dead"},
        **{start + name: topic for name in TOPICS},
        f"{start}elsewhere": {"type": "topic", "flavor": "vanilla-topic"},
        f"{start}anycast": {"type": "anycast"},
        f"{start}multicast": {"type": "multicast"},
    }


VERSIONS = [*(pytest.param(each, marks=pytest.mark.slow) for each in JMS_VERSIONS[:-1]), JMS_VERSIONS[-1]]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def program(version: str) -> list[str]:
    try:
        return jms(version)
    except Broken as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    everything = {name: entry for version in JMS_VERSIONS for name, entry in addresses(prefix(version)).items()}
    with running(tmp_path_factory.mktemp("jms"), everything, options=("--tls", "auto")) as suite:
        suite.up(240)
        yield suite


@pytest.fixture(scope="module", params=["embedded", "artemis"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "ENMASSE_BROKER": request.param}.items():
            patch.setenv(name, value)
        yield request.param


@pytest.fixture(scope="module")
def brokered(tmp_path_factory: pytest.TempPathFactory, version: str, engine: str) -> Iterator[int]:
    """The port of a suite whose clients are in a brokered space: all queues and topics are at one of its brokers."""
    everything = {
        name: {key: value for key, value in entry.items() if key != "flavor"}
        for name, entry in addresses(prefix(version)).items()
        if entry["type"] in ("queue", "topic")
    }
    allowed = {"anonymous": {"permissions": [{"allow": ["send", "recv"], "addresses": ["#"]}]}}
    files = {
        "spaces.json": {"one": {"type": "brokered", "flavor": "boxes"}},
        "spaces/one/addresses.json": everything,
        "spaces/one/users.json": allowed,
        "users.json": allowed,
    }
    count = {"BROKERS": 3 if engine == "embedded" else 1}
    flavors = {"boxes": {"type": "queue", "templateName": "queue-persisted", "templateParameters": count}}
    port = free_port()
    options = (f"--listen=amqp=127.0.0.1:{port}@one",)
    with running_with_spaces(tmp_path_factory.mktemp("brokered"), files, flavors=flavors, options=options) as suite:
        for file in ("users.json", "spaces/one/users.json"):
            (suite.config / file).chmod(0o600)
        suite.up(240)
        wait_for("the addresses", lambda: _is_ready(suite, len(everything)))
        yield port
        assert suite.down() == 0


def _is_ready(suite: Suite, count: int) -> bool:
    return bool(sum(a["ready"] and a["name"].startswith("!!one/") for a in suite.status()["addresses"]) == count)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    try:
        with process.manage() as manage:
            for start in map(prefix, JMS_VERSIONS):
                for name in QUEUES:
                    manage.queue(start + name)
                for name in TOPICS:
                    manage("createAddress", start + name, "MULTICAST")
                manage.settings(f"{start}redelivered", deadLetterAddress=f"{start}dead")
        yield process
    finally:
        process.stop()


def run(program: list[str], way: str, port: int, version: str, *only: str, scheme: str = "amqp") -> dict[str, str]:
    """What became of each scenario: "" where it held. `only`: these alone."""
    command = [*program, way, f"{scheme}://127.0.0.1", str(port), prefix(version), *only]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"the scenarios did not end: {error.stdout!r} {error.stderr!r}", pytrace=False)
    told = {}
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(" ")
        told[name] = "" if verdict == "ok" else why.replace("\t", "\n") or line
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return told


@pytest.fixture(scope="module")
def through_the_router(suite: Suite, program: list[str], version: str) -> dict[str, str]:
    return run(program, "router", 5672 + suite.offset, version, *EVERYWHERE, *DIRECT)


@pytest.fixture(scope="module")
def at_the_broker(broker: BrokerProcess, program: list[str], version: str) -> dict[str, str]:
    return run(program, "broker", broker.port, version, *EVERYWHERE)


def judge(told: dict[str, str], scenario: str) -> None:
    if why := told.get(scenario, "it was not run"):
        pytest.fail(f"{scenario}: {why}", pytrace=False)


@pytest.mark.parametrize("scenario", EVERYWHERE)
def test_at_the_broker(at_the_broker: dict[str, str], scenario: str) -> None:
    judge(at_the_broker, scenario)


@pytest.mark.parametrize("scenario", EVERYWHERE + DIRECT)
def test_through_the_router(through_the_router: dict[str, str], scenario: str) -> None:
    judge(through_the_router, scenario)


@pytest.mark.slow
def test_in_a_brokered_space(brokered: int, program: list[str], version: str, engine: str) -> None:
    scenarios = [*(EVERYWHERE if engine == "embedded" else ["transacted"]), "transacted-across"]
    assert run(program, "router", brokered, version, *scenarios) == dict.fromkeys(scenarios, "")


@pytest.mark.parametrize("scheme", ["amqpws", "amqpwss"])
def test_over_websocket(
    suite: Suite, through_the_router: dict[str, str], program: list[str], version: str, scheme: str, tmp_path: Path
) -> None:
    scenarios = ("anycast", "request-reply", "selector", "unsubscribe", "recover")
    port, (java, *rest) = 8083, program
    if scheme == "amqpwss":
        port, rest = 8084, [*trusting(suite.data / "tls" / "ca.crt", tmp_path / "ca.p12"), *rest]
    told = run([java, *rest], "router", port + suite.offset, version, *scenarios, scheme=scheme)
    assert told == dict.fromkeys(scenarios, "")


def trusting(authority: Path, store: Path) -> list[str]:
    """Options of Java with which it trusts a certificate authority, by a store that is made."""
    password = "changeit"
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-file", authority, "-keystore", store, "-storepass", password],
        check=True,
        capture_output=True,
    )
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def test_nothing_is_left(suite: Suite, through_the_router: dict[str, str], version: str) -> None:
    """No message in any queue, none stored for a subscription that was ended."""

    def is_empty() -> bool:
        held = [a["messages"] for a in suite.status()["addresses"] if a["name"].startswith(prefix(version))]
        return len(held) == len(addresses(prefix(version))) and not any(held)

    wait_for("no message left in any queue or subscription", is_empty)
