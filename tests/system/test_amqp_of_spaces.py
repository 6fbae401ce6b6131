"""AMQP clients of three address spaces with equal addresses, users, container-ids and link names, on either engine of
brokers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from proton import Message
from proton.reactor import AtMostOnce, Copy, DurableSubscription, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from enmasse.testing import Suite
from tests.artemis import ENVIRONMENT
from tests.broker.harness import Terminus
from tests.kit.waiting import DEADLINE
from tests.system.amqp_users import proton
from tests.system.mqtt_of_spaces import ALL, PASSWORD, suite_with_spaces, user

_numbers = itertools.count()
pytestmark = pytest.mark.slow
"""tests/router/test_spaces.py shows the same of the router and the embedded broker alone."""


@pytest.fixture(scope="module", params=["embedded", "artemis"])
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "ENMASSE_BROKER": request.param}.items():
            patch.setenv(name, value)
        with suite_with_spaces(tmp_path_factory.mktemp("spaces")) as found:
            yield found


@pytest.fixture
def clients(suite: Suite) -> Iterator[dict[str, BlockingConnection]]:
    """A client of each space, equal but for the space."""
    with connected(suite) as found:
        yield found


@contextlib.contextmanager
def connected(suite: Suite, container: str = "same") -> Iterator[dict[str, BlockingConnection]]:
    with contextlib.ExitStack() as stack:
        found = {}
        for space in ALL:
            found[space] = proton(suite, user(space), PASSWORD, container_id=container)
            stack.callback(found[space].close)
        yield found


def take(receiver: BlockingReceiver) -> list[str]:
    """Return the messages up to the first that ends a test."""
    found: list[str] = []
    while not found or not found[-1].startswith("end"):
        found.append(str(receiver.receive(DEADLINE).body))
        if receiver.fetcher.unsettled:
            receiver.accept()
    return found[:-1]


@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
@pytest.mark.parametrize("space", ALL)
@pytest.mark.parametrize("address", ["jobs", "news/{}", "direct", "cast"])
def test_nothing_crosses(clients: dict[str, BlockingConnection], space: str, address: str, relayed: bool) -> None:
    name = address.format(f"t{next(_numbers)}")
    receivers = {each: clients[each].create_receiver(name, credit=10, name="r") for each in ALL}
    settled = AtMostOnce() if address in ("direct", "cast") else None  # the receivers do not settle meanwhile
    target = None if relayed else name
    senders = {each: clients[each].create_sender(target, name="s", options=settled) for each in ALL}
    to = name if relayed else None
    senders[space].send(Message(address=to, body="here", durable=True))
    for each in ALL:
        senders[each].send(Message(address=to, body="end", durable=True))
    for each in ALL:
        assert take(receivers[each]) == (["here"] if each == space else []), each
        receivers[each].close()


@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
@pytest.mark.parametrize("other", ["!!one/{}", "/!!one/{}", "amqp:/!!two/{}"])
@pytest.mark.parametrize("name", ["jobs", "news/a"])
def test_no_client_states_a_space(clients: dict[str, BlockingConnection], name: str, other: str, relayed: bool) -> None:
    for client in clients.values():
        if relayed:
            with pytest.raises(SendException):
                client.create_sender(None).send(Message(address=other.format(name), body="crossing"))
        else:
            for attach in (client.create_sender, client.create_receiver):
                with pytest.raises(LinkDetached):
                    attach(other.format(name))


@pytest.mark.parametrize("space", ALL)
def test_equal_durable_subscriptions_are_three(suite: Suite, space: str) -> None:
    topic = f"news/d{next(_numbers)}"
    for _ in range(2):  # attached again, by a new connection with the same container-id
        with connected(suite) as clients:
            for each in ALL:
                receiver = clients[each].create_receiver(topic, credit=0, name=topic, options=[DurableSubscription()])
                receiver.link.detach()  # it stays
    with connected(suite, "others") as clients:
        senders = {each: clients[each].create_sender(topic) for each in ALL}
        senders[space].send(Message(body="kept", durable=True))
        for sender in senders.values():
            sender.send(Message(body="end", durable=True))
    with connected(suite) as clients:
        for each in ALL:
            receiver = clients[each].create_receiver(topic, credit=10, name=topic, options=[DurableSubscription()])
            assert take(receiver) == (["kept"] if each == space else []), each
            receiver.close()


@pytest.mark.parametrize("space", ALL)
def test_selectors_and_browsers_see_their_space(clients: dict[str, BlockingConnection], space: str) -> None:
    number = next(_numbers)
    for each in ALL:
        message = Message(body=each, properties={"number": number, "space": each}, durable=True)
        clients[each].create_sender("jobs").send(message)
    browser = clients[space].create_receiver("jobs", credit=10, name="b", options=[Copy()])
    assert browser.receive(DEADLINE).body == space
    browser.close()
    for each in ALL:
        receiver = clients[each].create_receiver("jobs", credit=10, options=[Selector(f"number = {number}")])
        assert receiver.receive(DEADLINE).body == each
        receiver.accept()
        receiver.close()


@pytest.mark.parametrize("stored", [False, True], ids=["router", "broker"])
@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
def test_a_temporary_address_is_of_its_owners_space(
    clients: dict[str, BlockingConnection], suite: Suite, stored: bool, relayed: bool
) -> None:
    options = [Terminus("temporary-queue")] if stored else []
    owner = clients["one"].create_receiver(None, dynamic=True, credit=10, options=options)
    address = owner.link.remote_source.address
    assert "!!" not in address
    for each in ALL:
        if each == "one":
            sender = clients[each].create_sender(None if relayed else address, options=AtMostOnce())
            sender.send(Message(address=address, body="end"))
        elif relayed:
            with pytest.raises(SendException):
                clients[each].create_sender(None).send(Message(address=address, body="crossing"))
        else:
            with pytest.raises(LinkDetached):
                clients[each].create_sender(address)
    assert take(owner) == []


@pytest.mark.parametrize("space", ALL)
def test_what_messages_and_errors_tell_is_of_the_space(clients: dict[str, BlockingConnection], space: str) -> None:
    client = clients[space]
    topic = f"news/e{next(_numbers)}"
    receiver = client.create_receiver(topic, credit=10)
    client.create_sender(topic).send(Message(address=topic, reply_to="jobs", body="x"))
    message = receiver.receive(DEADLINE)
    assert "!!" not in f"{message.address}{message.reply_to}{message.annotations}"
    receiver.accept()
    with pytest.raises(LinkDetached) as found:
        client.create_sender("missing")
    assert "!!" not in str(found.value) and "missing" in str(found.value)
