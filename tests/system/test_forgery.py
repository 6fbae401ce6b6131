"""Processes without a secret of the suite get nothing at its inner ports, which the running suite lists itself."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.errors import AmqpError
from enmasse.identity.credentials import Credential, new_secret, read_credential
from enmasse.identity.operator import OPERATOR
from enmasse.identity.roles import Role
from enmasse.testing import Suite, running
from tests.identity.kit import AMQP_HEADER, SASL_HEADER, answer_to, dial, offered, refusal
from tests.system.seeing import kill, status, wait_process

GUARDED = ("amqp", "services")
"""Kinds of ports for processes of the suite, after the slash in ports.json."""
CLIENTS = ("own",)
"""Ports of single gateways for MQTT clients."""
HEALTH = "health"
NOT_GUARDED = ("authserv/amqp",)
"""The service that answers logins: everyone may try one."""
ROLES = {
    "broker/amqp": Role.STORAGE_CONTROLLER,
    "configserv/amqp": Role.AGENT,
    "ragent/amqp": Role.ROUTER,
    "router/services": Role.SUBSERV,
}
"""A role that the port is for."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("forgery"), options=()) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


def ports(suite: Suite) -> dict[str, int]:
    found: dict[str, int] = json.loads((suite.data / "run" / "ports.json").read_text())
    return found


def guarded(suite: Suite) -> dict[str, int]:
    """`kind/port` of every inner AMQP listener, and its port, with that for operators."""
    kinds = {component["name"]: component["kind"] for component in status(suite)["components"]}
    found = {
        f"{kinds[name.partition('/')[0]]}/{name.partition('/')[2]}": port
        for name, port in ports(suite).items()
        if name.partition("/")[2] in GUARDED and name not in NOT_GUARDED
    }
    return {**found, "operators": int(suite.operators.rpartition(":")[2])}


def credentials(suite: Suite) -> dict[str, Credential]:
    files = (suite.data / "run").glob("*.credential")
    return {found.name: found for found in map(read_credential, files)}


def test_no_port_is_forgotten(suite: Suite) -> None:
    kinds = {name.partition("/")[2] for name in ports(suite)}
    assert kinds <= {*GUARDED, *CLIENTS, HEALTH}
    assert guarded(suite).keys() == {*ROLES, "operators"}


def test_without_a_secret_there_is_no_connection(suite: Suite) -> None:
    for where, port in guarded(suite).items():
        assert asyncio.run(refusal(port, None)) != "", where
        assert offered(port) == (["SCRAM-SHA-256", "PLAIN"] if where == "operators" else ["SCRAM-SHA-256"]), where
        assert answer_to(port, AMQP_HEADER) == SASL_HEADER, where
        for name, known in credentials(suite).items():
            forged = Credential(name, known.role, new_secret())
            assert asyncio.run(refusal(port, forged)) == "amqp:unauthorized-access", (where, name)
        assert asyncio.run(refusal(port, Credential(OPERATOR, Role.OPERATOR, ""))) == "amqp:unauthorized-access"
        for user in (OPERATOR, "ragent", ""):

            async def plain(user: str = user, port: int = port) -> None:
                async with connect(host="127.0.0.1", port=port, user=user, password=new_secret()):
                    pass

            with pytest.raises(AmqpError):
                asyncio.run(plain())


def test_a_port_serves_its_roles_and_no_other(suite: Suite) -> None:
    """Listeners of one role each; the table in docs/identity.md has all that a role may do."""
    known = credentials(suite)
    by_role = {credential.role: credential for credential in known.values()}
    for where, port in guarded(suite).items():
        if where == "operators":
            continue
        for role, credential in by_role.items():
            refused = asyncio.run(refusal(port, credential)) == "amqp:unauthorized-access"
            if role is ROLES[where] and role is not Role.ROUTER:  # which would take the place of the one there
                assert not refused, (where, role)
            if role is Role.GATEWAY and where in ("broker/amqp", "ragent/amqp"):
                assert refused, (where, role)


def test_a_secret_ends_with_its_process(suite: Suite) -> None:
    before = credentials(suite)["ragent"]
    port = ports(suite)["configserv/amqp"]

    async def follows(credential: Credential) -> bool:
        async with dial(port, credential) as c:
            await c.receiver("addresses")
        return True

    assert asyncio.run(follows(before))
    wait_process(suite, "ragent", kill(suite, "ragent"))
    suite.wait_ready()
    with pytest.raises(AmqpError, match="wrong credentials"):
        asyncio.run(follows(before))
    assert asyncio.run(follows(credentials(suite)["ragent"]))
    pids = {name: kill(suite, name) for name in ("configserv", "router-0", "subserv", "mqtt_gateway-0")}
    for name, pid in pids.items():
        wait_process(suite, name, pid)
    suite.wait_ready()
    assert len({credential.secret for credential in credentials(suite).values()}) == len(credentials(suite))


def test_health_ports_only_show(suite: Suite) -> None:
    for name, port in ports(suite).items():
        if name.endswith(f"/{HEALTH}"):
            for path in ("/", "/api/status", "/api/scale"):
                request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"{}", method="POST")
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(request, timeout=60)
                assert refused.value.code in (404, 405, 413), (name, path)


def test_secrets_are_nowhere_but_in_their_files(suite: Suite) -> None:
    secrets = {credential.secret: f"{name}.credential" for name, credential in credentials(suite).items()}
    secrets[(suite.data / "run" / "operator.secret").read_text().strip()] = "operator.secret"
    for file in suite.data.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            for secret, owner in secrets.items():
                assert file.name == owner or secret.encode() not in content, file
    for component in status(suite)["components"]:
        for what in ("cmdline", "environ"):
            content = Path(f"/proc/{component['pid']}/{what}").read_bytes()
            assert not any(secret.encode() in content for secret in secrets), (component["name"], what)
