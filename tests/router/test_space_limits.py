"""Limits of a space's plan at two routers: together they let in what the plan states, and not one more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proton import ConnectionException, LinkException
from proton.utils import BlockingConnection

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from enmasse.model.users import Permission, User
from tests.authserv.running import Running, user
from tests.configserv.running import FLAVORS, Client, Configserv
from tests.kit.waiting import DEADLINE, until, wait_for
from tests.router.harness import SILENCE, RouterProcess, free_port

ALL = (Permission(effect="allow", operations=("send", "recv"), addresses=("#",)),)
USERS = {name: user("pw", random=False, permissions=ALL) for name in ("alice", "bob")}
SPACES = {"one": ReachedSpace(), "two": ReachedSpace(), "three": ReachedSpace()}
LIMITS = {"connections": 5, "connectionsPerUser": 3, "linksPerConnection": 2, "maxMessageSize": 1000}


def _entry(each: User) -> dict[str, Any]:
    """Return the entry of users.json of a user."""
    entry: dict[str, Any] = msgspec.to_builtins(each)
    permissions = [{"allow": ["send", "recv"], "addresses": ["#"]}]
    return {"password": entry["password"], "scram": entry["scram"], "permissions": permissions}


class Front(RouterProcess):
    """A router that follows the configuration service, with a listener for users."""

    def __init__(self, name: str, configserv: str, authserv: int) -> None:
        self.users = free_port()
        plugin = {"name": "auth", "host": "127.0.0.1", "port": str(authserv)}
        listener = {
            "name": "users", "host": "127.0.0.1", "port": str(self.users), "saslPlugin": "auth", "management": False,
            "idleTimeoutSeconds": SILENCE, "authenticatePeer": True,
        }  # fmt: skip
        entities: list[list[Any]] = [["authServicePlugin", plugin], ["listener", listener]]
        super().__init__(entities, router_id=name, default="balanced", settings={"configserv": configserv})


class Installation:
    """A configuration service, an authentication service and two routers."""

    def __init__(self, folder: Path) -> None:
        self.configserv = Configserv(folder)
        self._number = 0
        self.put("flavors.json", FLAVORS)
        self.put("addresses.json", {})
        self.put("users.json", {})
        self.put("spaces.json", {"one": {"plan": "small"}, "two": {}, "three": {"plan": "changing"}})
        for space in SPACES:
            self.put(f"spaces/{space}/addresses.json", {})
            self.put(f"spaces/{space}/users.json", {name: _entry(each) for name, each in USERS.items()})
        self.plans(connections=4)
        self.authserv = Running()
        self.fronts: list[Front] = []

    def __enter__(self) -> Installation:
        self.authserv.__enter__()
        in_spaces = {f"!!{space}/{name}": each for space in SPACES for name, each in USERS.items()}
        self.authserv.replace(feeds.Users(spaces=SPACES, in_spaces=in_spaces))
        self.configserv.start()
        where = self.configserv.settings["listen"]
        self.fronts = [Front(name, where, self.authserv.port) for name in ("r1", "r2")]
        return self

    def __exit__(self, *failure: Any) -> None:
        for front in self.fronts:
            front.stop()
        self.configserv.stop()
        self.authserv.__exit__(*failure)

    def put(self, path: str, content: Any) -> None:
        """Write a file by atomic rename."""
        file = self.configserv.config / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(json.dumps(content))
        new.rename(file)

    def plans(self, **changing: int) -> None:
        """Write the plan of the space one, and one with these limits of the space three."""
        limits = {"small": LIMITS, "changing": changing}
        self.put(
            "plans.json",
            {name: {"kind": "space", "addressPlans": [], "limits": each} for name, each in limits.items()},
        )

    def connect(self, front: int, user: str = "alice", space: str = "one") -> BlockingConnection:
        return BlockingConnection(
            f"127.0.0.1:{self.fronts[front].users}", timeout=DEADLINE, user=f"{user}@{space}", password="pw",
            allowed_mechs="PLAIN",
        )  # fmt: skip

    def refused(self, front: int, user: str = "alice", space: str = "one") -> str:
        """Return why a connection is refused."""
        with pytest.raises(ConnectionException) as refusal:
            self.connect(front, user, space)
        return str(refusal.value)

    def used(self, space: str = "one") -> dict[str, int]:
        """Return what a space uses, as the newest status shows it."""
        used: dict[str, int] = self.space(space)["used"]
        return used

    def space(self, name: str) -> dict[str, Any]:
        """Return a space as the newest status shows it."""
        client = Client(self.configserv)
        try:
            found: dict[str, Any] = client.next("status")["spaces"][name]
        finally:
            client.close(DEADLINE)
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with Installation(tmp_path_factory.mktemp("spaces")) as made:
        yield made


@pytest.fixture
def installation(running: Installation) -> Iterator[Installation]:
    """Without clients."""
    wait_for(lambda: running.used().get("connections", 0) == 0, "the clients of the test before are gone")
    yield running


def test_two_routers_let_in_what_the_plan_states_and_no_more(installation: Installation) -> None:
    """All at one router, of which the other has had a share; and after one leaves there, one comes here."""
    with contextlib.ExitStack() as stack:
        first = [installation.connect(1), installation.connect(1)]
        other = [installation.connect(0, "bob") for _ in range(3)]
        for each in (*first, *other):
            stack.callback(each.close)
        for front in (0, 1):
            text = installation.refused(front)
            assert "amqp:resource-limit-exceeded" in text
            assert "5 of 5 connections of the plan 'small' are used: close one of them, or ask for another plan" in text
        stack.enter_context(contextlib.closing(installation.connect(0, space="two")))
        first.pop().close()
        stack.callback(wait_for(lambda: _connected(installation, 0), "the room is another router's").close)
        assert "5 of 5" in installation.refused(1)
        wait_for(lambda: installation.used() == {"connections": 5}, "the status shows what is used")


def _connected(installation: Installation, front: int, user: str = "alice") -> BlockingConnection | None:
    with contextlib.suppress(ConnectionException):
        return installation.connect(front, user)
    return None


def test_many_at_once_at_both_routers_are_as_many_as_the_plan_states(installation: Installation) -> None:
    connected = _at_once(installation, 12)
    try:
        assert len(connected) == 5
    finally:
        for each in connected:
            each.close()


def _at_once(installation: Installation, count: int) -> list[BlockingConnection]:
    """Return the connections that two users get, who try so many times in all."""
    with ThreadPoolExecutor(count) as ends:
        ways = [(number % 2, ("alice", "bob")[number // 2 % 2]) for number in range(count)]
        tries = [ends.submit(_connected, installation, *way) for way in ways]
        return [each for tried in tries if (each := tried.result()) is not None]


def test_a_user_has_as_many_as_the_plan_gives_over_both_routers(installation: Installation) -> None:
    with contextlib.ExitStack() as stack:
        for front in (0, 1, 0):
            stack.callback(installation.connect(front).close)
        for front in (0, 1):
            text = installation.refused(front)
            assert "alice has 3 of 3 connections that the plan 'small' gives a user: close one of them" in text
        stack.callback(installation.connect(1, "bob").close)


def test_a_smaller_plan_keeps_what_there_is_and_lets_nothing_new_in(installation: Installation) -> None:
    with contextlib.ExitStack() as stack:
        kept = [installation.connect(number % 2, space="three") for number in range(4)]
        for each in kept:
            stack.callback(each.close)
        assert "4 of 4 connections of the plan 'changing'" in installation.refused(0, space="three")
        installation.plans(connections=2)
        wait_for(lambda: "4 of 2" in installation.refused(0, space="three"), "the smaller plan is in force")
        wait_for(lambda: "4 of 2" in installation.refused(1, space="three"), "the smaller plan is in force")
        for each in kept:
            each.create_sender("a").close()
        kept.pop().close()
        assert "of 2 connections" in installation.refused(1, space="three")


def test_links_and_sizes_of_messages_have_the_limits_of_the_plan(installation: Installation) -> None:
    with contextlib.ExitStack() as stack:
        connection = installation.connect(0)
        stack.callback(connection.close)
        receiver = connection.create_receiver("a")
        sender = connection.create_sender("a")
        with pytest.raises(LinkException) as refusal:
            connection.create_receiver("b")
        assert "2 of 2 links of this connection are used, which is what the plan 'small' gives" in str(refusal.value)
        assert sender.link.remote_max_message_size == 1000
        receiver.close()
        connection.create_receiver("b")


def test_limits_hold_while_the_configuration_service_is_away(installation: Installation) -> None:
    """Each router keeps the share that it had: in all they let in no more than the plan states."""
    with contextlib.ExitStack() as stack:
        stack.callback(installation.connect(0).close)
        stack.callback(installation.connect(1, "bob").close)
        installation.configserv.kill()
        try:
            further = _at_once(installation, 8)
            for each in further:
                stack.callback(each.close)
            assert len(further) <= 3
        finally:
            installation.configserv.start()
        wait_for(lambda: installation.used().get("connections") == 2 + len(further), "it learns what is used")


def test_a_rate_counts_for_both_routers_together(installation: Installation) -> None:
    installation.plans(messagesPerSecond=1000)
    wait_for(lambda: "messagesPerSecond" in installation.space("three")["limits"], "the plan is in force")
    asyncio.run(_flood(installation))
    wait_for(lambda: "messagesPerSecond" in installation.used("three"), "the status shows the rate")


async def _flood(installation: Installation) -> None:
    received = 0

    async def flood(front: int) -> None:
        nonlocal received
        port = installation.fronts[front].users
        async with connect(host="127.0.0.1", port=port, user="alice@three", password="pw") as client:
            receiver = await client.receiver("a", credit=1000)
            sender = await client.sender("a")
            while True:
                while sender.credit:
                    sender.send_nowait(Message("x"))
                for delivery in receiver.receive_all(1000):
                    received += 1
                    await delivery.accept()
                await asyncio.sleep(0)

    floods = [asyncio.ensure_future(flood(front)) for front in (0, 1)]
    await until(lambda: received > 1500 or any(each.done() for each in floods), "both send")
    before, begun = received, time.monotonic()
    await until(lambda: received > before + 3000 or any(each.done() for each in floods), "they go on")
    rate = (received - before) / (time.monotonic() - begun)
    for each in floods:
        each.cancel()
    assert {type(each) for each in await asyncio.gather(*floods, return_exceptions=True)} == {asyncio.CancelledError}
    assert rate <= 1500, rate
