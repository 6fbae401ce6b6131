"""The matrix of address spaces: each cell of TABLE for each kind of client, in three spaces with equal names of
addresses, users, client ids, container-ids and links. Cells are generated; one suite serves them all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.mqtt import Disconnected, Refused
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from tests.artemis import ENVIRONMENT
from tests.kit.loop_thread import LoopThread
from tests.kit.waiting import DEADLINE, until, wait_for
from tests.tenants.messaging_ways import AmqpWay, CoapWay, HttpWay, MqttWay, StompWay
from tests.tenants.reading_ways import CommandWay, RestWay
from tests.tenants.tenant_suite import ALL, NOBODYS, Tenants, Who, mark, running_tenants
from tests.tenants.tenant_table import ELSEWHERE, OPERATOR, ROLES, TABLE, has, table

KINDS: dict[str, Any] = {
    "AMQP": AmqpWay, "MQTT": MqttWay, "HTTP": HttpWay, "STOMP": StompWay, "CoAP": CoapWay, "REST": RestWay,
    "command line": CommandWay,
}  # fmt: skip
ROOT = Path(__file__).parents[2]
OVER_WEB = ("AMQP", "MQTT", "STOMP")
READ = ("list", "metrics", "events")
ADDRESSES = {
    "send": ("jobs", "news", "cast", "direct"),
    "relay": ("jobs", "news", "cast", "direct"),
    "receive": ("jobs", "direct"),
    "subscribe": ("news", "cast"),
}
"""Where this is tried; all else at a topic."""
END = "end"
_numbers = itertools.count()


class Matrix:
    """All clients, in a loop that runs as long as they are connected."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.thread = LoopThread()
        self.call = self.thread.call
        self._ways: dict[tuple[str, bool], Any] = {}
        self._stack = contextlib.AsyncExitStack()

    def way(self, name: str, web: bool) -> Any:
        if (name, web) not in self._ways:
            self._ways[name, web] = KINDS[name](self.tenants, web)
        return self._ways[name, web]

    async def prepare(self) -> None:
        """Let each space have something to be read that is nowhere else: links, a retained message, a will, a durable
        subscription, a refusal."""
        for space in ALL:
            client = await self.tenants.feeder(space)
            topic = f"news/{mark(space)}"
            sender = await client.sender(topic, name=f"{mark(space)}-link", timeout=DEADLINE)
            kept = Message(b"x", durable=True, annotations={"x-opt-retain-message": True})
            assert await sender.send(kept, timeout=DEADLINE) is ACCEPTED
            will = await client.sender("$lwt", name=f"{mark(space)}-will", timeout=DEADLINE)
            message = Message(b"x", subject="will", to=topic, durable=True)
            assert await will.send(message, timeout=DEADLINE) is ACCEPTED
            await client.receiver(topic, durable_name=f"{mark(space)}-kept", timeout=DEADLINE)
            stranger = await self.tenants.amqp(Who(space, "stranger")._replace(role="user")).open(DEADLINE)
            with pytest.raises(AmqpError):
                await stranger.sender(f"{mark(space)}-forbidden/$management", timeout=DEADLINE)
            with pytest.raises(AmqpError):
                await stranger.sender("$management", name=f"{mark(space)}-x", timeout=DEADLINE)
            await stranger.close()

    async def close(self) -> None:
        for each in self._ways.values():
            await each.close()
        await self.tenants.close()

    # What one client puts

    async def put(self, way: Any, thing: str, role: str, address: str) -> dict[str, list[str]]:
        """Let a client of each space do the same; return what came in each space."""
        texts = {space: f"{thing} of {role} of {mark(space)}" for space in ALL}
        if thing == "retained":
            for space in ALL:
                await way.retain(Who(space, role), address, texts[space])
            reader = self.way("MQTT", False)
            return {space: await self._retained(reader, space, address) for space in ALL}
        async with self.tenants.reading(address) as readers:
            for space in ALL:
                await getattr(way, thing)(Who(space, role), address, texts[space])
            found = {space: [await get()] for space, get in readers.items()}
            return await self._to_end(found, readers, address)

    async def _retained(self, reader: Any, space: str, address: str) -> list[str]:
        """Return what a new subscription begins with."""

        async def kept() -> list[str]:
            found = []
            async with reader.receive(Who(space, "administrator"), address) as get:
                await reader.send(Who(space, "administrator"), address, END)
                while (text := await get()) != END:
                    found.append(text)
            return found

        found: list[str] = await until(kept, f"the retained message of {address}")
        return found

    async def drained(self) -> dict[str, list[str]]:
        """Return what the queues hold, as new connections of the feeders get it."""
        async with self.tenants.reading("jobs") as readers:
            return await self._to_end({space: [] for space in ALL}, readers, "jobs")

    async def _to_end(self, found: dict[str, list[str]], readers: Any, address: str) -> dict[str, list[str]]:
        for space in ALL:
            await self.tenants.feed(space, address, END)
        for space, get in readers.items():
            while (text := await get()) != END:
                found[space].append(text)
        return found

    # What one client gets

    async def get(self, way: Any, thing: str, role: str, address: str) -> dict[str, list[str]]:
        """Feed each space; return what a client of each gets."""
        whose = {space: Who(space, role) for space in ALL}

        async def feed(space: str) -> None:
            await self.tenants.feed(space, address, f"{thing} of {role} of {mark(space)}")
            await self.tenants.feed(space, address, END)

        async def collect(get: Any) -> list[str]:
            found: list[str] = []
            while (text := await get()) != END:
                found.append(text)
            return found

        if thing == "durable":
            for who in whose.values():
                await way.begin(who, address)
            for space in ALL:
                await feed(space)
        async with contextlib.AsyncExitStack() as stack:
            act = getattr(way, "again" if thing == "durable" else thing)
            gets = [await stack.enter_async_context(act(who, address)) for who in whose.values()]
            feeds = [] if thing == "durable" else [feed(space) for space in ALL]
            found, _ = await asyncio.gather(asyncio.gather(*map(collect, gets)), asyncio.gather(*feeds))
        return dict(zip(ALL, found, strict=True))

    async def browse(self, way: Any, role: str) -> dict[str, list[str]]:
        async with contextlib.AsyncExitStack() as stack:
            for space in ALL:
                await self.tenants.feed(space, "jobs", f"browse of {role} of {mark(space)}")
            found = {space: await way.browse(Who(space, role), "jobs") for space in ALL}
            readers = await stack.enter_async_context(self.tenants.reading("jobs"))
            await self._to_end({space: [] for space in ALL}, readers, "jobs")
        return found

    async def reply(self, way: Any, role: str) -> dict[str, list[str]]:
        """Let all spaces send to the address for replies of a client of one."""
        found: dict[str, list[str]] = {}
        for own in ALL:
            async with way.reply(Who(own, role)) as reply:
                assert reply.address and "!!" not in reply.address, reply
                for space in sorted(ALL, key=lambda each: each == own):
                    client = await self.tenants.feeder(space)
                    text = f"reply of {role} of {mark(space)}"
                    with contextlib.suppress(AmqpError):
                        sender = await client.sender(reply.address, name="link", settled=True, timeout=DEADLINE)
                        await sender.send(Message(text.encode(), **reply.fields), timeout=DEADLINE)
                        await sender.close()
                    relay = await client.sender(None, name="relay", timeout=DEADLINE)
                    if space != own:
                        await relay.send(Message(text.encode(), to=reply.address, **reply.fields), timeout=DEADLINE)
                    await relay.close()
                found[own] = [await reply.get()]
        return found


