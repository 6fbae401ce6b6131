"""Browsing has no effect behind a router: nobody may take it for granted."""

from __future__ import annotations

import pytest
from proton import Terminus
from proton.reactor import Copy
from proton.utils import LinkDetached

from tests.router.harness import ADDRESS, Management, RouterProcess


def test_a_queue_is_not_browsed(router: RouterProcess, management: Management) -> None:
    """Who wants to look would consume."""
    management.create(ADDRESS, "kept", pattern="kept", waypoint=True)
    connection = router.connect()
    with pytest.raises(LinkDetached, match="cannot be browsed"):
        connection.create_receiver("kept", options=Copy())
    connection.close()
    management.delete(ADDRESS, "kept")


def test_elsewhere_it_is_not_echoed(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, options=Copy())
    assert receiver.link.remote_source.distribution_mode == Terminus.DIST_MODE_MOVE
    connection.close()
