"""The console before a mesh of Qpid Dispatch: all its routers are shown with their clients, also routers that come and
go, and MQTT clients as those of their gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from itertools import combinations, product
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as mqtt
import pytest
from playwright.sync_api import expect

from enmasse.aio import client as aio
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite, running
from tests.console.browser import SECONDS, Console, chromium
from tests.console.client import Client
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until, wait_for

pytestmark = pytest.mark.needs("qdrouterd")
ADDRESSES = {
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
    "calls": {"type": "anycast"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}
ROUTERS = ["router-0", "router-1", "router-2"]
OPTIONS = ("--router", "qdrouterd", "--with", "http", "--with", "stomp")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("mesh"), ADDRESSES, options=OPTIONS) as suite:
        suite.up()
        scale(suite, 3)
        yield suite
        assert suite.down() == 0


@pytest.fixture
def client(suite: Suite) -> Iterator[Client]:
    with Client(suite) as client:
        yield client


def scale(suite: Suite, count: int) -> None:
    scaled = suite.command("scale", f"router={count}", "--port-offset", str(suite.offset))
    assert scaled.returncode == 0, scaled.stderr
    wait_for(lambda: len(routers(suite)) == count and suite.status()["ready"], f"{count} routers")


def routers(suite: Suite) -> dict[str, Any]:
    return {each["name"]: each for each in suite.status()["components"] if each["kind"] == "router"}


def at(suite: Suite, router: str) -> aio.Client:
    """Return a client of a router, which answers for itself while a test waits; its container-id is the router's."""
    return aio.connect(f"amqp://{routers(suite)[router]['endpoints']['amqp']}", container_id=f"client of {router}")


