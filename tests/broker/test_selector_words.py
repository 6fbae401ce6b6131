"""The selectors of one user are bounded together, over all links and connections."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from proton.reactor import Container, Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

from services.broker.core.limits.selectors import MOST, SelectorWords
from services.broker.selector import MAX_WORDS, compile_selector
from tests.broker.harness import BrokerProcess
from tests.kit.waiting import DEADLINE

LONG = " OR ".join(f"p LIKE '%{'a' * 60}{n:02}%'" for n in range(16))
WEIGHT = compile_selector(LONG).weight


@contextmanager
def connected(broker: BrokerProcess, container_id: str) -> Iterator[BlockingConnection]:
    container = Container()
    container.container_id = container_id
    with closing(BlockingConnection(f"127.0.0.1:{broker.port}", timeout=DEADLINE, container=container)) as connection:
        yield connection


def receive(connection: BlockingConnection, address: str, kind: str) -> Any:
    options = [Selector(LONG), Copy()] if kind == "browser" else [Selector(LONG)]
    return connection.create_receiver(address, name=uuid.uuid4().hex, options=options)


@pytest.mark.parametrize("kind", ["consumer", "browser", "subscription"])
def test_the_selectors_of_a_user_are_bounded(kind: str, broker: BrokerProcess) -> None:
    with broker.manage() as manage:
        manage.queue(f"words.{kind}")
        manage("createAddress", f"topic.{kind}", "MULTICAST")
    address = f"topic.{kind}" if kind == "subscription" else f"words.{kind}"
    most = MOST // WEIGHT
    with connected(broker, "~eve/one") as one, connected(broker, "~eve/two") as two:
        held = [receive(each, address, kind) for each in (one, two) for _ in range(most // 2)]
        with pytest.raises(LinkDetached, match="the most are"):
            [receive(two, address, kind) for _ in range(3)]
        with connected(broker, "~bob/one") as other:
            receive(other, address, kind)
        held[0].close()
        receive(two, address, kind)
    with connected(broker, "~eve/one") as again:  # those of lost connections no longer count
        [receive(again, address, kind) for _ in range(most)]


def test_clients_without_a_user_count_by_container() -> None:
    words = SelectorWords()
    for container in ("a", "b"):
        words.check(container, MOST)
        words.add(container, MOST)
    words.add("a", -MOST)
    words.check("a", MOST)
    assert MAX_WORDS < MOST
