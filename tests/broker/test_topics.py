"""Topics: who gets a copy, and which subscriptions outlive what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import symbol
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.broker.harness import BrokerProcess, Terminus, attach

DURABLE = Terminus("topic", durable=True)


@pytest.mark.parametrize("through_router", [False, True])
def test_a_client_has_as_many_durable_subscriptions_as_it_may(tmp_path: Path, through_router: bool) -> None:
    broker = BrokerProcess(tmp_path, max_subscriptions=2).start()
    with broker.manage() as manage:
        manage("createAddress", "news", "MULTICAST")
    product = {symbol("product"): "qpid-dispatch-router"} if through_router else {}

    def subscribe(c: BlockingConnection, client: str, name: str) -> BlockingReceiver:
        return attach(c, "news", 0, name=f"{name}@{client}" if through_router else name, options=DURABLE)

    def connect(client: str) -> Any:
        return broker.connect("router" if through_router else client, properties=product)

    for _ in range(2):  # the second time after a restart
        with connect("greedy") as c, connect("other") as d:
            for name in ("a", "b", "a"):
                subscribe(c, "greedy", name).detach()
            with pytest.raises(LinkDetached, match=r"amqp:resource-limit-exceeded.*MAX_SUBSCRIPTIONS"):
                subscribe(c, "greedy", "c")
            if through_router:
                subscribe(c, "other", "a").detach()
            else:
                subscribe(d, "other", "a").detach()
        broker.restart()
    with connect("greedy") as c:
        subscribe(c, "greedy", "b").close()
        subscribe(c, "greedy", "c").close()
    broker.stop()
