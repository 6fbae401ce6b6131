"""The selectors, wildcard filters and durable subscriptions of one user are bounded together, over all links and
connections."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from proton.reactor import Container, Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

from enmasse.identity.filter_limits import MOST as MOST_LEVELS
from services.broker.core.errors import BrokerError
from services.broker.core.limits import user_limits
from services.broker.core.limits.user_limits import MOST, UserLimits
from services.broker.core.messages.condition import Condition
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.subscription import Identity, queue_name
from services.broker.nodes import Nodes
from services.broker.selector import MAX_WORDS, compile_selector
from tests.broker.harness import BrokerProcess, Management, Terminus
from tests.broker.sansio import Core
from tests.kit.waiting import DEADLINE

LONG = " OR ".join(f"p LIKE '%{'a' * 60}{n:02}%'" for n in range(16))
WEIGHT = compile_selector(LONG).weight


@contextmanager
def connected(broker: BrokerProcess, container_id: str) -> Iterator[BlockingConnection]:
    container = Container()
    container.container_id = container_id
    with closing(BlockingConnection(f"127.0.0.1:{broker.port}", timeout=DEADLINE, container=container)) as connection:
        yield connection


def receive(connection: BlockingConnection, address: str, kind: str) -> Any:
    options = [Selector(LONG), Copy()] if kind == "browser" else [Selector(LONG)]
    return connection.create_receiver(address, name=uuid.uuid4().hex, options=options)


@pytest.mark.parametrize("kind", ["consumer", "browser", "subscription"])
def test_the_selectors_of_a_user_are_bounded(kind: str, broker: BrokerProcess) -> None:
    with broker.manage() as manage:
        manage.queue(f"words.{kind}")
        manage("createAddress", f"topic.{kind}", "MULTICAST")
    address = f"topic.{kind}" if kind == "subscription" else f"words.{kind}"
    most = MOST // WEIGHT
    with connected(broker, "~eve/one") as one, connected(broker, "~eve/two") as two:
        held = [receive(each, address, kind) for each in (one, two) for _ in range(most // 2)]
        with pytest.raises(LinkDetached, match="the most are"):
            [receive(two, address, kind) for _ in range(3)]
        with connected(broker, "~bob/one") as other:
            receive(other, address, kind)
        held[0].close()
        receive(two, address, kind)
    with connected(broker, "~eve/one") as again:  # those of lost connections no longer count
        [receive(again, address, kind) for _ in range(most)]


DURABLE = Terminus("topic", durable=True)
SHARED = Terminus("topic", "shared", durable=True)


@pytest.mark.parametrize("kind", [DURABLE, SHARED], ids=["durable", "shared"])
def test_the_selectors_of_subscriptions_whose_clients_are_away_count(
    kind: Terminus, broker: BrokerProcess, request: pytest.FixtureRequest
) -> None:
    most, topic = MOST // WEIGHT, f"kept.{request.node.callspec.id}"
    with broker.manage() as manage:
        manage("createAddress", topic, "MULTICAST")

    def subscribe(connection: BlockingConnection, name: str, selector: str = LONG) -> Any:
        return connection.create_receiver(topic, name=name, options=[Selector(selector), kind])

    for clients in ("~eve/one", "~eve/two"), ("~eve/two", "~eve/one"):  # the second time after a restart
        for client in clients:
            with connected(broker, client) as connection:
                for number in range(most // 2):
                    subscribe(connection, f"s{number}").detach()
        with connected(broker, "~eve/three") as connection:
            with pytest.raises(LinkDetached, match="the most are"):
                [subscribe(connection, f"s{number}").detach() for number in range(2)]
            with pytest.raises(LinkDetached, match="the most are"):
                [receive(connection, topic, "subscription") for _ in range(2)]
        broker.restart()
    with connected(broker, "~eve/one") as connection:
        held = [subscribe(connection, f"s{number}") for number in range(most // 2)]  # attached, each counts once
        held[0].close()
        subscribe(connection, "again").detach()
        with pytest.raises(LinkDetached, match="the most are"):
            [subscribe(connection, f"more{number}").detach() for number in range(2)]
    for name, selector in ("again", f"{LONG} OR x = 1"), ("again", "x = 1"), ("other", LONG):
        with connected(broker, "~eve/one") as connection:  # in the place of the one before, so that there is room
            subscribe(connection, name, selector).detach()
    with connected(broker, "~eve/one") as connection, pytest.raises(LinkDetached, match="the most are"):
        [subscribe(connection, f"s0{number}").detach() for number in range(2)]
    _ended(broker, topic)


@pytest.mark.parametrize("durable", [False, True])
def test_the_wildcards_of_a_user_are_bounded(durable: bool, broker: BrokerProcess) -> None:
    topic, levels = f"wild{durable:d}", 64
    with broker.manage() as manage:
        manage("createAddress", topic, "MULTICAST")

    def pattern(number: int) -> str:
        return "/".join([topic, *("a" * number), "+", *("a" * (levels - number - 2))])

    def subscribe(connection: BlockingConnection, pattern: str) -> Any:
        options = [DURABLE] if durable else []
        return connection.create_receiver(pattern, name=uuid.uuid4().hex, options=options)

    most = MOST_LEVELS // levels
    with connected(broker, "~eve/one") as one, connected(broker, "~eve/two") as two:
        held = [subscribe(each, pattern(number)) for number in range(most // 2) for each in (one, two)]
        held += [subscribe(two, pattern(number)) for number in range(most // 2, most)]
        if durable:
            for each in held:
                each.detach()
            broker.restart()
    with connected(broker, "~eve/one") as one, connected(broker, "~bob/one") as bob:
        if not durable:
            held = [subscribe(one, pattern(number)) for number in range(most)]
        for refused in (pattern(most), f"{topic}/#/a"):
            with pytest.raises(LinkDetached, match=r"amqp:resource-limit-exceeded.*the most are 2048"):
                subscribe(one, refused)
        subscribe(one, pattern(0)).close()
        for free in ("#", "a/#", "a/+", "b"):
            subscribe(one, f"{topic}/{free}").close()
        subscribe(bob, pattern(most)).close()
    _ended(broker, topic)


def _ended(broker: BrokerProcess, topic: str) -> None:
    """The fixture is shared: what is left of the test's topic would count for others."""
    with broker.manage() as manage:
        for name, row in manage.rows().items():
            if row["address"].split("/")[0] == topic:
                manage("destroyQueue", name, True)
        manage("deleteAddress", topic)


