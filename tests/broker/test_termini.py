"""What attaches ask for: temporary destinations, capabilities, subscriptions in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection

from tests.broker.harness import BrokerProcess, Management


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
