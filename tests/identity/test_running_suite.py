"""A running `enmasse up`, with either router: a process of this machine without a secret, or with another one's, on
every port it has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.layer import PlainClient
from enmasse.identity.processes.credentials import Credential, read_credential
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.identity.processes.roles import TABLE, Listener, Role
from enmasse.process.settings import host_port
from enmasse.supervisor.plan.internal_ports import INTERNAL
from enmasse.testing import Suite, ports_of, running, wait_for
from tests.authserv.running import ask_engine
from tests.identity.kit import AMQP_HEADER, REFUSED, SASL_HEADER, Overhearing, answer_to, frame, offered, refusal
from tests.kit.hashes import hashes
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE

ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}
INNER = {"configserv": Listener.CONFIGSERV, "ragent": Listener.AGENT, "broker": Listener.BROKER}
"""Kinds of services with one listener for AMQP, the setting `listen`."""

ABSENT = {Role.SUPERVISOR}
"""Roles without a credential file here: the supervisor's is in its memory."""
USERS = {
    "anonymous": {"permissions": [{"allow": ["send", "recv"], "addresses": ["#"]}]},
    "alice": {"password": hashes("right").password},
}
"""With users there is an authentication service."""
GUESS = Credential("", Role.OPERATOR, "a guess")
ROUTERS = ["embedded", pytest.param("qdrouterd", marks=pytest.mark.needs("qdrouterd"))]


@pytest.fixture(scope="module", params=ROUTERS)
def suite(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Suite]:
    options = ("--router", request.param, "--with", "http", "--with", "stomp", "--with", "coap")
    with running(tmp_path_factory.mktemp("suite"), ADDRESSES, options=options) as started:
        (started.config / "users.json").write_text(json.dumps(USERS))
        started.up()
        started.wait_ready()
        yield started


def processes(suite: Suite) -> list[psutil.Process]:
    assert suite.process is not None
    top = psutil.Process(suite.process.pid)
    return [top, *top.children(recursive=True)]


def listening(suite: Suite) -> set[int]:
    """Return the ports on which processes of the suite listen."""
    found = (c for process in processes(suite) for c in process.net_connections("tcp"))
    return {c.laddr.port for c in found if c.status == psutil.CONN_LISTEN}


def settings(suite: Suite) -> dict[str, tuple[str, Any]]:
    """Return name → kind and settings of the services; those of Dispatch are a list."""
    return {
        each["name"]: (each["kind"], json.loads((suite.data / "run" / f"{each['name']}.json").read_text()))
        for each in suite.status()["components"]
    }


def is_dispatch(given: Any) -> bool:
    """Return whether these settings are the configuration of Dispatch."""
    return isinstance(given, list)


def router_listeners(entities: Any) -> list[dict[str, Any]]:
    return [attributes for type_, attributes in entities if type_ == "listener"]


def port_of(address: str) -> int:
    return host_port(address)[1]


def inner_ports(suite: Suite) -> dict[int, Listener]:
    """Return the ports at which processes of the suite, and operators, authenticate."""
    found: dict[int, Listener] = {}
    for kind, given in settings(suite).values():
        if is_dispatch(given):
            found |= {int(each["port"]): Listener(each["name"]) for each in router_listeners(given)}
            continue
        if kind in INNER:
            found[port_of(given["listen"])] = INNER[kind]
        if kind == "authserv":
            found[port_of(given["logins"])] = Listener.LOGINS
        for entity in router_listeners(given.get("entities", ())):
            found[int(entity["port"])] = Listener(entity["access"])
        for listener, at in given.get("processes", {}).items():
            found[port_of(at)] = Listener(listener)
    return found


def other_ports(suite: Suite) -> set[int]:
    """Return the ports for clients, for HTTP, and the one of the authentication service for logins of users."""
    found = {port + suite.offset for port in (5672, 1883, 8083, 8080, 8079)}
    for kind, given in settings(suite).values():
        if not is_dispatch(given):
            found.add(port_of(given["health"]))
            found |= {each["port"] for each in given.get("listeners", ())}
        if kind == "authserv":
            found.add(port_of(given["listen"]))
    return found