@pytest.fixture(
    scope="module",
    params=["embedded", *(pytest.param(each, marks=pytest.mark.slow) for each in ("brokered", "artemis"))],
)
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with pytest.MonkeyPatch.context() as patch:
        engine = "artemis" if request.param == "artemis" else "embedded"
        for name, value in {**ENVIRONMENT, "ENMASSE_BROKER": engine}.items():
            patch.setenv(name, value)
        folder: Path = tmp_path_factory.mktemp("tenants")
        with running_tenants(folder, brokered=request.param == "brokered") as tenants:
            made = Matrix(tenants)
            made.call(made.prepare())
            yield made
            made.call(made.close())
            made.thread.stop()


WEB = tuple(f"{way} over WebSocket" for way in OVER_WEB)


def late(name: str, thing: str) -> bool:
    """Return whether `make test` leaves a cell out: WebSocket is a detour, of which one cell is enough. The others are
    in shorter tests: commands in tests/system/test_commands_in_spaces.py, what REST answers in
    tests/console/test_space_matrix.py, and names that MQTT refuses in tests/system/test_mqtt_of_spaces.py."""
    return (
        name == "command line"
        or (name in WEB and thing != "receive")
        or (name in ("REST", "MQTT") and thing == "errors")
    )


CELLS = [
    pytest.param(
        way, web, thing, id=f"{name}-{thing}",
        marks=pytest.mark.slow if late(name, thing) else (),
    )
    for way in KINDS
    for web in ((False, True) if way in OVER_WEB else (False,))
    for name in (f"{way}{' over WebSocket' if web else ''}",)
    for thing in TABLE
    if has(way, thing)
]  # fmt: skip
CELLS.sort(key=lambda cell: "errors" in cell.values)  # last: events have what a client has stated


