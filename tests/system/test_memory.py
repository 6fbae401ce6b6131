"""A flavor in memory: works like the others, and keeps its messages only while its broker lives."""

from __future__ import annotations

from enmasse.model.flavors import IN_MEMORY
from enmasse.testing import Suite
from tests.load import receive, send
from tests.system.seeing import carrier, kill, wait_address, wait_again


def test_an_in_memory_address_loses_its_messages_with_its_broker_and_its_status_says_so(suite: Suite) -> None:
    wait_address(suite, "scratch", ready=True, phase="Active", message=IN_MEMORY)
    wait_address(suite, "orders", ready=True, phase="Active", message="")
    send(suite.url, "scratch", 200)
    wait_address(suite, "scratch", messages=200)
    assert receive(suite.url, "scratch", 200) == list(range(200))
    wait_address(suite, "scratch", messages=0)
    send(suite.url, "scratch", 100)
    wait_address(suite, "scratch", messages=100)
    name = carrier(suite, "scratch")["name"]
    pid = kill(suite, name)
    wait_again(suite, name, pid)
    wait_address(suite, "scratch", messages=0)
    send(suite.url, "scratch", 3)
    assert receive(suite.url, "scratch", 3) == [0, 1, 2]