def credentials(suite: Suite) -> dict[str, Credential]:
    """Return the credentials of the services, and the operator's."""
    found = {file.stem: read_credential(file) for file in (suite.data / "run").glob("*.credential")}
    for file in (suite.data / "run").glob("router-*.secret"):
        found[file.stem] = Credential(file.stem, Role.ROUTER, file.read_text().strip())
    assert suite.operator is not None
    return {**found, "operator": suite.operator}


def test_every_port_of_the_suite_is_for_clients_for_http_or_authenticates(suite: Suite) -> None:
    inner = inner_ports(suite)
    assert listening(suite) - other_ports(suite) == inner.keys(), "a port that listens is not in the lists of this file"
    known = set(inner.values()) | ({Listener.MESH} if not is_dispatch(settings(suite)["router-0"][1]) else set())
    assert known == set(Listener) - {Listener.AUTHSERV}  # whose peers have no secrets
    for port, listener in inner.items():
        expected = ["SCRAM-SHA-256", "PLAIN"] if listener is Listener.OPERATORS else ["SCRAM-SHA-256"]
        assert offered(port) == expected, listener
        assert answer_to(port, AMQP_HEADER, b"\0\0\0\x08\x02\0\0\0") in (SASL_HEADER, b""), listener


def test_all_public_ports_are_reserved_by_tests(suite: Suite) -> None:
    """Without that another process of a test may take one before the suite listens."""
    public = {port - suite.offset for port in listening(suite) if port not in INTERNAL}
    assert {5672, 1883, 8088, 61613} <= public <= {*ports_of(suite.options)}


def test_health_ports_refuse_post_requests(suite: Suite) -> None:
    for name, (_, given) in settings(suite).items():
        if is_dispatch(given):
            continue  # it has no such port
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://{given['health']}/metrics", timeout=DEADLINE)
        assert suite.operator is not None
        bearer = {"Authorization": f"Bearer {suite.operator.secret}"}
        request = urllib.request.Request(f"http://{given['health']}/metrics", headers=bearer)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            assert answer.status == 200, name
        for path in ("/", "/api/scale"):
            request = urllib.request.Request(f"http://{given['health']}{path}", data=b"{}", method="POST")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=DEADLINE)
            assert refused.value.code in (404, 405, 413), (name, path)


async def opens(port: int, own: Credential) -> bool:
    """Return whether a process with this secret gets its connection. (The authentication service closes it then.)"""
    condition = await refusal(port, own)
    assert condition in ("", "amqp:connection:forced", REFUSED)
    return condition != REFUSED


@asyncio_test
async def test_who_has_no_secret_opens_no_connection(suite: Suite) -> None:
    known = credentials(suite)
    assert {each.role for each in known.values()} >= {role for table in TABLE.values() for role in table} - ABSENT
    for port, listener in inner_ports(suite).items():
        assert await refusal(port, None) == REFUSED, listener
        before = GUESS
        for own in known.values():
            for other in (before, GUESS):
                forged = Credential(own.name, own.role, other.secret)
                assert await refusal(port, forged) == REFUSED, (listener, forged)
            before = own


@asyncio_test
async def test_a_secret_opens_exactly_the_listeners_that_the_table_has_for_its_role(suite: Suite) -> None:
    for (port, listener), own in itertools.product(inner_ports(suite).items(), credentials(suite).values()):
        expected = own.role in TABLE[listener]
        if expected and listener is Listener.AGENT:
            continue  # would replace the router's connection
        assert await opens(port, own) is expected, (listener, own)


def init(mechanism: str, response: bytes | None) -> bytes:
    return frame(SaslInit(mechanism=Symbol(mechanism), initial_response=response), 1)


