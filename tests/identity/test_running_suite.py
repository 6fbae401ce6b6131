"""A running `enmasse up`: a process of this machine without a secret, or with another one's, on every port it has."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from enmasse.identity.credentials import Credential, read_credential
from enmasse.identity.roles import TABLE, Listener, Role
from enmasse.settings import host_port
from enmasse.testing import Suite, running, wait_for
from tests.identity.kit import AMQP_HEADER, REFUSED, SASL_HEADER, answer_to, offered, refusal
from tests.kit.running import asyncio_test

ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}
INNER = {"configserv": Listener.CONFIGSERV, "ragent": Listener.AGENT, "broker": Listener.BROKER}
"""Kinds of services with one listener for AMQP, the setting `listen`."""

ABSENT = {Role.SUPERVISOR, Role.AUTHSERV}
"""Roles without a credential file here: the supervisor's is in its memory, authserv does not run without users."""
GUESS = Credential("", Role.OPERATOR, "a guess")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("suite"), ADDRESSES, options=()) as started:
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


def settings(suite: Suite) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name → kind and settings of the services."""
    return {
        each["name"]: (each["kind"], json.loads((suite.data / "run" / f"{each['name']}.json").read_text()))
        for each in suite.status()["components"]
    }


def port_of(address: str) -> int:
    return host_port(address)[1]


def inner_ports(suite: Suite) -> dict[int, Listener]:
    """Return the ports at which processes of the suite, and operators, authenticate."""
    found: dict[int, Listener] = {}
    for kind, given in settings(suite).values():
        if kind in INNER:
            found[port_of(given["listen"])] = INNER[kind]
        for type_, entity in given.get("entities", ()):
            if type_ == "listener":
                found[int(entity["port"])] = Listener(entity["access"])
    return found


def other_ports(suite: Suite) -> set[int]:
    """Return the ports for clients, and for HTTP."""
    found = {port + suite.offset for port in (5672, 1883, 8083, 8080)}
    for _, given in settings(suite).values():
        found.add(port_of(given["health"]))
        found |= {each["port"] for each in given.get("listeners", ())}
    return found


def credentials(suite: Suite) -> dict[str, Credential]:
    """Return the credentials of the services, and the operator's."""
    found = {file.stem: read_credential(file) for file in (suite.data / "run").glob("*.credential")}
    assert suite.operator is not None
    return {**found, "operator": suite.operator}


def test_every_port_of_the_suite_is_for_clients_for_http_or_authenticates(suite: Suite) -> None:
    inner = inner_ports(suite)
    assert listening(suite) - other_ports(suite) == inner.keys(), "a port that listens is not in the lists of this file"
    assert set(inner.values()) == set(Listener) - {Listener.AUTHSERV}  # whose peers have no secrets
    for port, listener in inner.items():
        expected = ["SCRAM-SHA-256", "PLAIN"] if listener is Listener.OPERATORS else ["SCRAM-SHA-256"]
        assert offered(port) == expected, listener
        assert answer_to(port, AMQP_HEADER, b"\0\0\0\x08\x02\0\0\0") in (SASL_HEADER, b""), listener


def test_ports_for_health_take_no_orders(suite: Suite) -> None:
    for name, (_, given) in settings(suite).items():
        for path in ("/", "/api/scale"):
            request = urllib.request.Request(f"http://{given['health']}{path}", data=b"{}", method="POST")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            assert refused.value.code in (404, 405, 413), (name, path)


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
async def test_a_secret_opens_what_the_table_has_for_its_role(suite: Suite) -> None:
    for (port, listener), own in itertools.product(inner_ports(suite).items(), credentials(suite).values()):
        expected = own.role in TABLE[listener]
        if expected and listener is Listener.AGENT:
            continue  # would replace the router's connection
        condition = await refusal(port, own)
        assert (condition != REFUSED) is expected, (listener, own, condition)


@asyncio_test
async def test_a_process_that_starts_again_has_another_secret(suite: Suite) -> None:
    [port] = [port for port, listener in inner_ports(suite).items() if listener is Listener.SERVICES]
    before = credentials(suite)["mqtt_gateway-0"]
    [row] = [each for each in suite.status()["components"] if each["name"] == before.name]
    psutil.Process(row["pid"]).kill()
    wait_for("a new secret", lambda: credentials(suite)[before.name].secret != before.secret)
    assert await refusal(port, before) == REFUSED
    assert await refusal(port, credentials(suite)[before.name]) == ""
    suite.wait_ready()


def test_secrets_are_in_files_of_their_own_and_nowhere_else(suite: Suite) -> None:
    secrets = [each.secret for each in credentials(suite).values()]
    own = {*(suite.data / "run").glob("*.credential"), suite.data / "run" / "operator.secret"}
    for file in own:
        assert file.stat().st_mode & 0o077 == 0, file
    texts: dict[Path | str, str] = {}
    for file in suite.folder.rglob("*"):
        if file.is_file() and file not in own and file.suffix in (".json", ".log", ".verifiers", ""):
            texts[file] = file.read_text(errors="replace")
    for process in processes(suite):
        texts[f"{process.pid}: arguments"] = " ".join(process.cmdline())
        texts[f"{process.pid}: environment"] = str(process.environ())
    assert len(texts) > 20
    assert [where for where, text in texts.items() if any(secret in text for secret in secrets)] == []
