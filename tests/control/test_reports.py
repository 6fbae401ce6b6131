"""Reporters over a real connection."""

from __future__ import annotations

import pytest

from enmasse.control import ControlConnection, ControlLink, LinkClosed, connect, listen
from enmasse.control.errors import STOLEN
from enmasse.control.reports import PlacementsReporter
from tests.kit.running import asyncio_test


@asyncio_test
async def test_who_loses_the_role_does_not_take_it_back_on_this_connection() -> None:
    """Another process of this role has attached: it waits as after a lost connection."""
    names: list[str] = []

    def attach(link: ControlLink) -> None:
        names.append(link.name)
        link.accept()
        link.close(STOLEN, "another link of this name was attached")

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = attach

    listener = await listen("127.0.0.1", 0, accepted, container="server")
    try:
        connection = await connect("127.0.0.1", listener.port, container="c")
        reporter = PlacementsReporter("storage_controller", lambda full: None, lambda accepted: None)
        reporter.connected()
        with pytest.raises(LinkClosed):
            await reporter.run(connection)
        connection.close()
        assert names == ["storage_controller/placements"]
    finally:
        await listener.close()
