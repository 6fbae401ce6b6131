from __future__ import annotations

import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from tests.router.harness import PREFIX, RouterProcess, wait_for


def test_so_many_connections_and_no_more() -> None:
    process = RouterProcess([["policy", {"maxConnections": 4}]], default="balanced")
    management = process.management()
    before = management.query(PREFIX + "policy")[0]
    assert before["maxConnections"] == 4
    connections: list[BlockingConnection] = []
    with pytest.raises(ConnectionException, match=r"resource-limit-exceeded.*connection disallowed by local policy"):
        for _ in range(5):
            connections.append(process.connect())
    after = management.query(PREFIX + "policy")[0]
    assert after["connectionsDenied"] == before["connectionsDenied"] + 1
    assert after["connectionsCurrent"] == 4
    connections.pop().close()

    def one_more() -> bool:
        """The closed connection may still be on its way out."""
        try:
            connections.append(process.connect())
        except ConnectionException:
            return False
        return True

    wait_for(one_more, "another one in the place of one that left")
    for connection in connections:
        connection.close()
    management.close()
    process.stop()
