"""What clients do at addresses, counted whichever order they come and go in."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.address_use import AddressUse, ClientsAtAddress
from services.mqtt_gateway.amqp.filters import SessionFilters
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute

FILTERS = ("news", "news/#", "#", "+/a", "$share/g/news/#", "orders", "sport/football/#", "nowhere/#")
COVERED = {
    "news": ("news",), "news/#": ("news",), "$share/g/news/#": ("news",), "orders": ("orders",),
    "#": ("news", "sport"), "+/a": ("news", "sport"), "sport/football/#": ("sport",), "nowhere/#": (),
}  # fmt: skip


def topics(names: Iterable[str] = ("news", "sport", "orders")) -> TopicMap:
    return TopicMap({AddressName(name): Address(type="queue" if name == "orders" else "topic") for name in names})


def looked(use: AddressUse, known: dict[str, ClientsAtAddress]) -> dict[str, int]:
    """Take the changes over; return the consumers by address."""
    for change in use.changes():
        if change is not None and change[1] is None:
            known.pop(change[0], None)
        elif change is not None and change[1] is not None:
            known[change[0]] = change[1]
    return {name: each.consumers for name, each in known.items() if each.consumers}


@pytest.mark.parametrize("seed", range(20))
def test_consumers_are_the_subscriptions_of_those_that_are_connected(seed: int) -> None:
    chance = random.Random(seed)
    use, known = AddressUse(topics()), dict[str, ClientsAtAddress]()
    sessions = [SessionFilters(f"c{n}", topics(), (), use) for n in range(4)]
    for _ in range(60):
        at = chance.randrange(len(sessions))
        step = chance.random()
        if step < 0.5:
            sessions[at].add(Subscription(filter=chance.choice(FILTERS), qos=1))
        elif step < 0.8:
            sessions[at].remove(chance.choice(FILTERS))
        elif step < 0.9:
            sessions[at].close()
            sessions[at].add(Subscription(filter="news", qos=1))  # granted when the client has gone
            sessions[at] = SessionFilters(f"c{at}", topics(), (), use)
        elif step < 0.95:
            use.begin()
            known.clear()
        expected = Counter(name for each in sessions for filter in each.subscriptions for name in COVERED[filter])
        if chance.random() < 0.5:
            assert looked(use, known) == dict(expected)


def test_an_address_that_comes_or_goes_changes_what_filters_cover() -> None:
    use, known = AddressUse(topics(("sport",))), dict[str, ClientsAtAddress]()
    use.subscribed("news/#")
    use.subscribed("#")
    assert looked(use, known) == {"sport": 1}
    use.set_topics(topics())
    assert looked(use, known) == {"sport": 1, "news": 2}
    use.delivered("news/x").messages += 1
    use.set_topics(topics(("orders",)))
    assert looked(use, known) == {} and "news" not in known


def test_a_message_counts_once_at_its_address_and_at_each_subscription() -> None:
    use = AddressUse(topics())
    session = SessionFilters("c", topics(), (Subscription(filter=f, qos=1) for f in ("news/#", "#", "sport")), use)
    front, _ = MessageReader(topics()).read(TopicRoute("news", "topic", None, "news/x").plain(1, False, b"x"))
    match = session.match(front, front.spellings)
    assert match is not None and len(set(match.counts)) == len(match.counts) == 3  # the address, and two of three
    assert match.counts[0] is use.delivered("news/y")
