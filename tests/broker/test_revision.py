"""As long as a broker states the same revision, its listings show the same, except how many messages are with
consumers; asking changes nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from enmasse.control.listings import AddressRow, QueueRow, address_rows, queue_rows
from services.broker.core.connections import Connections
from services.broker.core.errors import BrokerError
from services.broker.management import addresses, queues
from services.broker.management.calls import CallContext
from tests.broker.sansio import Core, QueueConsumer
from tests.broker.test_live import World, settle

EVERYTHING = (None, -1, -1)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("subscribe"), st.integers(0, 2)),
        st.tuples(
            st.sampled_from(
                ["consume", "accept", "reject", "fail", "leave", "second", "purge", "delete", "limit", "no limit",
                 "topic", "no topic", "rename", "expire", "reply"]
            )
        ),
    ),
    max_size=30,
)  # fmt: skip


class Asked:
    """What a controller knows that lists only after another revision."""

    def __init__(self, core: Core) -> None:
        self._context = CallContext(core.broker, Connections())
        self._core = core
        self.revision, self.shown = "", self.listing()

    def listing(self) -> Any:
        shown: list[list[QueueRow] | list[AddressRow]] = [
            [replace(row, deliveringCount="") for row in queue_rows(queues.list_queues(self._context, *EVERYTHING))],
            address_rows(addresses.list_addresses(self._context, *EVERYTHING)),
        ]
        return [[each for each in some if not each.name.startswith("reply")] for some in shown]

    def check(self) -> None:
        revision, shown = queues.get_revision(self._context), self.listing()
        assert shown == self.shown or revision != self.revision
        assert queues.get_revision(self._context) == revision or self._core.broker.revision.followed()
        self.revision, self.shown = revision, shown


def take(core: Core, step: tuple[Any, ...], consumers: list[QueueConsumer]) -> None:
    """Let something happen to the broker."""
    catalogue = core.broker.catalogue
    queue = catalogue.queues.get("q") or core.queue()
    match step:
        case ("send", count):
            for n in range(count):
                with contextlib.suppress(BrokerError):
                    core.send(n, ttl=5.0)
        case ("subscribe", number):
            if "t" in catalogue.addresses and f"s{number}" not in catalogue.queues:
                catalogue.create_queue(f"t/{number}", f"s{number}", "MULTICAST", durable=True)
        case ("consume",):
            consumers.append(core.consumer(queue, 3))
        case ("second",):
            if isinstance(core, World):
                core.second()
            core.commit()
        case ("purge",):
            core.ask(queue, "removeAllMessages")
        case ("delete",):
            catalogue.destroy_queue("q", remove_consumers=True)
            core.broker.jobs.run(lambda: False)
            consumers.clear()
        case ("limit" | "no limit" as what,):
            size = 100 if what == "limit" else -1
            catalogue.put_settings("q", {"maxSizeBytes": size, "addressFullMessagePolicy": "FAIL"})
        case ("topic",):
            with contextlib.suppress(BrokerError):
                catalogue.create_address("t", frozenset({"MULTICAST"}))
        case ("no topic",):
            with contextlib.suppress(BrokerError):
                catalogue.delete_address("t", force=True)
        case ("rename",):
            catalogue.update_queue(queue, {"user": "other"})
        case ("expire",):
            core.tick(6000)
        case ("reply",):
            if "reply" not in catalogue.addresses:
                catalogue.create_temporary("reply", "ANYCAST", "")
            core.send("answer", "reply")
        case (outcome,) if consumers:
            settle(queue, consumers, outcome)


@pytest.mark.parametrize("followed", [False, True])
@given(_STEPS)
@settings(max_examples=40, deadline=None)
def test_listings_that_differ_have_different_revisions(followed: bool, steps: list[tuple[Any, ...]]) -> None:
    core = World() if followed else Core()
    asked, consumers = Asked(core), list[QueueConsumer]()
    for step in steps:
        take(core, step, consumers)
        asked.check()


def test_answers_to_requests_leave_the_revision_as_it_is() -> None:
    core = Core()
    core.queue()
    core.broker.catalogue.create_temporary("reply", "ANYCAST", "")
    asked = Asked(core)
    asked.check()
    before = asked.revision
    for _ in range(3):
        core.send("answer", "reply")
        asked.check()
    assert asked.revision == before
    core.send("message")
    asked.check()
    assert asked.revision != before