def roles(way: str, thing: str) -> list[str]:
    """Return the kinds of clients: a command has a user, or is the operator's, who has no `$lwt` and `$subctrl`. CoAP
    has no users."""
    if way == "CoAP":
        return ["anonymous"]
    operator = way in OPERATOR and (way != "AMQP" or thing not in ("will", "list"))
    anonymous = way != "command line" and (way != "REST" or thing not in ("send", "browse"))  # it may not view
    left_out = {"operator": not operator, "anonymous": not anonymous}
    return [role for role in ROLES if not left_out.get(role)]


@pytest.mark.parametrize(("name", "web", "thing"), CELLS)
def test_a_cell(matrix: Matrix, name: str, web: bool, thing: str) -> None:
    way = matrix.way(name, web)
    for role in roles(name, thing):
        if thing == "errors":
            errors(matrix, way, role)
        elif thing in READ or hasattr(way, f"read_{thing}"):
            reads(matrix, way, thing, role)
        elif thing == "taken":
            for space in ALL:
                assert matrix.call(way.claim(Who(space, role))) == {space}, (space, role)
        else:
            found = {}
            if thing in ("browse", "reply"):
                found[""] = matrix.call(getattr(matrix, thing)(way, role))
            else:
                act = matrix.get if thing in ("receive", "subscribe", "durable") else matrix.put
                places = ADDRESSES.get(thing, ("news",))
                for place in places[:1] if name in ("REST", "command line") else places:
                    address = f"news/{thing}-{next(_numbers)}" if place == "news" else place
                    found[place] = matrix.call(act(way, thing, role, address))
            expected = {space: [f"{thing} of {role} of {mark(space)}"] for space in ALL}
            assert found == dict.fromkeys(found, expected), role


def reads(matrix: Matrix, way: Any, thing: str, role: str) -> None:
    """Check that there is nothing of another space in what a client of each reads, and something of its own."""
    for space in ALL:
        who = Who(space, role)

        async def seen(who: Who = who) -> str:
            text: str = await getattr(way, f"read_{thing}")(who)
            foreign = [mark(each) for each in ALL if each != who.space and mark(each) in text]
            assert not foreign and "!!" not in text, (who, text)
            return text if (mark(who.space) in text or not expected(way, thing, who)) else ""

        assert matrix.call(until(seen, f"{thing} of {who}"))


def expected(way: Any, thing: str, who: Who) -> bool:
    """Return whether names that are in the space only are in what is read."""
    return who.role != "anonymous" and not isinstance(way, AmqpWay | MqttWay) and thing != "metrics"


def errors(matrix: Matrix, way: Any, role: str) -> None:
    """Check that what is in another space is refused as what is nowhere, also to an administrator, and by whatever
    form of the name."""
    for who in (Who(space, role) for space in ALL):
        if who == ("default", "operator"):
            continue  # who has all names
        unknown = matrix.call(way.errors(who, NOBODYS))
        assert unknown and not [each for each in unknown if re.search(r"!!\w", each.replace(f"!!{NOBODYS}", ""))], (
            unknown
        )
        for other in ALL[1:]:
            if other != who.space:
                found = [each.replace(other, NOBODYS) for each in matrix.call(way.errors(who, other))]
                assert found == unknown, (who, other)


def test_the_table_is_what_the_clients_can_do() -> None:
    """Each cell has a method of its way, each empty one none; the columns that are tried elsewhere are."""
    for file, _, test in (each.partition("::") for each in ELSEWHERE.values()):
        assert f"def {test}(" in (ROOT / file).read_text()
    for name, thing in itertools.product(KINDS, TABLE):
        act = {"durable": "again", "taken": "claim", "retained": "retain"}.get(thing, thing)
        methods = hasattr(KINDS[name], act), hasattr(KINDS[name], f"read_{thing}")
        assert any(methods) is has(name, thing), (name, thing)


def test_the_table_of_the_documentation() -> None:
    page = (ROOT / "docs" / "spaces.md").read_text()
    assert table() in page, table()


