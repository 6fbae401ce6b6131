"""A process of an installation: its access to the API server, and its turn to lead."""

from __future__ import annotations

import asyncio

from enmasse.http.health import Health
from enmasse.kubernetes.api_server import Api, connect
from enmasse.kubernetes.labels import COMPONENT, INSTANCE, PART_OF
from enmasse.kubernetes.lease import Leadership
from enmasse.kubernetes.warning_events import WarningEvents
from enmasse.process.runner import Fatal, TurnGuard

LEASE_TIMEOUT = (2.0, 3.0)
"""Seconds to connect and for an answer, for requests about the Lease: several fit into the time it lasts."""


class Member:
    """One process of the component `component` (`configserv`) of a release, in a namespace."""

    def __init__(self, namespace: str, release: str, component: str, instance: str) -> None:
        """Raises process.Fatal without a cluster."""
        self.api: Api = connect(namespace=namespace)
        self.events = WarningEvents(self.api, f"enmasse-{component}", instance)
        self.labels = {PART_OF: "enmasse", INSTANCE: release, COMPONENT: component}
        self.lease = f"enmasse-{component}"
        self._leadership = Leadership(
            connect(namespace=namespace, timeout=LEASE_TIMEOUT), self.lease, instance, self.labels
        )

    async def lead(self, health: Health, stop: asyncio.Event) -> bool:
        """Stand by until this process leads; return False if `stop` was set first. The process is ready meanwhile, as
        long as it can read the Lease: a Deployment whose pods cannot all be ready is never complete.

        From then on, once another instance may hold the Lease, the event loop does nothing and `api` changes nothing.
        """

        def show() -> None:
            problem, holder = self._leadership.problem, self._leadership.holder
            health.set(
                not problem, f"stands by: {problem}" if problem else f"stands by: {holder or 'no instance'} leads"
            )

        show()
        if not await self._leadership.lead(stop, show):
            return False
        TurnGuard.check = self._leadership.guard
        self.api.guard = self._leadership.guard
        return True

    async def close(self) -> None:
        """Release the Lease, after the last change that it covers."""
        await self._leadership.release()
        self.events.close()


async def admitted(
    namespace: str, release: str, component: str, instance: str, health: Health, stop: asyncio.Event
) -> Member | None:
    """Return a member that leads, or None if `stop` was set first. Raises process.Fatal without a cluster."""
    try:
        member = await asyncio.to_thread(Member, namespace, release, component, instance)
    except Fatal:
        await health.close()
        raise
    if await member.lead(health, stop):
        return member
    await member.close()
    return None


__all__ = ["Member", "admitted"]