async def wait(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait for a condition that blocks this thread while connections need it."""
    return await until(lambda: asyncio.to_thread(condition), what)


def meshed(client: Client, count: int) -> bool:
    """Whether all routers are shown, each with the broker and each other as its neighbours."""
    found = {each["name"]: each for each in client.items("routers")}
    names = ROUTERS[:count]
    return found.keys() == set(names) and all(
        found[name]["connected"]
        and {each["name"] for each in found[name]["neighbours"] if each["kind"] == "router"} == {*names} - {name}
        and any(each["kind"] == "broker" for each in found[name]["neighbours"])
        for name in names
    )


def of(client: Client, path: str, **values: Any) -> list[dict[str, Any]]:
    return [each for each in client.items(path) if all(each[key] == value for key, value in values.items())]


def shown(client: Client, router: str) -> list[dict[str, Any]]:
    return of(client, "connections", container=f"client of {router}")


@asyncio_test
async def test_clients_of_each_router_are_shown_with_links_and_rates_and_can_be_closed(
    suite: Suite, client: Client
) -> None:
    await wait(lambda: meshed(client, 3), "the mesh")
    async with at(suite, "router-0") as first, at(suite, "router-1") as second, at(suite, "router-2") as third:
        calls, jobs = await third.receiver("calls"), await second.receiver("jobs")
        links = [(await first.sender("calls"), calls), (await first.sender("jobs"), jobs)]
        for name in ROUTERS:
            (row,) = await wait(partial(shown, client, name))
            assert row["component"] == name
        await wait(lambda: len(of(client, "links", address="calls")) == 2)
        rows = await asyncio.to_thread(of, client, "links", address="calls")
        assert {(each["component"], each["direction"]) for each in rows} == {("router-0", "in"), ("router-2", "out")}

        async def flows() -> bool:
            for sender, receiver in links:
                sent = asyncio.ensure_future(sender.send(Message("x"), timeout=DEADLINE))
                await (await receiver.receive(DEADLINE)).accept()
                assert await sent == ACCEPTED
            return await asyncio.to_thread(moves, client)

        await until(flows, "rates")
        for name, closed in (("router-0", first), ("router-2", third)):
            (row,) = await asyncio.to_thread(shown, client, name)
            path = f"connections/{quote(row['id'], safe='')}"
            assert (await asyncio.to_thread(client, "DELETE", path)).status == 204
            await until(partial(has_closed, closed), f"{name} has closed it")
        await wait(lambda: not shown(client, "router-0") and not shown(client, "router-2"), "no longer shown")
        assert await asyncio.to_thread(shown, client, "router-1")
        assert not await asyncio.to_thread(of, client, "connections", container="console")  # its own


def has_closed(client: aio.Client) -> bool:
    return client.error is not None


def moves(client: Client) -> bool:
    """Return whether what passes from router-0 to the others shows as rates of clients at both ends, of the addresses,
    and between routers and broker."""
    found = {each["name"]: each for each in client.items("routers")}
    arrows = {(name, each["name"]): each["rates"] for name in found for each in found[name]["neighbours"]}
    (calls,), (queue,) = of(client, "addresses", name="calls"), of(client, "addresses", name="jobs")
    (sends,), (takes,) = shown(client, "router-0"), shown(client, "router-2")
    return bool(
        sends["rates"]["in"] > 0
        and takes["rates"]["out"] > 0
        and calls["stats"]["rates"]["in"] > 0
        and calls["stats"]["rates"]["out"] > 0
        and (queue["stats"]["consumers"], queue["stats"]["producers"]) == (1, 1)
        and arrows["router-0", "router-2"]["out"] > 0
        and arrows["router-2", "router-0"]["in"] > 0
        and any(rates["out"] > 0 for (_, to), rates in arrows.items() if to not in ROUTERS)
    )


def test_the_page_draws_each_router_and_what_passes_between_them(suite: Suite, client: Client) -> None:
    wait_for(lambda: meshed(client, 3), "the mesh")
    with chromium() as browser:
        console = Console(browser, 8080 + suite.offset)
        page = console.open("network", "Network")
        brokers = [each["name"] for each in client.items("brokers")]
        for pair in (*combinations(ROUTERS, 2), *product(ROUTERS, brokers)):
            line = page.get_by_role("listitem").filter(has_text=f"{' and '.join(pair)}: ")
            expect(line).to_have_count(1, timeout=SECONDS * 1000)
        for name in ROUTERS:
            expect(page.locator(".network .box").filter(has_text=name)).to_have_count(1)
        assert console.findings() == []
        console.close()


def test_mqtt_clients_are_those_of_their_gateway(suite: Suite, client: Client) -> None:
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "a-device", protocol=mqtt.MQTTv311)
    device.connect("127.0.0.1", suite.mqtt_port)
    device.loop_start()
    try:
        (row,) = wait_for(lambda: of(client, "connections", container="a-device"))
        gateway = suite.component("mqtt_gateway")["name"]
        assert (row["component"], row["protocol"].split()[0]) == (gateway, "mqtt")
        assert gateway in next(each["peers"] for each in client.items("routers") if each["name"] == "router-0")
        device.publish("news/local", "rain", 1).wait_for_publish(60)
        wait_for(lambda: of(client, "connections", container="a-device")[0]["totals"]["in"] == 1)
        disconnected: list[bool] = []
        device.on_disconnect = lambda *_: disconnected.append(True)
        device.reconnect_delay_set(600, 600)
        assert client("DELETE", f"connections/{quote(row['id'], safe='')}").status == 204
        wait_for(lambda: disconnected, "the device is disconnected")
    finally:
        device.disconnect()
        device.loop_stop()
    wait_for(lambda: not of(client, "connections", container="a-device"))


def test_clients_of_other_gateways_are_those_of_their_gateway(suite: Suite, client: Client) -> None:
    stomp, http = (suite.component(f"{kind}_gateway")["endpoints"][kind] for kind in ("stomp", "http"))
    with socket.create_connection(_place(stomp)) as subscriber, contextlib.closing(HTTPConnection(http)) as sender:
        subscriber.sendall(b"CONNECT\naccept-version:1.2\nhost:-\n\n\0SUBSCRIBE\nid:1\ndestination:jobs\n\n\0")
        sender.request("POST", "/v1/jobs/messages", b"x")
        assert sender.getresponse().read() == b'{"outcome":"accepted"}'
        for protocol in ("stomp", "http"):
            (row,) = wait_for(lambda protocol=protocol: of(client, "connections", protocol=protocol))  # type: ignore[misc]  # mypy infers no type of a lambda's default
            assert row["component"] == suite.component(f"{protocol}_gateway")["name"]
    wait_for(lambda: not of(client, "connections", protocol="stomp"), "its end is shown")


def _place(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


@asyncio_test
async def test_routers_that_are_lost_come_back_and_go(suite: Suite, client: Client) -> None:
    await wait(lambda: meshed(client, 3), "the mesh")
    async with at(suite, "router-2"):
        await wait(lambda: shown(client, "router-2"))
        suite.kill(routers(suite)["router-2"])
        await wait(lambda: not shown(client, "router-2"), "its connections are no longer shown")
    await wait(lambda: suite.status()["ready"] and meshed(client, 3), "it is followed again")
    async with at(suite, "router-2"):
        await wait(lambda: shown(client, "router-2"))
        suite.kill(routers(suite)["router-0"])  # over which the others are followed
        await wait(lambda: suite.status()["ready"] and meshed(client, 3), "all are followed again")
        await wait(lambda: shown(client, "router-2"))
    await asyncio.to_thread(scale, suite, 2)
    await wait(lambda: meshed(client, 2), "the removed one is gone")
    await asyncio.to_thread(scale, suite, 3)
    await wait(lambda: meshed(client, 3), "it is back")