@pytest.mark.parametrize("matrix", ["embedded"], indirect=True, scope="module")
def test_routers_of_a_spaces_own(matrix: Matrix) -> None:
    """They come and go with an edit. Whoever connects to one is in the space, whatever the name says; what is sent
    there is at all routers of the suite."""
    tenants = matrix.tenants
    suite, own, other = tenants.suite, *ALL[1:]
    file = suite.config / "spaces.json"
    before = file.read_text()

    def routers() -> list[dict[str, Any]]:
        return [each for each in suite.status()["components"] if each["detail"] == f"of the address space {own}"]

    def ready(count: int) -> bool:
        return [each["ready"] for each in routers()] == [True] * count

    async def use(port: int) -> None:
        with pytest.raises(AmqpError):
            await tenants.amqp(Who(other, "user"), port=port).open(DEADLINE)
        client = await tenants.amqp(Who("default", "user"), port=port).open(DEADLINE)  # no @zzone: the port says it
        for place in ADDRESSES["send"]:
            async with tenants.reading(place) as readers:

                async def sent(place: str = place) -> bool:
                    try:
                        sender = await client.sender(place, name="link", timeout=DEADLINE)
                        return await sender.send(Message(b"mine", durable=True), timeout=DEADLINE) is ACCEPTED
                    except AmqpError:
                        return False

                await until(sent, f"{place} is known there")
                found = await matrix._to_end({space: [] for space in ALL}, readers, place)
                assert set(found[own]) == {"mine"} and not found["default"] and not found[other], place
        answer = await client.request(Message(None, subject="list_topics"), "$subctrl", timeout=DEADLINE)
        assert mark(other) not in str(answer.body)
        await client.close()

    file.write_text(json.dumps({own: {"routers": 2}, other: {}}))
    wait_for(lambda: ready(2), "two routers")
    places = {each["endpoints"]["amqp"] for each in routers()}
    assert len(places) == 1, "they share the port"
    port = int(places.pop().rpartition(":")[2])
    shared = [each for each in suite.status()["components"] if each["kind"] == "router" and each not in routers()]
    assert shared and not any(f"127.0.0.1:{port}" in each["endpoints"].values() for each in shared)
    matrix.call(use(port))
    victim = routers()[0]
    suite.kill(victim)
    wait_for(lambda: ready(2) and victim["pid"] not in [each["pid"] for each in routers()], "it is back")
    assert {each["endpoints"]["amqp"] for each in routers()} == {f"127.0.0.1:{port}"}
    done = suite.command("scale", "routers", "7", "--port-offset", str(suite.offset))
    assert done.returncode == 1 and "address spaces have 2 of their own" in done.stderr, done
    matrix.call(use(port))
    file.write_text(before)
    wait_for(lambda: not routers(), "none is left")


GATEWAYS = {"http_gateway": "HTTP", "stomp_gateway": "STOMP", "mqtt_gateway": "MQTT", "coap_gateway": "CoAP"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["router", "broker", *GATEWAYS])
def test_kills_between_equal_names(matrix: Matrix, kind: str) -> None:
    """What was accepted beside kills comes to its space, and nothing else does. Each sends until it is accepted: a
    message whose outcome was lost may come twice."""
    suite, count = matrix.tenants.suite, 60
    name = GATEWAYS.get(kind, "AMQP")
    role = "anonymous" if name == "CoAP" else "user"

    async def send(space: str) -> None:
        for number in range(count):
            while True:
                way = KINDS[name](matrix.tenants, False)
                try:
                    await way.send(Who(space, role), "jobs", f"{mark(space)} {number}")
                    break
                except (AmqpError, Disconnected, Refused, OSError, EOFError, HTTPException, AssertionError):
                    await asyncio.sleep(0.05)  # limit: until the next try
                finally:
                    with contextlib.suppress(Exception):
                        await way.close()

    async def sent() -> None:
        sending = [asyncio.create_task(send(space)) for space in ALL]
        for _ in range(2):
            await asyncio.to_thread(suite.kill, suite.component(kind, "jobs" if kind == "broker" else ""))
            await asyncio.to_thread(suite.wait_ready)
        await asyncio.gather(*sending)

    matrix.call(sent())
    matrix.call(matrix.tenants.close())
    found = matrix.call(matrix.drained())
    for space in ALL:
        assert set(found[space]) == {f"{mark(space)} {number}" for number in range(count)}, space
