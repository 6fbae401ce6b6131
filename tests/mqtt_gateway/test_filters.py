"""Which subscriptions of a session a message matches, and with which options it goes out."""

from __future__ import annotations

import tracemalloc
from typing import cast

from enmasse.bridge.client_access import ClientAccess
from enmasse.bridge.publishing import Publishing
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.sessions import Outgoing, Subscription
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.packets import NONE, Publish
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.filters import Match, SessionFilters
from services.mqtt_gateway.amqp.gateway_state import Shared
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute
from services.mqtt_gateway.amqp.session_service import Control
from services.mqtt_gateway.amqp.sources import held

TOPICS = TopicMap(
    {
        AddressName("t"): Address(type="topic"),
        AddressName("jobs"): Address(type="queue"),
        AddressName("news"): Address(type="multicast"),
        AddressName("rest"): Address(type="topic", mqtt_default=True),
    }
)


def match(filters: SessionFilters, topic: str, publisher: str | None = None) -> Match | None:
    route = TopicRoute.find(topic, TOPICS)
    assert route is not None
    data = route.full(Publish(topic), TOPICS, 0.0, publisher)
    front, _ = MessageReader(TOPICS).read(data)
    return filters.match(front, front.spellings)


def of(*subscriptions: Subscription, client: str = "me") -> SessionFilters:
    return SessionFilters(client, TOPICS, subscriptions, AddressUse(TOPICS))


def test_overlapping_subscriptions_give_one_message_with_the_highest_qos_and_all_identifiers() -> None:
    """v5 MQTT-3.3.4-2 to -4."""
    filters = of(
        Subscription(filter="t/#", qos=0, identifier=1),
        Subscription(filter="t/+", qos=2, identifier=2),
        Subscription(filter="t/x", qos=1),
        Subscription(filter="t/y", qos=1, identifier=3),
    )
    found = match(filters, "t/x")
    assert found is not None
    assert (found.topic, found.qos, sorted(found.properties.subscription_ids)) == ("t/x", 2, [1, 2])
    other = match(filters, "t")
    assert other is not None
    assert (other.qos, other.properties.subscription_ids) == (0, (1,))
    assert match(filters, "x") is None


def test_options_follow_the_newest_subscribe() -> None:
    filters = of(Subscription(filter="t/x", qos=2, retain_as_published=True, identifier=7))
    first = match(filters, "t/x")
    assert first is not None
    assert first.as_published
    filters.add(Subscription(filter="t/x", qos=0))
    second = match(filters, "t/x")
    assert second is not None
    assert (second.qos, second.as_published, second.properties) == (0, False, NONE)
    filters.remove("t/x")
    assert match(filters, "t/x") is None


def test_no_local_keeps_a_client_s_own_messages_from_it_but_not_by_other_subscriptions() -> None:
    """v5 MQTT-3.8.3-3."""
    filters = of(Subscription(filter="t/#", qos=1, no_local=True))
    assert filters.wants_no_local
    assert match(filters, "t/x", "me") is None
    assert match(filters, "t/x", "you") is not None
    filters.add(Subscription(filter="t/x", qos=0))
    own = match(filters, "t/x", "me")
    assert own is not None
    assert own.qos == 0


def test_topics_of_the_default_are_named_as_the_filter_names_them() -> None:
    short, full = of(Subscription(filter="x/+", qos=0)), of(Subscription(filter="rest/x/+", qos=0))
    everything, hidden = of(Subscription(filter="#", qos=0)), of(Subscription(filter="+/x/y", qos=0))
    named = [found and found.topic for found in (match(each, "x/y") for each in (short, full, everything, hidden))]
    assert named == ["x/y", "rest/x/y", "x/y", None]


def test_a_message_older_than_the_address_of_its_topic_keeps_its_topic() -> None:
    older = TopicRoute("rest", "topic", None, "rest/t/x").plain(1, False, b"")
    front, _ = MessageReader(TOPICS).read(older)
    for filter, topic in (("t/#", "t/x"), ("+/x", "t/x"), ("rest/#", "rest/t/x"), ("#", "rest/t/x"), ("u/#", None)):
        found = of(Subscription(filter=filter, qos=1)).match(front, front.spellings)
        assert (found and found.topic) == topic
    for filter, topic in (("$share/g/t/#", "t/x"), ("t/#", "t/x"), ("rest/#", "rest/t/x")):
        alone = of(Subscription(filter=filter, qos=1)).only(filter, front, front.spellings)
        assert alone is not None
        assert alone.topic == topic


