"""What gateways answer to a client that names an address which does not exist."""

from __future__ import annotations

from enmasse.bridge.message_routes import MOST_COMPARED, unknown_address
from enmasse.identity.principal import Principal
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMap
from tests.identity.test_permissions import allow, of

QUEUE, TOPIC = Address(type="queue"), Address(type="topic")
TOPICS = TopicMap({AddressName("orders"): QUEUE, AddressName("news"): TOPIC}, [AddressName("removed")])


def test_a_similar_address_is_named() -> None:
    assert unknown_address("order", TOPICS, "send", None) == "there is no address 'order'. Did you mean 'orders'?"
    assert unknown_address("x", TOPICS, "send", None) == "there is no address 'x'"
    assert unknown_address("removd", TOPICS, "send", None) == "there is no address 'removd'"


def test_levels_with_dots_are_explained() -> None:
    text = "there is no address 'news.sport'; its levels are separated by /: 'news/sport'"
    assert unknown_address("news.sport", TOPICS, "send", None) == text


def test_what_the_client_may_not_use_is_not_named() -> None:
    rights = of(allow("orders", operations=("send",))).rights(Principal("alice"))
    assert "'orders'" in unknown_address("orderz", TOPICS, "send", rights)
    assert unknown_address("orderz", TOPICS, "recv", rights) == "there is no address 'orderz'"
    assert unknown_address("news.sport", TOPICS, "send", rights) == "there is no address 'news.sport'"


def test_of_many_addresses_none_is_looked_for() -> None:
    many = TopicMap({AddressName(f"orders/{number}"): QUEUE for number in range(MOST_COMPARED + 1)})
    assert unknown_address("orders/x", many, "send", None) == "there is no address 'orders/x'"