OPEN = AMQP_HEADER + frame(Open(container_id="operator"), 0)
FIRST = b"n,,n=operator,r=abc"
SCRAM = "SCRAM-SHA-256"
RESPONSE = frame(SaslResponse(response=b"c=biws,r=abc,p=AAAA"), 1)
FORGED = {
    "no SASL": OPEN,
    "no mechanism": SASL_HEADER + OPEN,
    "an outcome of the client": SASL_HEADER + frame(SaslOutcome(code=0), 1) + OPEN,
    "mechanisms of the client": SASL_HEADER + frame(SaslMechanisms(sasl_server_mechanisms=(Symbol(SCRAM),)), 1) + OPEN,
    "a response without init": SASL_HEADER + RESPONSE + OPEN,
    "a challenge of the client": SASL_HEADER + init(SCRAM, FIRST) + frame(SaslChallenge(challenge=b"v=AAAA"), 1) + OPEN,
    "two inits": SASL_HEADER + init(SCRAM, FIRST) * 2 + OPEN,
    "open within the exchange": SASL_HEADER + init(SCRAM, FIRST) + OPEN,
    "open as a frame of SASL": SASL_HEADER + frame(Open(container_id="operator"), 1) + OPEN,
    "SASL as a frame of AMQP": SASL_HEADER + frame(SaslInit(mechanism=Symbol("ANONYMOUS")), 0) + OPEN,
    "a proof of nothing": SASL_HEADER + init(SCRAM, FIRST) + RESPONSE + OPEN,
    "ANONYMOUS": SASL_HEADER + init("ANONYMOUS", b"operator") + OPEN,
    "EXTERNAL": SASL_HEADER + init("EXTERNAL", b"operator") + OPEN,
    "a frame of 2 GiB": SASL_HEADER + HEADER((1 << 31) - 1, 2, 1, 0) + bytes(1 << 16),
    "a frame of 1 MiB": SASL_HEADER + init(SCRAM, b"n,,n=" + b"x" * (1 << 20)),
    "without end": SASL_HEADER + init(SCRAM, None) + frame(SaslResponse(response=b""), 1) * 10_000,
    "empty frames without end": SASL_HEADER + HEADER(8, 2, 1, 0) * 100_000,
}
"""What opens no connection: SASL frames out of order, too large, or too many."""


CRASHING = "without end"
"""What may end the process of Dispatch (docs/engines.md)."""


def test_frames_out_of_order_open_no_connection(suite: Suite) -> None:
    ports = inner_ports(suite)
    given = settings(suite)["router-0"][1]
    of_dispatch = {int(each["port"]) for each in router_listeners(given)} if is_dispatch(given) else set()
    tries = [(name, port) for name in FORGED for port in ports if name != CRASHING or port not in of_dispatch]
    with ThreadPoolExecutor(len(tries)) as at_once:
        answers = list(at_once.map(lambda each: answer_to(each[1], FORGED[each[0]]), tries))
    opened = [(name, ports[port]) for (name, port), answer in zip(tries, answers, strict=True) if AMQP_HEADER in answer]
    assert opened == []


def test_a_process_without_the_key_of_relays_keeps_out_no_user(suite: Suite) -> None:
    """It states another address at the authentication service, and fails to log in as often as it likes."""
    port = next(port_of(given["listen"]) for kind, given in settings(suite).values() if kind == "authserv")

    def attempt(password: str, host_name: str) -> bool:
        return ask_engine(port, PlainClient("alice", password), host_name).opened

    forged = [relayed_host_name("default", "192.0.2.7", key) for key in ("", "a guess")]
    with ThreadPoolExecutor(16) as pool:
        wrong = [pool.submit(attempt, "wrong", host_name) for host_name in forged * 8]
    assert not any(each.result() for each in wrong)
    keys = {each.relay_key for each in credentials(suite).values()} - {""}
    assert len(keys) == 1
    proven = relayed_host_name("default", "192.0.2.7", keys.pop())
    assert attempt("right", proven)
    for _ in range(8):
        assert not attempt("wrong", proven)
    assert not attempt("right", proven)
    assert attempt("right", proven.replace("192.0.2.7", "192.0.2.8")), "which has no proof"


@asyncio_test
async def test_a_secret_is_not_accepted_by_plain(suite: Suite) -> None:
    for own, (port, listener) in itertools.product(credentials(suite).values(), inner_ports(suite).items()):
        is_open = await refusal(port, None, plain=own) != REFUSED
        assert is_open is (listener is Listener.OPERATORS and own.role is Role.OPERATOR), (listener, own.name)


@asyncio_test
async def test_a_recorded_login_cannot_be_replayed(suite: Suite) -> None:
    for port, listener in inner_ports(suite).items():
        own = next(each for each in credentials(suite).values() if each.role in TABLE[listener])
        if listener is Listener.AGENT:
            continue  # would replace the router's connection
        with Overhearing(port) as relay:
            assert await opens(relay.port, own), listener
        assert AMQP_HEADER in b"".join(relay.sent)
        answer = await asyncio.to_thread(answer_to, port, *relay.sent)
        assert not answer or answer.startswith(SASL_HEADER), listener
        assert AMQP_HEADER not in answer, listener


