"""What somebody deletes by hand makes its address not ready, and comes back."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton.utils import BlockingConnection, LinkDetached

from enmasse.testing import Suite, free_port, wait_for
from tests.cli.running import ENMASSE
from tests.kit.waiting import DEADLINE
from tests.router.harness import ADDRESS, AUTO_LINK, CONNECTOR, LINK_ROUTE, LISTENER
from tests.router.harness import Management as RouterManagement
from tests.system.exchange import exchange
from tests.system.operating import invoke
from tests.system.seeing import carrier, component, find


class Watch(threading.Thread):
    """Looks at the readiness of an address all the time; `seen`: the different answers, in order."""

    def __init__(self, suite: Suite, name: str) -> None:
        super().__init__(daemon=True)
        self.suite, self.name_ = suite, name
        self.seen: list[bool] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            found = find(self.suite, self.name_)
            ready = found is not None and found["ready"]
            if not self.seen or self.seen[-1] != ready:
                self.seen.append(ready)
            self.done.wait(0.02)


@contextmanager
def turns_not_ready_and_is_healed(suite: Suite, name: str) -> Iterator[None]:
    """What is done inside makes the address not ready for a while; in the end it carries messages again."""
    watch = Watch(suite, name)
    watch.start()
    try:
        wait_for("the first look", lambda: watch.seen == [True])
        yield
        wait_for(f"{name} to be not ready, and ready again", lambda: False in watch.seen and watch.seen[-1])
    finally:
        watch.done.set()
        watch.join()
    exchange(suite.url, [name])


@pytest.mark.parametrize(
    ("kind", "name", "which"),
    [
        (AUTO_LINK, "orders", 0),
        pytest.param(AUTO_LINK, "orders", 1, marks=pytest.mark.slow),
        (LINK_ROUTE, "news", 0),
        pytest.param(LINK_ROUTE, "news", 1, marks=pytest.mark.slow),
        (ADDRESS, "orders", 0),
        pytest.param(ADDRESS, "direct", 0, marks=pytest.mark.slow),
        pytest.param(ADDRESS, "all", 0, marks=pytest.mark.slow),
    ],
)
def test_a_deleted_entity_of_the_router_is_made_again(suite: Suite, kind: str, name: str, which: int) -> None:
    router = RouterManagement(suite.operators_url)

    def entities() -> list[str]:
        return sorted(row["name"] for row in router.query(kind) if row["name"].endswith(f"/{name}"))

    before = entities()
    assert len(before) == (1 if kind == ADDRESS else 2)
    with turns_not_ready_and_is_healed(suite, name):
        router.delete(kind, before[which])
    assert entities() == before
    router.close()


def test_the_router_is_managed_by_operators_only(suite: Suite) -> None:
    client = BlockingConnection(suite.url, timeout=DEADLINE)
    with pytest.raises(LinkDetached, match="use a listener for operators"):
        client.create_sender("$management")
    router = RouterManagement(suite.operators_url)
    status, text, _ = router.call("DELETE", type=CONNECTOR, name="ragent")
    assert (status, text) == (403, "connector 'ragent' stands in the router's configuration file; change it there")
    assert router.call("DELETE", type=LISTENER, name="operators")[0] == 403
    assert component(suite, "router-0")["endpoints"]["operators"] == suite.operators
    shown = subprocess.run([ENMASSE, "status", "--port-offset", str(suite.offset)], capture_output=True, text=True)
    assert suite.url in shown.stdout
    assert suite.operators not in shown.stdout

    kind = "connection"
    row = next(r for r in router.query(kind) if r["container"] == client.container.container_id)
    assert router.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity=row["identity"])[0] == 200
    with pytest.raises(Exception, match="closed by an administrator"):
        client.wait(lambda: False)
    agent = next(r for r in router.query(kind) if r["container"] == "ragent")
    assert router.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity=agent["identity"])[0] == 200
    wait_for("the router dials its agent again", lambda: component(suite, "ragent")["ready"])
    suite.wait_ready()
    exchange(suite.url, ["direct"])
    router.close()


def test_foreign_entities_on_the_router_are_reported(suite: Suite) -> None:
    router = RouterManagement(suite.operators_url)
    port = free_port()
    router.create(CONNECTOR, "stranger", host="127.0.0.1", port=str(port), role="route-container")
    told = f"on router-0, not made here: connector stranger (127.0.0.1:{port})"
    wait_for("people are told", lambda: told in component(suite, "ragent")["detail"])
    router.delete(CONNECTOR, "stranger")
    wait_for("it is gone", lambda: "not made here" not in component(suite, "ragent")["detail"])
    router.close()


def test_deleted_listeners_for_clients_are_made_again(suite: Suite) -> None:
    router = RouterManagement(suite.operators_url)
    (name,) = (row["name"] for row in router.query(LISTENER) if row["name"].startswith("ragent-"))
    router.delete(LISTENER, name)
    wait_for("it is there again", lambda: any(row["name"] == name for row in router.query(LISTENER)))
    suite.wait_ready()
    exchange(suite.url, ["direct"])
    router.close()


def test_a_deleted_queue_of_the_broker_is_made_again(suite: Suite) -> None:
    at = carrier(suite, "orders")["endpoints"]["amqp"]
    with turns_not_ready_and_is_healed(suite, "orders"):
        invoke(suite, at, "destroyQueue", "orders", True)
    assert "orders" in invoke(suite, at, "getQueueNames")


def test_a_deleted_topic_of_the_broker_is_made_again(suite: Suite) -> None:
    at = carrier(suite, "news")["endpoints"]["amqp"]
    with turns_not_ready_and_is_healed(suite, "news"):
        invoke(suite, at, "deleteAddress", "news", True)
