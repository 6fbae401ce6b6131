"""Connections of processes that act for the clients of one address space take the turns of that space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.termini import SPACE
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Role
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router
from tests.router.world import Clock


class _Check(PeerCheck):
    """A peer that has proven this role."""

    def __init__(self, role: Role) -> None:
        self._proven = role

    @property
    def role(self) -> str:
        return self._proven


@pytest.mark.parametrize(
    ("role", "properties", "tenant"),
    [
        (Role.GATEWAY, {SPACE: "one"}, "one"),
        (Role.GATEWAY, {SPACE: "default"}, ""),
        (Role.GATEWAY, {SPACE: 1}, ""),
        (Role.GATEWAY, {}, ""),
        (Role.CONSOLE, {SPACE: "one"}, ""),
        (None, {SPACE: "one"}, ""),
    ],
)
def test_a_gateway_states_whose_turns_a_connection_takes(
    role: Role | None, properties: Mapping[str, Any], tenant: str
) -> None:
    router = Router("r", Clock(), default="unavailable")
    record = RouterConnection(router, name=None, role="normal", direction="in", host="1:1", capacity=250)
    if role is not None:
        record.admit = lambda user: PeerRights(_Check(role), "r", 0)
    end = Connection(RouterHandler(router), container_id="r", is_client=False)
    end.context, record.amqp = record, end
    peer = Connection(Handler(), container_id="g", is_client=True, properties=properties)
    peer.open()
    end.receive(peer.take_output())
    assert end.state == "open"
    assert end.tenant == tenant
