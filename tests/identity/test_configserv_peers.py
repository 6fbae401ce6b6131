"""configserv with peers: the role of a credential decides on feeds, reports and force, not the name of a link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import Client
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.identity.processes.credentials import Credential, new_secret
from enmasse.identity.processes.roles import TABLE, Listener, Role
from enmasse.testing import free_port
from tests.identity.kit import (
    AMQP_HEADER,
    DEADLINE,
    REFUSED,
    Service,
    Suite,
    answer_to,
    attach_refused,
    dial,
    name_of,
    offered,
    refusal,
    refusals_logged,
)
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

ROLES = TABLE[Listener.CONFIGSERV]
FEEDS = ("addresses/changes", "flavors", "placements/changes", "status/changes",
         "users", "permissions", "permissions/changes")  # fmt: skip
TARGETS = ("readiness", "placements", "force")
SECOND = Credential("ragent-1", Role.AGENT, new_secret())
READY = {"addresses": {"a": {"ready": True, "failed": False, "message": "", "components": []}}, "instance": "x",
         "seen": {"addresses": 1, "flavors": 1, "placements": 1}, "pending": {}}  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    suite = Suite(tmp_path_factory.mktemp("suite"))
    suite.secrets[SECOND.name] = SECOND.role, SECOND.secret
    suite.write()
    return suite


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def configserv(suite: Suite, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("configserv")
    (folder / "config").mkdir()
    (folder / "config" / "addresses.json").write_text(json.dumps({"a": {"type": "anycast"}}))
    (folder / "config" / "flavors.json").write_text("{}")
    where = {"config_dir": str(folder / "config"), "data_dir": str(folder / "data")}
    with Service("configserv", listen=f"127.0.0.1:{port}", peers=str(suite.file), **where) as process:
        yield process


def own_name(role: Role, target: str) -> str:
    return {"readiness": str(role), "placements": f"{role}/placements"}.get(target, "any")


async def sender_refused(c: Client, target: str, name: str) -> bool:
    try:
        link = await c.sender(target, name=name, timeout=DEADLINE)
    except AmqpError as error:
        assert error.condition == REFUSED, error
        return True
    await link.close()
    return False


def message(subject: str, body: Any) -> Message:
    return Message(subject=subject, content_type="application/json", body=json.dumps(body))


async def newest(c: Client, feed: str) -> dict[str, Any]:
    receiver = await c.receiver(feed, credit=1, timeout=DEADLINE)
    delivery = await receiver.receive(timeout=DEADLINE)
    body: dict[str, Any] = json.loads(delivery.message.body)
    await delivery.accept()
    await receiver.close()
    return body


@asynccontextmanager
async def unchanged(port: int, suite: Suite) -> Any:
    """Check that the body sees the same status and the same forced addresses as there were before it."""
    async with dial(port, suite.credential(Role.OPERATOR)) as c:
        before = await newest(c, "status/changes"), await newest(c, "addresses/changes")
        yield
        assert before == (await newest(c, "status/changes"), await newest(c, "addresses/changes"))


def test_a_listener_with_peers_offers_scram_alone(configserv: Service, port: int) -> None:
    assert offered(port) == ["SCRAM-SHA-256"]
    assert AMQP_HEADER not in answer_to(port, AMQP_HEADER)


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_each_role_attaches_what_the_table_lists(
    configserv: Service, port: int, suite: Suite, role: Role
) -> None:
    if role not in ROLES:
        assert await refusal(port, suite.credential(role)) == REFUSED
        return
    async with dial(port, suite.credential(role)) as c:
        for feed in FEEDS:
            assert await attach_refused(c, feed, send=False) == (feed not in ROLES[role].recv), feed
        for target in TARGETS:
            assert await sender_refused(c, target, own_name(role, target)) == (target not in ROLES[role].send), target


@pytest.mark.parametrize("role", ROLES)
@asyncio_test
async def test_no_role_reports_for_another(configserv: Service, port: int, suite: Suite, role: Role) -> None:
    async with dial(port, suite.credential(role)) as c:
        for other in Role:
            for target in ("readiness", "placements"):
                if other is not role:
                    assert await sender_refused(c, target, own_name(other, target))


@pytest.mark.parametrize("role", [None, *Role])
@asyncio_test
async def test_a_peer_without_the_secret_gets_nothing(
    configserv: Service, port: int, suite: Suite, role: Role | None
) -> None:
    async with unchanged(port, suite):
        if role is None:
            assert await refusal(port, None) == REFUSED
            return
        own = suite.credential(role)
        others = [suite.credential(other).secret for other in Role if other is not role]
        for secret in ("", own.secret[:-1], own.secret.swapcase(), *others):
            assert await refusal(port, Credential(own.name, role, secret)) == REFUSED


@asyncio_test
async def test_a_container_id_and_a_stated_product_give_no_role(configserv: Service, port: int, suite: Suite) -> None:
    stated = {"container_id": name_of(Role.STORAGE_CONTROLLER), "properties": {"product": "storage_controller"}}
    async with unchanged(port, suite), dial(port, suite.credential(Role.GATEWAY), **stated) as c:
        assert await sender_refused(c, "placements", "storage_controller/placements")
        assert await sender_refused(c, "force", "any")


@asyncio_test
async def test_only_supervisor_and_operator_force(configserv: Service, port: int, suite: Suite) -> None:
    for role in ROLES:
        async with dial(port, suite.credential(role)) as c:
            if "force" not in ROLES[role].send:
                async with unchanged(port, suite):
                    assert await sender_refused(c, "force", "any")
            else:
                sender = await c.sender("force", timeout=DEADLINE)
                await sender.send(message("", {"addresses": ["a", str(role)]}), timeout=DEADLINE)
    async with dial(port, suite.credential(Role.OPERATOR)) as c:
        assert {"supervisor", "operator"} <= set((await newest(c, "addresses/changes"))["forced"])


@asyncio_test
async def test_a_second_process_of_a_role_takes_it_over(configserv: Service, port: int, suite: Suite) -> None:
    """The stated rule for two instances (docs/contracts.md) holds among processes of this role only."""
    async with dial(port, suite.credential(Role.AGENT)) as one, dial(port, SECOND) as two:
        first = await one.sender("readiness", name="ragent", timeout=DEADLINE)
        await first.send(message("full", READY), timeout=DEADLINE)
        async with dial(port, suite.credential(Role.STORAGE_CONTROLLER)) as other:
            assert await sender_refused(other, "readiness", "ragent")
        await first.send(message("change", READY), timeout=DEADLINE)  # still the reporter
        second = await two.sender("readiness", name="ragent", timeout=DEADLINE)
        await second.send(message("full", {**READY, "instance": "y"}), timeout=DEADLINE)
        assert await until(lambda: first.error is not None)
        assert first.error is not None and first.error.condition == "amqp:link:stolen"


@asyncio_test
async def test_refusals_are_logged_with_name_role_and_address(configserv: Service, port: int, suite: Suite) -> None:
    async with dial(port, suite.credential(Role.LWT)) as c:
        assert await sender_refused(c, "force", "any")
    assert await refusal(port, Credential("somebody", Role.AGENT, "x")) == REFUSED
    assert await refusal(port, suite.credential(Role.CONFIGSERV)) == REFUSED
    refusals_logged(
        configserv,
        suite,
        ("mqtt_lwt-0", "mqtt_lwt", "may not send to force"),
        ("somebody", "", ""),
        ("configserv-0", "configserv", "may not connect here"),
    )
