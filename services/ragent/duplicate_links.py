"""Ends second links of auto-links, a defect of Qpid Dispatch 1.19, before such an auto-link is deleted.

When the connection to a broker is lost, Dispatch sets a timer for each of its auto-links: 2 s, from the second loss on
5 s. If the connection is restored earlier, the auto-link has its link already, and the timer makes another one.
Dispatch knows only the later link: if the auto-link is deleted, the other link stays, and producers still reach the
broker through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from enmasse.logs import log
from enmasse.network.backoff import LOOK, Backoff
from services.ragent.management import RouterManagement

PATIENCE = 5.0
"""Seconds to wait for the end of a connection."""


async def end_doubled(management: RouterManagement, auto_links: Collection[str]) -> bool:
    """Close each connection on which one of these auto-links has a second link; its connector dials again at once.

    Returns when these links are gone; True if there were any. The auto-links are to be deleted right then: their timers
    go with them. Raises ControlError.
    """
    doubled = await _doubled(management, auto_links)
    if not doubled:
        return False
    log.get(router=management.peer).info("agent.auto-links.doubled", connections=sorted(doubled))
    for connection in doubled:
        await management.end_connection(connection)
    loop, backoff = asyncio.get_running_loop(), Backoff(LOOK)
    deadline = loop.time() + PATIENCE
    while loop.time() < deadline and not doubled.isdisjoint(link.connection for link in await management.links()):
        await asyncio.sleep(backoff.wait())
    return True


async def _doubled(management: RouterManagement, auto_links: Collection[str]) -> set[str]:
    """Return the connections on which one of these auto-links has more links than the one that it reports."""
    known = await management.links_of(auto_links)
    if not known:
        return set()
    links = await management.links()
    theirs = {(link.connection, link.direction, link.address) for link in links if link.identity in known}
    return {
        link.connection
        for link in links
        if link.identity not in known and (link.connection, link.direction, link.address) in theirs
    }
