"""Clients of several address spaces at one router and broker: equal names, and nothing of one reaches another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Accepted, Error, Rejected, Released, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.source_filters import SELECTOR
from enmasse.amqp.termini import CLIENT, SENDER, SPACE
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.feeds import ReachedSpace
from enmasse.model.names import LocalName, full_name
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.users import Granted, Permission
from services.router.routing.brokers import relay
from services.router.routing.users import UserRights, Users
from tests.router.spaces import NAMES, Client, World, reason

ALL = ("default", "one", "two")


@pytest.fixture
def world() -> World:
    return World(*ALL)


def each(world: World) -> Iterator[Client]:
    """Yield a client of each space; all have the same container-id."""
    return (world.client(space) for space in ALL)


def nameless(error: object) -> str:
    """Return the text of an error without the name that the client has stated itself."""
    return re.sub(r"'[^']*'", "", str(error))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
def test_equal_names_are_addresses_of_their_own(world: World, name: str, relayed: bool) -> None:
    clients = list(each(world))
    for client in clients:
        client.receiver(name, "r")
    for client in clients:
        sender = client.sender(None if relayed else name, "s")
        assert client.send(sender, client.space, to=name) == Accepted()
    assert [client.take() for client in clients] == [[space] for space in ALL]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{}", "/{}", "amqp:/{}", "amqp://host/{}"])
def test_termini_are_answered_as_the_client_wrote_them(world: World, name: str, form: str) -> None:
    text = form.format(name)
    for client in each(world):
        if name == "news" and form != "{}":  # the broker's own form of names
            continue
        receiver, sender = client.receiver(text), client.sender(text)
        assert client.refused(receiver) is client.refused(sender) is None
        assert receiver.remote_source.address == text == sender.remote_target.address


@pytest.mark.parametrize("name", ["cast", "multi"])
@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
def test_nothing_goes_to_the_receivers_of_another_space(world: World, name: str, relayed: bool) -> None:
    """There is none in the sender's: the message is released, or there is no credit, whoever receives elsewhere."""
    for space in ALL:
        others = [world.client(other) for other in ALL if other != space]
        for other in others:
            other.receiver(name)
        client = world.client(space)
        if relayed:
            assert client.send(client.sender(None), 1, to=name) == Released()
        else:
            assert client.sender(name).credit == 0
        assert [other.take() for other in others] == [[], []]
        for gone in (client, *others):
            gone.leave()