def test_clients_without_a_user_count_by_container() -> None:
    limits = UserLimits()
    for container in ("a", "b"):
        limits.check(container, MOST)
        limits.add_words(container, MOST)
    limits.add_words("a", -MOST)
    limits.check("a", MOST)
    assert MAX_WORDS < MOST


def test_a_selector_that_management_changes_counts_as_it_is(m: Management, broker: BrokerProcess) -> None:
    m("createAddress", "edited", "MULTICAST")
    with connected(broker, "~eve/one") as connection:
        connection.create_receiver("edited", name="s", options=[Selector("x = 1"), DURABLE]).detach()
        m("updateQueue", json.dumps({"name": "~eve/one.s", "filter-string": LONG}))
        held = [receive(connection, "edited", "subscription") for _ in range(MOST // WEIGHT - 1)]
        with pytest.raises(LinkDetached, match="the most are"):
            receive(connection, "edited", "subscription")
        assert held
    _ended(broker, "edited")


def subscribe_core(core: Core, client: str, link: str, *, form: str = "durable") -> Queue:
    """Attach and detach a subscriber to a durable subscription of `news`."""
    shared, everywhere = form != "durable", form == "global"
    name = queue_name(Identity(client, link), durable=True, shared=shared, everywhere=everywhere)
    connection = SimpleNamespace(router=True, user="", remote="")
    nodes = Nodes(core.broker, connection)  # type: ignore[arg-type]  # what Nodes uses of a connection
    return nodes.subscription(name, "news", Condition(), durable=True, shared=shared, client=client)


@pytest.mark.parametrize("form", ["durable", "shared", "global"])
@pytest.mark.parametrize("user", ["~eve/", "~eve@shop/", ""], ids=["user", "user in a space", "anonymous"])
def test_the_durable_subscriptions_of_a_user_are_bounded(
    form: str, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_limits, "MOST_SUBSCRIPTIONS", 6)
    core = Core(tmp_path)
    core.broker.catalogue.create_address("news", frozenset({"MULTICAST"}))

    def subscribe(number: int, whose: str = user) -> Queue:
        return subscribe_core(core, f"{whose}c{number // 2}", f"s{number}", form=form)

    for _ in range(2):  # the second time after a restart
        made = [subscribe(number) for number in range(6)]
        with pytest.raises(BrokerError, match=r"have 6 durable subscriptions.*MAX_SUBSCRIPTIONS") as refusal:
            subscribe(6)
        assert refusal.value.condition == "amqp:resource-limit-exceeded"
        assert subscribe(0) is made[0]
        for other in "~bob/", "~eve@other/":
            subscribe(0, other)
        core.commit()
        core.restart()
    catalogue = core.broker.catalogue
    monkeypatch.setattr(user_limits, "MOST_SUBSCRIPTIONS", 3)
    for number in range(6):  # those that exist stay, also if there may be fewer
        assert subscribe(number).name in catalogue.queues
    for number in range(4):
        with pytest.raises(BrokerError, match="durable subscriptions"):
            subscribe(6)
        catalogue.destroy_queue(subscribe(number).name)
    subscribe(6)
    core.store.close()  # type: ignore[union-attr]  # this core has a store


def test_an_administrator_may_allow_a_client_more_than_a_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_limits, "MOST_SUBSCRIPTIONS", 2)
    core = Core(max_subscriptions=4)
    core.broker.catalogue.create_address("news", frozenset({"MULTICAST"}))
    for number in range(4):
        subscribe_core(core, f"~eve/{number}", "s")
    with pytest.raises(BrokerError, match="of user 'eve' have 4"):
        subscribe_core(core, "~eve/4", "s")
    subscribe_core(core, "~bob/one", "s")
