"""What attaches ask for: temporary destinations, capabilities, subscriptions in use, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, LinkDetached

from tests.broker.harness import BrokerProcess, Management, attach, bodies, nothing, take


@pytest.fixture(scope="module")
def m(broker: BrokerProcess) -> Iterator[Management]:
    with broker.manage() as management:
        management("createAddress", "topic", "MULTICAST")
        management.queue("queue")
        yield management


@pytest.fixture
def c(broker: BrokerProcess, m: Management) -> Iterator[BlockingConnection]:
    with broker.connect() as connection:
        yield connection


class NullSource(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.type = PTerminus.UNSPECIFIED


def transactional(delivery: Any) -> None:
    delivery.local.data = [b"transaction"]
    delivery.update(0x34)


def test_work_of_a_transaction_is_refused(broker: BrokerProcess, c: BlockingConnection, m: Management) -> None:
    """Nobody's commit is coming: it must not be done at once, as if it had not been part of one."""
    sender = c.create_sender("queue")
    link = sender.link
    c.wait(lambda: link.credit)
    delivery = link.delivery("tag")
    transactional(delivery)
    link.send(Message(body="within a transaction").encode())
    link.advance()
    with pytest.raises(LinkDetached, match="not supported: send and acknowledge each message by itself"):
        c.wait(lambda: delivery.remote_state)
    assert m.count("queue") == 0
    with broker.connect() as other:
        other.create_sender("queue").send(Message(body="there"))
        receiver = attach(other, "queue", 1)
        take(receiver)
        transactional(receiver.fetcher.unsettled.popleft())
        with pytest.raises(LinkDetached, match="not supported: send and acknowledge each message by itself"):
            other.wait(lambda: False)
    with broker.connect() as other:
        receiver = attach(other, "queue", 1)
        assert bodies(receiver, 1) == ["there"]
        nothing(receiver)
