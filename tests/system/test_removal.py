"""Nothing that holds messages is thrown away, or hidden, unless somebody forces it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.model.flavors import IN_MEMORY
from enmasse.testing import Suite
from tests.kit.processes import COMMAND, run
from tests.load import receive, send, subscribe
from tests.system.conftest import QUEUE, TOPIC
from tests.system.exchange import exchange
from tests.system.seeing import find, kill, wait_address, wait_gone, wait_message, wait_process

STORED = {"type": "queue", "flavor": QUEUE}
TEN = list(range(10))


@pytest.fixture
def doomed(suite: Suite) -> Iterator[str]:
    """A queue that holds ten messages; whatever becomes of it, it is gone afterwards."""
    suite.edit("addresses.json", {"doomed": STORED})
    suite.wait_ready()
    send(suite.url, "doomed", 10)
    wait_address(suite, "doomed", messages=10)
    yield "doomed"
    suite.edit("addresses.json", {}, remove=["doomed"])
    if find(suite, "doomed") is not None:
        remove(suite, "doomed", "--force")
    wait_gone(suite, "doomed")


def remove(suite: Suite, name: str, *options: str) -> None:
    place = ("--config", str(suite.config), "--port-offset", str(suite.offset))
    done = run(COMMAND, "address", "remove", name, *options, *place)
    assert done.returncode == 0 or find(suite, name) is None, done.stderr


def test_a_removed_queue_is_kept_until_it_is_drained(suite: Suite, doomed: str) -> None:
    """Also by controllers that have been killed meanwhile and know nothing but what they read."""
    remove(suite, doomed)
    wait_message(suite, doomed, "was removed: still holds 10 messages on broker ")
    wait_address(suite, doomed, phase="Terminating", ready=False, messages=10)
    for controller in ("storage_controller", "configserv", "ragent"):
        wait_process(suite, controller, kill(suite, controller))
        wait_address(suite, doomed, phase="Terminating", messages=10)
    assert receive(suite.url, doomed, 10) == TEN
    wait_gone(suite, doomed)
    suite.edit("addresses.json", {doomed: STORED})
    suite.wait_ready()
    wait_address(suite, doomed, messages=0)
    exchange(suite.url, [doomed])


def test_a_removed_topic_is_kept_while_a_subscription_has_messages(suite: Suite) -> None:
    suite.edit("addresses.json", {"doomed-topic": {"type": "topic", "flavor": TOPIC}})
    suite.wait_ready()
    subscribe(suite.url, "doomed-topic", "away")
    send(suite.url, "doomed-topic", 10)
    remove(suite, "doomed-topic")
    wait_address(suite, "doomed-topic", phase="Terminating", messages=10)
    assert receive(suite.url, "doomed-topic", 10, container_id="away", subscription="durable") == TEN
    wait_gone(suite, "doomed-topic")


def test_force_deletes_the_address_with_its_messages(suite: Suite, doomed: str) -> None:
    remove(suite, doomed, "--force")
    wait_gone(suite, doomed)
    suite.edit("addresses.json", {doomed: STORED})
    suite.wait_ready()
    wait_address(suite, doomed, messages=0)


@pytest.mark.parametrize(
    "other", [{"type": "topic", "flavor": TOPIC}, {"type": "anycast"}, {"type": "multicast"}], ids=lambda e: e["type"]
)
def test_a_change_of_type_waits_until_the_queue_is_empty(suite: Suite, doomed: str, other: dict[str, str]) -> None:
    suite.edit("addresses.json", {doomed: other})
    wait_message(suite, doomed, f"retyped from queue to {other['type']}: still holds 10 messages on broker ")
    wait_address(suite, doomed, type=other["type"], ready=False, messages=10)
    assert receive(suite.url, doomed, 10) == TEN
    wait_address(suite, doomed, type=other["type"], ready=True, phase="Active", message="")
    exchange(suite.url, [doomed])


def test_a_change_of_flavor_keeps_waiting_messages_visible_until_they_are_consumed(suite: Suite, doomed: str) -> None:
    suite.edit("addresses.json", {doomed: {**STORED, "flavor": "vanilla-queue"}})
    wait_message(suite, doomed, f"given flavor vanilla-queue instead of {QUEUE}: still holds 10 messages on broker ")
    wait_address(suite, doomed, flavor="vanilla-queue", messages=10, ready=True)
    assert receive(suite.url, doomed, 10) == TEN
    found = wait_address(suite, doomed, flavor="vanilla-queue", messages=0, ready=True, message=IN_MEMORY)
    assert not [name for name in found["components"] if name.startswith(QUEUE)]
    exchange(suite.url, [doomed])