@pytest.mark.parametrize("form", ["{}", "/{}", "//{}", "amqp:/{}", "amqp://h/{}", "::{}", "news::{}", "news/::{}"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("space", ["one", "two", "none"])
def test_no_client_names_a_space(world: World, form: str, name: str, space: str) -> None:
    for other in each(world):
        other.receiver(name)
    text = form.format(f"!!{space}/{name}")
    for client in each(world):
        for link in (client.receiver(text), client.sender(text)):
            error = client.refused(link)
            assert error is not None and error.condition == "amqp:unauthorized-access", (client.space, text)
        assert "amqp:unauthorized-access" in reason(client.send(client.sender(None), "x", to=text))


@pytest.mark.parametrize("source", ["news/#", "news/+", "#", "+/x", "*", "*/x", "!!*/news", "+/news/x"])
def test_wildcards_stay_in_the_space(world: World, source: str) -> None:
    clients = list(each(world))
    for client in clients:
        client.receiver(source)
    for client in clients:
        assert client.send(client.sender("news/x"), client.space) == Accepted()
    for client in clients:
        assert client.take() in ([], [client.space]), source


TEMPORARY = [Symbol("temporary-queue")]


@pytest.mark.parametrize("capabilities", [None, TEMPORARY], ids=["router", "broker"])
@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
@pytest.mark.parametrize("space", ALL)
def test_a_temporary_address_belongs_to_its_owners_space(
    world: World, space: str, capabilities: Any, relayed: bool
) -> None:
    owner = world.client(space, "owner")
    address = owner.receiver(None, dynamic=True, capabilities=capabilities).remote_source.address
    assert address is not None and "!!" not in address and space not in address
    for client in (world.client(other, "answers") for other in ALL):
        if relayed:
            state = client.send(client.sender(None), client.space, to=address)
        else:
            sender = client.sender(address)
            error = client.refused(sender)
            if client.space != space:
                assert error is not None and error.condition == "amqp:not-found"
                continue
            assert error is None
            state = client.send(sender, client.space)
        assert (state == Accepted()) is (client.space == space), state
        if client.space != space:
            assert "amqp:not-found" in reason(state)
    assert owner.take() == [space]


@pytest.mark.parametrize("space", ALL)
def test_a_dynamic_target_belongs_to_its_owners_space(world: World, space: str) -> None:
    owner = world.client(space, "owner")
    address = owner.sender(None, dynamic=True).remote_target.address
    assert address is not None
    for client in (world.client(other, "reads") for other in ALL):
        error = client.refused(client.receiver(address))
        assert (error is None) is (client.space == space)


@pytest.mark.parametrize(
    "address",
    [
        "_local/x", "_local/temp.x", "amqp:/_local/x", "_topo/0/r/x", "_topo/0/r/temp.x", "_topo/0/r2/x",
        "_topo/0/r2/temp.x", "_topo/0/r2/$management", "_topo/all/x", "_topo/1/r/x", "_edge/e/x", "_$temp.x",
    ],
)  # fmt: skip
def test_names_of_routers_are_unknown_in_a_space(world: World, address: str) -> None:
    for client in (world.client("one"), world.client("two")):
        for name in (address, f"/{address}"):
            unknown, refused = client.receiver("nothing"), client.receiver(name)
            assert nameless(client.refused(refused)) == nameless(client.refused(unknown)) != "None"
            assert nameless(client.refused(client.sender(name))) == nameless(client.refused(unknown))
            assert "amqp:not-found" in reason(client.send(client.sender(None), "x", to=name))


@pytest.mark.parametrize("receives", [True, False])
def test_a_temporary_address_at_another_router_is_that_of_its_space(world: World, receives: bool) -> None:
    for space in ("one", "two"):
        owner = world.client(space, "owner")
        link = owner.receiver(None, dynamic=True) if receives else owner.sender(None, dynamic=True)
        made = link.remote_source.address if receives else link.remote_target.address
        there = made.replace("/r/", "/other/")
        for client in (world.client(other, "answers") for other in ("one", "two")):
            for address in (there, there[:-1] + "!"):  # whether it exists makes no difference
                error = client.refused(client.sender(address) if receives else client.receiver(address))
                found = client.space == space and (receives or address == made)
                assert (error is None) is found
                assert error is None or nameless(error) == nameless(client.refused(client.receiver("nothing")))


def test_a_broker_that_knows_no_spaces_gets_each_message_on_a_link_of_its_address() -> None:
    """Its anonymous terminus would look for the name in the default space."""
    world = World(*ALL, knows_spaces=False)
    readers = {space: world.client(space) for space in ALL}
    for reader in readers.values():
        reader.receiver("news/#")
    relays = {space: world.client(space, "sends") for space in ALL}
    for space, client in relays.items():
        anonymous = client.sender(None)
        for topic in ("news/a", "news/b", "news/a"):
            assert client.send(anonymous, f"{space} {topic}", to=topic) == Accepted()
        assert "amqp:not-found" in reason(client.send(anonymous, "x", to="other"))
    for space, reader in readers.items():
        assert reader.take() == [f"{space} news/a", f"{space} news/b", f"{space} news/a"]
    client, other = relays["one"], readers["two"]
    address = client.receiver(None, dynamic=True, capabilities=TEMPORARY).remote_source.address
    assert client.send(client.sender(address), "reply") == Accepted()
    assert client.send(client.sender(None), "relayed", to=address) == Accepted()
    assert (client.take(), other.take()) == (["reply", "relayed"], [])
    error = other.refused(other.sender(address))
    assert error is not None and error.condition == "amqp:not-found"
    assert "amqp:not-found" in reason(other.send(other.sender(None), "x", to=address))


def test_links_of_single_addresses_at_a_broker_that_knows_no_spaces_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "MAX_LINKS", 4)
    world = World(*ALL, knows_spaces=False)
    client, reader = world.client("one", "sends"), world.client("one")
    reader.receiver("news/#")
    anonymous = client.sender(None)
    broker: Any = world.wires[0].far.context
    before = len(broker.links)
    topics = [f"news/{number}" for number in range(10)] * 2
    for topic in topics:
        assert client.send(anonymous, topic, to=topic) == Accepted()
        assert len(broker.links) <= before + 4
    assert reader.take() == topics


def test_durable_subscriptions_of_equal_clients_are_three(world: World) -> None:
    clients = list(each(world))
    for client in clients:
        client.receiver("news/a", "sub", durable=2, expiry_policy="never")
        client.connection.transport_closed()
        client.wire.far.transport_closed()
    world.run()
    for space in ALL:
        sender = world.client(space, "other")
        assert sender.send(sender.sender("news/a"), space) == Accepted()
    queues = [name for name in world.core.broker.catalogue.queues if name.endswith("sub")]
    assert len(queues) == 3
    for space in ALL:
        client = world.client(space)
        link = client.receiver(None, "sub")  # a null source: it is found by its name
        assert link.remote_source is not None and link.remote_source.address == "news/a"
        assert client.take() == [space]
        stranger = world.client(space, "stranger")
        error = stranger.refused(stranger.receiver(None, "sub"))
        assert error is not None and error.condition == "amqp:not-found"


@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
@pytest.mark.parametrize("claimed", ["one", "two", "default", ""])
def test_what_a_client_states_as_its_space_is_replaced(world: World, claimed: str, relayed: bool) -> None:
    clients = list(each(world))
    for client in clients:
        client.receiver("news")
    properties = {Symbol(SPACE): claimed, Symbol(SENDER): b"u" * 13, Symbol("mine"): 1}
    for client in clients:
        sender = client.sender(None if relayed else "news", properties=properties)
        assert client.send(sender, client.space, to="news") == Accepted()
        dynamic = client.sender(None, properties=properties, dynamic=True, capabilities=TEMPORARY)
        assert "!!" not in (dynamic.remote_target.address or "!!")
    assert [client.take() for client in clients] == [[space] for space in ALL]
    temporary = [name for name in world.core.broker.catalogue.addresses if len(name.rpartition("/")[2]) == 36]
    assert sorted(name.partition("/")[0] for name in temporary if "/" in name) == ["!!one", "!!two"]
    assert len(temporary) == 3


def test_the_broker_names_the_client_that_the_router_knows(world: World) -> None:
    seen: list[dict[str, Any]] = []
    world.core.broker.refusals.seen = seen.append
    for space in ALL:
        client = world.client(space, "pump")
        lies = {Symbol(CLIENT): ["root", "liar", "192.0.2.1:1"]}
        source = Source(address="queue", filter=SELECTOR.entry("a = ("))
        link = client.session.attach_receiver("r", source, Target(), properties=lies)
        world.run()
        error = client.refused(link)
        assert error is not None and error.condition == "amqp:invalid-field"
    assert [(each["what"], each["client"], each["peer"]) for each in seen] == [("receive", "pump", "1:1")] * len(ALL)
    assert [each.get("space", "default") for each in seen] == [space or "default" for space in ALL]


def test_what_a_broker_refuses_on_a_link_of_all_clients_is_an_event_of_the_client(world: World) -> None:
    of_broker: list[dict[str, Any]] = []
    of_router: list[dict[str, Any]] = []
    world.core.broker.refusals.seen, world.router.refusals.seen = of_broker.append, of_router.append
    world.core.broker.catalogue.put_settings("#", {"maxSizeBytes": 10, "addressFullMessagePolicy": "FAIL"})
    for space in ALL:
        for container in ("pump", "valve"):
            client = world.client(space, container)
            sender = client.sender("queue")
            outcomes = [client.send(sender, "x" * 100) for _ in range(3)]
            assert isinstance(outcomes[-1], Rejected)
    found = [(each["client"], each["address"], each["condition"]) for each in of_router]
    full = "amqp:resource-limit-exceeded"
    assert sorted(set(found)) == sorted(
        (container, full_name(space, LocalName("queue")), full) for space in ALL for container in ("pump", "valve")
    )
    assert of_broker == [], "not twice"


def test_reasons_name_what_the_client_has_stated(world: World) -> None:
    client = world.client("one")
    relay = client.sender(None)
    texts = [
        reason(client.send(relay, "x", to="nothing")),
        reason(client.send(relay, "x", to="nothing/below")),
        *[
            str(client.refused(link))
            for link in (
                client.receiver("nothing"),
                client.sender("nothing"),
                client.receiver("queue", capabilities=[Symbol("topic")]),
                client.receiver("news", capabilities=[Symbol("queue")]),
                client.sender("news", capabilities=[Symbol("queue")]),
                client.receiver("cast", durable=2, expiry_policy="never"),
                client.receiver("news::missing"),
            )
        ],
    ]
    assert all(text != "None" and "!!" not in text for text in texts), texts
    world.core.broker.catalogue.put_settings(
        "!!one/queue", {"maxSizeBytes": 1, "addressFullMessagePolicy": "FAIL", "maxSizeMessages": 1}
    )
    sender = client.sender("queue")
    states = [client.send(sender, "x" * 500) for _ in range(3)]
    refusals = [reason(state) for state in states if isinstance(state, Rejected)]
    assert refusals and not any("!!" in text for text in refusals), refusals


def test_users_of_a_space_have_no_management(world: World) -> None:
    world.router.addresses.subscribe("M0$management", lambda connection, payload: None)
    client = world.client("one")
    client.record.management = True
    client.record.enter(Principal("alice", space="one"))
    for link in (client.receiver("$management"), client.sender("$management")):
        error = client.refused(link)
        assert error is not None and error.condition == "amqp:unauthorized-access"
    assert "amqp:unauthorized-access" in reason(client.send(client.sender(None), "x", to="$management"))


@pytest.mark.parametrize("source", [{}, {"distribution_mode": "copy"}], ids=["shared", "browsing"])
@pytest.mark.parametrize("size", [10, 100_000], ids=["whole", "pieces"])
def test_a_dead_letter_names_where_it_died_as_its_space_does(world: World, source: Any, size: int) -> None:
    for client in each(world):
        client.rejects = Rejected(error=Error(condition=Symbol("amqp:decode-error"), description="of queue"))
        receiver = client.receiver("queue")
        body = client.space + "x" * size
        stated = {"mine": "!!one/queue"}
        assert client.send(client.sender("queue"), body, annotations=stated, reply_to="queue") == Accepted()
        receiver.detach()
        client.rejects = None
        client.receiver("dead", **source)
        assert client.got == [body, body] and client.replies == ["queue", "queue"]
        notes = client.annotations[1]
        assert notes["x-opt-ORIG-ADDRESS"] == notes["x-opt-ORIG-QUEUE"] == notes["x-opt-death"]["source"] == "queue"
        assert notes["x-opt-death"]["description"] == "of queue"
        assert notes["mine"] == "!!one/queue"  # the client's own


class _ActsForClients:
    """Rights of a process."""

    of_process, max_message_size, sender, role = True, 0, b"", "mqtt_gateway"

    def __init__(self, believed: bool) -> None:
        self.for_clients = believed

    def check_attach(self, *_: Any, **__: Any) -> None: ...

    def check_message(self, address: str) -> None: ...


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("believed", [True, False])
def test_a_process_that_acts_for_clients_states_their_space(world: World, name: str, believed: bool) -> None:
    clients = list(each(world))
    for client in clients:
        client.receiver(name, "r")
    temporary = [client.receiver(None, dynamic=True).remote_source.address for client in clients]
    gateway = world.client(container="gateway")
    gateway.record.management = True
    gateway.record.rights = _ActsForClients(believed)  # type: ignore[assignment]  # what these tests need of it
    for space in ("one", "two"):
        sender = gateway.sender(None, properties={Symbol(SPACE): space})
        assert gateway.send(sender, f"for {space}", to=name) == Accepted()
        for address in temporary:
            gateway.send(sender, f"for {space}", to=address)
    bodies = [set(client.take()) for client in clients]
    assert bodies == ([set(), {"for one"}, {"for two"}] if believed else [{"for one", "for two"}] * 3)


def test_links_that_a_broker_answers_count_for_the_plan(world: World) -> None:
    client = world.client("one")
    users = Users(world.router, lambda: 0.0)
    limits = SpaceLimits(links_per_connection=3)
    users.enforcer.allowances.configure({"one": ReachedSpace(plan="small", limits=limits)})
    me = client.record.principal
    all_of_it = Granted(permissions=(Permission(effect="allow", operations=("send", "recv"), addresses=("#",)),))
    client.record.rights = UserRights(
        users, client.record, me, Permissions({"alice": all_of_it}, space="one").rights(me)
    )
    links = [client.receiver("news"), client.sender("news"), client.receiver("queue")]
    assert [client.refused(link) for link in links] == [None] * 3
    for name in ("news", "queue"):
        refusal = client.refused(client.receiver(name))
        assert refusal is not None and "3 of 3 links of this connection are used" in refusal.description
    links[0].detach()
    world.run()
    again, beyond = client.sender("news"), client.sender("news")
    assert (client.refused(again), client.refused(beyond) is None) == (None, False)