@asyncio_test
async def test_a_process_that_starts_again_has_another_secret(suite: Suite) -> None:
    ports = [port for port, listener in inner_ports(suite).items() if listener is Listener.SERVICES]
    before = credentials(suite)["mqtt_gateway-0"]
    [row] = [each for each in suite.status()["components"] if each["name"] == before.name]
    psutil.Process(row["pid"]).kill()
    wait_for("a new secret", lambda: credentials(suite)[before.name].secret != before.secret)
    for port in ports:
        assert not await opens(port, before)
        assert await opens(port, credentials(suite)[before.name])
    suite.wait_ready()


def killed(suite: Suite, before: Credential) -> bool:
    """Kill a process, unless it has another secret already."""
    if credentials(suite)[before.name].secret != before.secret:
        return True
    [row] = [each for each in suite.status()["components"] if each["name"] == before.name]
    if row["pid"] is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(row["pid"]).kill()
    return False


def kill_all(suite: Suite) -> None:
    """Kill each service, and again as soon as it has a new secret: while it starts."""
    for name in (name for name in settings(suite) for _ in range(2)):
        wait_for(f"a new secret of {name}", partial(killed, suite, credentials(suite)[name]))


def are_apart(suite: Suite) -> None:
    """Assert that each process has a secret of its own, in a file that only its owner can read."""
    known = credentials(suite)
    assert len({each.secret for each in known.values()}) == len(known)
    assert [name for name, each in known.items() if name not in (each.name, "operator")] == []
    for file in own_files(suite):
        assert file.stat().st_mode & 0o777 == 0o600, file


async def refused_everywhere(suite: Suite, *secrets: Credential) -> None:
    for (port, listener), each in itertools.product(inner_ports(suite).items(), secrets):
        assert await refusal(port, each) == REFUSED, (listener, each.name)


@pytest.mark.slow  # test_a_suite_that_was_killed_starts_with_new_secrets, and test_withdrawn_peers.py
@asyncio_test
async def test_services_that_are_killed_get_new_secrets_and_reconnect(suite: Suite) -> None:
    before = credentials(suite)
    await asyncio.to_thread(kill_all, suite)
    suite.wait_ready()
    are_apart(suite)
    now = credentials(suite)
    changed = [each for name, each in before.items() if now[name].secret != each.secret]
    assert {each.name for each in changed} == settings(suite).keys()
    await refused_everywhere(suite, *changed)
    for port, listener in inner_ports(suite).items():
        for own in now.values():
            if own.role in TABLE[listener] and listener is not Listener.AGENT:
                assert await opens(port, own), (listener, own.name)
    are_nowhere_else(suite, *before.values(), *now.values())


@asyncio_test
async def test_a_suite_that_was_killed_starts_with_new_secrets(suite: Suite) -> None:
    before = credentials(suite)
    assert suite.process is not None
    suite.process.kill()
    suite.process.wait()
    await asyncio.to_thread(suite.up)
    suite.wait_ready()
    are_apart(suite)
    await refused_everywhere(suite, *before.values())
    are_nowhere_else(suite, *before.values(), *credentials(suite).values())


def test_secrets_are_in_credential_files_only(suite: Suite) -> None:
    are_nowhere_else(suite, *credentials(suite).values())


def own_files(suite: Suite) -> set[Path]:
    return {*(suite.data / "run").glob("*.credential"), *(suite.data / "run").glob("*.secret")}


def are_nowhere_else(suite: Suite, *known: Credential) -> None:
    """Assert that no other file, no log, and neither arguments nor environment of a process have a secret."""
    own = own_files(suite)
    texts: dict[Path | str, str] = {}
    for file in suite.folder.rglob("*"):
        if file.is_file() and file not in own and file.suffix in (".json", ".log", ".verifiers", ""):
            texts[file] = file.read_text(errors="replace")
    for process in processes(suite):
        texts[f"{process.pid}: arguments"] = " ".join(process.cmdline())
        texts[f"{process.pid}: environment"] = str(process.environ())
    assert len(texts) > 20
    assert [where for where, text in texts.items() if any(each.secret in text for each in known)] == []
