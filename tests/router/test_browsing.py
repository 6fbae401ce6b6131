"""Selectors and browsing: what an address cannot do is refused, for nobody may consume what he only wanted to see."""

from __future__ import annotations

import pytest
from proton import Terminus
from proton.reactor import Copy, ReceiverOption, Selector
from proton.utils import LinkDetached

from tests.router.harness import ADDRESS, Management, RouterProcess


@pytest.mark.parametrize("wanted", [Copy(), Selector("colour = 'red'")])
def test_without_its_broker_a_queue_has_neither(
    router: RouterProcess, management: Management, wanted: ReceiverOption
) -> None:
    management.create(ADDRESS, "kept", pattern="kept", waypoint=True)
    connection = router.connect()
    with pytest.raises(LinkDetached, match="the broker of kept is not connected"):
        connection.create_receiver("kept", options=wanted)
    connection.close()
    management.delete(ADDRESS, "kept")


@pytest.mark.parametrize("wanted", [Copy(), Selector("colour = 'red'")])
def test_anycast_has_neither(router: RouterProcess, address: str, wanted: ReceiverOption) -> None:
    connection = router.connect()
    with pytest.raises(LinkDetached, match="is of type anycast"):
        connection.create_receiver(address, options=wanted)
    connection.close()


def test_who_browses_a_multicast_takes_nothing_from_others(router: RouterProcess, multicast: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(multicast, options=Copy())
    assert receiver.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
    with pytest.raises(LinkDetached, match="is of type multicast"):
        connection.create_receiver(multicast, name="other", options=Selector("colour = 'red'"))
    connection.close()
