"""Limits of a space's plan at two routers: together they let in what the plan states, and not one more."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from proton import ConnectionException, LinkException
from proton.utils import BlockingConnection

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from tests.kit.waiting import until, wait_for
from tests.router.tenants import Front, Installation


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
        wait_for(lambda: installation.used()["connections"] == 5, "the status shows what is used")


def _connected(
    installation: Installation, front: int, user: str = "alice", space: str = "one"
) -> BlockingConnection | None:
    with contextlib.suppress(ConnectionException):
        return installation.connect(front, user, space)
    return None


def test_many_at_once_at_both_routers_are_as_many_as_the_plan_states(installation: Installation) -> None:
    connected = _at_once(installation, 12)
    try:
        assert len(connected) <= 5
        while len(connected) < 5:  # what was left was another router's
            connected.append(wait_for(lambda: _any(installation), "one more is let in"))
        assert _any(installation) is None
    finally:
        for each in connected:
            each.close()


def _any(installation: Installation) -> BlockingConnection | None:
    """Return a connection of either user at either router; None if none is let in."""
    ways = ((front, user) for front in (0, 1) for user in ("alice", "bob"))
    return next((found for way in ways if (found := _connected(installation, *way)) is not None), None)


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


def test_a_user_has_as_many_as_its_own_limit_over_both_routers(installation: Installation) -> None:
    """Of users.json, of a group; connections from before the limit count, and one that leaves makes room."""
    with contextlib.ExitStack() as stack:
        kept = [installation.connect(front, space="two") for front in (0, 1)]
        for each in kept:
            stack.callback(each.close)
        installation.limit_users("two", connections=2)
        for front in (0, 1):
            wait_for(partial(_has_two, installation, front), "the limit is in force")
        stack.callback(installation.connect(1, "bob", space="two").close)
        kept.pop().close()
        stack.callback(wait_for(lambda: _connected(installation, 0, space="two"), "the room is here").close)
        assert "alice has 2 of 2 connections" in installation.refused(1, space="two")
        installation.limit_users("two")
        wait_for(lambda: _connected(installation, 1, space="two"), "no limit is in force").close()


def test_a_users_connects_in_a_second_are_those_of_both_routers(installation: Installation) -> None:
    installation.limit_users("two", connects_per_second=20)
    wait_for(lambda: _is_too_often(installation), "the limit is in force")
    over, made = threading.Event(), [0, 0]

    def connect(front: int) -> None:
        while not over.is_set():
            if (found := _connected(installation, front, space="two")) is not None:
                found.close()
                made[front] += 1

    with ThreadPoolExecutor(2) as ends:
        tries = [ends.submit(connect, front) for front in (0, 1)]
        try:
            wait_for(lambda: min(made) > 5 or any(each.done() for each in tries), "both let the user in")
            before, begun = sum(made), time.monotonic()

            def is_limited() -> bool:
                """Return whether the mean is that of one limit."""
                seconds, more = time.monotonic() - begun, sum(made) - before
                return more > 60 and more <= 26 * seconds

            wait_for(lambda: is_limited() or any(each.done() for each in tries), "together they have the user's rate")
        finally:
            over.set()
        for each in tries:
            each.result()
    installation.limit_users("two")


def _is_too_often(installation: Installation) -> bool:
    for _ in range(100):
        try:
            installation.connect(0, space="two").close()
        except ConnectionException as refused:
            return "alice may connect 20 times a second" in str(refused)
    return False


def _has_two(installation: Installation, front: int) -> bool:
    try:
        installation.connect(front, space="two").close()
    except ConnectionException as refused:
        return "alice has 2 of 2 connections" in str(refused)
    return False


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


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_router_held_that_is_killed_or_hangs_is_free(installation: Installation, end: signal.Signals) -> None:
    third = Front("r3", installation.configserv.settings["listen"], installation.authserv.port)
    installation.fronts.append(third)
    with contextlib.ExitStack() as stack:
        stack.callback(third.folder.cleanup)
        stack.callback(third.log.close)
        stack.callback(third.process.wait)
        stack.callback(third.process.kill)
        stack.callback(installation.fronts.remove, third)
        held = [installation.connect(2) for _ in range(3)]  # to close one of them at the end waits for its router
        assert "alice has 3 of 3 connections" in installation.refused(0)
        third.process.send_signal(end)
        for _ in range(3):
            stack.callback(wait_for(lambda: _connected(installation, 0), "the room is here").close)
        assert "alice has 3 of 3 connections" in installation.refused(1)
        del held


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


@pytest.mark.slow  # test_space_limits.py of the MQTT gateway has a rate over gateways and routers
def test_a_rate_counts_for_both_routers_together(installation: Installation) -> None:
    installation.plans(messagesPerSecond=1000)
    wait_for(lambda: "messagesPerSecond" in installation.space("three")["limits"], "the plan is in force")
    asyncio.run(_flood(installation))


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
                # pause: a thousand messages are on the way meanwhile
                await asyncio.sleep(0.02)

    floods = [asyncio.ensure_future(flood(front)) for front in (0, 1)]
    await asyncio.to_thread(
        wait_for, lambda: "messagesPerSecond" in installation.used("three"), "the routers know the plan"
    )
    sent = received
    await until(lambda: received > sent + 1500 or any(each.done() for each in floods), "both send")
    before, begun = received, time.monotonic()

    def is_limited() -> bool:
        """Return whether the mean is that of one plan. What the routers have let in before may come in one piece."""
        return received > before + 3000 and received - before <= 1500 * (time.monotonic() - begun)

    await until(lambda: is_limited() or any(each.done() for each in floods), "together they have the rate of the plan")
    for each in floods:
        each.cancel()
    assert {type(each) for each in await asyncio.gather(*floods, return_exceptions=True)} == {asyncio.CancelledError}
