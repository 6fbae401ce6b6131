"""`enmasse connection`, which asks the API."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from enmasse.testing import Suite
from tests.kit.kept import kept
from tests.kit.waiting import DEADLINE, wait_for


def run(suite: Suite, *words: str) -> CompletedProcess[str]:
    return suite.command("connection", *words, "--port-offset", str(suite.offset))


def test_a_connection_is_listed_shown_and_closed(suite: Suite) -> None:
    amqp = BlockingConnection(suite.url, timeout=DEADLINE)
    receiver = amqp.create_receiver("orders", credit=3, name="of the command")
    name = amqp.container.container_id

    def ids() -> list[str]:
        found = json.loads(run(suite, "list", "--json").stdout)["items"]
        return [each["id"] for each in found if each["container"] == name]

    with kept(amqp):
        (id,) = wait_for(ids)
        assert id in run(suite, "list").stdout
        wait_for(lambda: "of the command" in run(suite, "show", id).stdout)
        assert json.loads(run(suite, "show", id, "--json").stdout)["links"][0]["address"] == "orders"
    assert run(suite, "close", id).stdout == f"closed {id}\n"
    with pytest.raises(ConnectionException):
        while True:
            receiver.receive(timeout=DEADLINE)
    wait_for(lambda: run(suite, "show", id).returncode == 1)
    done = run(suite, "close", id)
    assert done.returncode == 1 and "console.resource.unknown" in done.stderr


def test_refusals_are_listed_with_their_reason(suite: Suite) -> None:
    assert suite.command("send", "not/there", "x", "--port-offset", str(suite.offset)).returncode != 0
    wait_for(lambda: "not/there" in run(suite, "list", "--refused").stdout)
