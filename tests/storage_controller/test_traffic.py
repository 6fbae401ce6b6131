"""Metrics by address from the listings of a broker that serves none."""

from __future__ import annotations

from typing import Any

from enmasse.control.listings import AddressRow, QueueRow
from enmasse.metrics import OTHERS, text
from services.storage_controller.brokers.address_metrics import Traffic, by_address, families


def queue(name: str, address: str | None = None, **numbers: Any) -> QueueRow:
    routing = "ANYCAST" if address is None else "MULTICAST"
    texts = {field: str(value) for field, value in numbers.items()}
    return QueueRow(name, address or name, routingType=routing, **texts)


def test_queues_and_topics_are_summed_up() -> None:
    queues = [
        queue("q", messagesAdded=5, messagesAcked=2, messagesExpired=1, messagesKilled=1, messageCount=1),
        queue("s1", "t/a", messagesAdded=3, messagesAcked=3, consumerCount=1),
        queue("s2", "t", messagesAdded=9, messagesAcked=4, messageCount=5, consumerCount=2),
        queue("$sub/b/1", messagesAdded=2, messageCount=2),
        queue("$sub/b/2", messagesAdded=1, messagesAcked=1),
        queue("reply", messagesAdded=7, temporary="true"),
        queue("s3", "other", messagesAdded=7),
    ]
    addresses = [
        AddressRow("q", '["ANYCAST"]', routedMessageCount="5"),
        AddressRow("t", '["MULTICAST"]', routedMessageCount="9"),
        AddressRow("t/a", '["MULTICAST"]', autoCreated="true", routedMessageCount="3"),
    ]
    assert by_address(queues, addresses) == {
        "q": Traffic(5, 2, 1, 1, 1, 0),
        "t": Traffic(12, 7, 0, 0, 5, 3),
        "$sub": Traffic(3, 1, 0, 0, 2, 0),
    }


def test_series_are_bounded_and_their_sums_right() -> None:
    found = text(families({"b0": {"a": Traffic(9), "b": Traffic(1, messages=1), "c": Traffic(2, messages=2)}}, 1))
    lines = found.decode().splitlines()
    assert 'enmasse_broker_messages_in_total{address="a",broker="b0"} 9.0' in lines
    assert f'enmasse_broker_messages_in_total{{address="{OTHERS}",broker="b0"}} 3.0' in lines
    assert f'enmasse_broker_messages{{address="{OTHERS}",broker="b0"}} 3.0' in lines
    assert text(families({}, 1)) == b""