def matched(filter: str, to: str, default: str, *remarked: str) -> str | None:
    addresses = {AddressName(name): Address(type="topic", mqtt_default=name == default) for name in ("old", "new")}
    topics = TopicMap(addresses, remarked=map(AddressName, remarked))
    front, _ = MessageReader(topics).read(TopicRoute(default, "topic", None, to).plain(1, False, b""))
    found = SessionFilters("me", topics, [Subscription(filter=filter, qos=1)], AddressUse(topics))
    match = found.match(front, front.spellings)
    return None if match is None else match.topic


def test_a_message_older_than_the_mark_of_the_default_keeps_its_topic() -> None:
    for filter, topic in (("a/#", "a/x"), ("+/x", "a/x"), ("old/#", "old/a/x"), ("b/#", None)):
        assert matched(filter, "old/a/x", "new", "old") == topic
    for filter, topic in (("x", "x"), ("+/x", "new/x"), ("new/#", "new/x"), ("y", None)):
        assert matched(filter, "new/x", "new", "new") == topic
    assert matched("a/#", "old/a/x", "new") is None
    assert matched("+/x", "new/x", "new") is None


def test_what_is_sent_again_after_unsubscribe_keeps_its_topic() -> None:
    """v5 MQTT-3.10.4-3: a message of QoS 2 that the subscription service holds."""
    shared = Shared(cast(Control, None), cast(ClientAccess, None))
    shared.set_topics(TOPICS)
    message = TopicRoute("rest", "topic", None, "rest/x").plain(1, False, b"")
    sent = Outgoing(1, 2, "ff", "$sub/b/share.g", "published", message)
    assert held(shared, sent, None, v5=True).topic == "x"


def test_two_names_of_one_topic_are_two_messages() -> None:
    topics = TopicMap({AddressName("new"): Address(type="topic", mqtt_default=True)}, remarked=[AddressName("old")])
    filters = SessionFilters("me", topics, [Subscription(filter="a/#", qos=1)], AddressUse(topics))
    found = []
    for to in ("new/old/a/x", "old/a/x"):
        front, _ = MessageReader(topics).read(TopicRoute("new", "topic", None, to).plain(1, False, b""))
        match = filters.match(front, front.spellings)
        found.append(None if match is None else match.topic)
    assert found == [None, "a/x"]


def test_wildcards_do_not_cover_topics_that_begin_with_a_dollar() -> None:
    """v5 MQTT-4.7.2-1."""
    assert match(of(Subscription(filter="#", qos=0), Subscription(filter="+/x", qos=0)), "$a/x") is None
    assert match(of(Subscription(filter="$a/#", qos=0)), "$a/x") is not None


def test_a_message_for_one_subscription_has_its_options_only() -> None:
    filters = of(
        Subscription(filter="t/#", qos=2, identifier=1), Subscription(filter="$share/g/t/+", qos=1, identifier=2)
    )
    front, _ = MessageReader(TOPICS).read(TopicRoute("t", "topic", None, "t/x").plain(1, False, b""))
    shared = filters.only("$share/g/t/+", front, front.spellings)
    assert shared is not None
    assert (shared.qos, shared.properties.subscription_ids) == (1, (2,))
    plain = filters.match(front, front.spellings)
    assert plain is not None
    assert plain.properties.subscription_ids == (1,)
    assert filters.only("gone", front, front.spellings) is None


def test_what_is_received_from_addresses_themselves() -> None:
    filters = of(
        Subscription(filter="jobs", qos=1),
        Subscription(filter="jobs/#", qos=2),
        Subscription(filter="news/a", qos=0),
        Subscription(filter="t/#", qos=0),
    )
    assert {name: target.type for name, (target, _) in filters.addresses().items()} == {
        "jobs": "queue",
        "news": "multicast",
    }
    assert filters.most("jobs") == 2
    shared = of(Subscription(filter="$share/g/jobs", qos=1))
    assert shared.addresses()["jobs"][1] == "$share/g/jobs"


def test_long_topics_are_not_remembered() -> None:
    """A client may name a new one of 64 KiB with every message."""
    publishing, filters = Publishing(TOPICS, TopicRoute.find), of(Subscription(filter="t/#", qos=0))
    tracemalloc.start()
    for number in range(200):
        topic = f"t/{number}/{'x' * 60_000}"
        way = publishing.way(topic)
        assert way is not None
        assert way.route.plain(1, False, b"payload")
        assert match(filters, topic) is not None
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 2_000_000
