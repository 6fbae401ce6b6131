"""Writes the status of custom resources: transitions only, those that are ready or failed first, RATE a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from enmasse.kubernetes.api import ApiError, Object
from enmasse.logs import log
from enmasse.model import feeds
from enmasse.model.configuration import Applied
from enmasse.model.names import AddressName
from enmasse.process import runner
from services.configserv.resources.endpoint_exports import Problems
from services.configserv.resources.endpoints import endpoint_statuses
from services.configserv.resources.object_kinds import ADDRESS_SPACE, ResourceKey
from services.configserv.resources.object_status import (
    NO_ENDPOINTS,
    Endpoints,
    Facts,
    facts_of,
    shown,
    status_of,
    urgency,
)
from services.configserv.resources.object_views import CustomResources

INTERVAL = 1.5
"""Seconds between two looks at what has changed: changes in between become one."""
LATER = 10.0
"""Seconds that an object must have been neither ready nor failed before that is written: 10,000 new addresses have one
status each, and a controller that is started again causes none."""
RATE = 100
"""Writes a second at most, for all objects."""
TICK = 0.1
_GONE = (404, 409)
"""The object is gone, or there is another one of its name."""


class Service(Protocol):
    """Source of the facts that statuses are made from (services/configserv/service.py)."""

    def status(self) -> feeds.Status: ...
    @property
    def origins(self) -> Mapping[AddressName, str]: ...
    @property
    def placements(self) -> Mapping[AddressName, list[feeds.Placement]]: ...
    @property
    def applied(self) -> Applied: ...
    @property
    def reported(self) -> bool: ...


class StatusWriter:
    """Writer of the statuses of all objects."""

    def __init__(self, resources: CustomResources, service: Service) -> None:
        self._resources = resources
        self._service = service
        self.problems: Callable[[], Problems] = dict
        """Gives what hinders exports of endpoints."""
        self._since: dict[ResourceKey, float] = {}
        """Object → since when its status is neither ready nor failed, and differs from the written one."""
        self._done: dict[ResourceKey, Facts] = {}
        """Object → the facts from which the status follows that it has."""
        self._looked = -INTERVAL
        self._wake = asyncio.Event()
        self._problem = ""
        self._task = runner.spawn(self._run(), "status of custom resources")

    def changed(self) -> None:
        """Check whether a status has changed."""
        self._wake.set()

    def close(self) -> None:
        """Stop writing."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await runner.woken(self._wake, LATER / 2 if self._since else None)
            await asyncio.sleep(max(0.0, self._looked + INTERVAL - asyncio.get_running_loop().time()))
            self._looked = asyncio.get_running_loop().time()
            if self._resources.are_in(self._service.applied.contents) and self._service.applied.state.complete:
                await self._write(self._due())

    def _due(self) -> dict[ResourceKey, tuple[Object, dict[str, Any]]]:
        """Return the objects whose status is to be written, and that status: the newest of those that differ."""
        service, became = self._service, self._resources.became
        now = shown(service.status(), service.origins, service.placements, service.applied.state)
        clock = asyncio.get_running_loop().time()
        found: dict[ResourceKey, tuple[Object, dict[str, Any]]] = {}
        later: dict[ResourceKey, tuple[Object, dict[str, Any]]] = {}
        since: dict[ResourceKey, float] = {}
        done: dict[ResourceKey, Facts] = {}
        for key, item in self._resources.objects().items():
            if key not in became:
                continue
            facts = facts_of(key, item, became[key], now)
            if facts is not None and self._done.get(key) == facts:
                done[key] = facts
                continue
            status = status_of(key, item, became[key], now, self._endpoints(key, item))
            when = urgency(item.get("status") or {}, status)
            if when == "never":
                if facts is not None:
                    done[key] = facts
            elif when == "now":
                found[key] = item, status
            elif when == "later" and service.reported:
                since[key] = self._since.get(key, clock)
                if clock - since[key] >= LATER:
                    later[key] = item, status
        self._since, self._done = since, done
        return {**found, **later}

    def _endpoints(self, key: ResourceKey, item: Object) -> Endpoints:
        services = self._resources.endpoints_of(key.name)
        if key.kind != ADDRESS_SPACE or not services:
            return NO_ENDPOINTS
        authority = self._resources.authority()
        return Endpoints(endpoint_statuses(item, services, authority), authority, self.problems().get(key, {}))

    async def _write(self, due: Mapping[ResourceKey, tuple[Object, dict[str, Any]]]) -> None:
        """Write statuses in this order, until there is something newer."""
        waiting = list(due.items())
        loop = asyncio.get_running_loop()
        portion = max(1, round(RATE * TICK))
        ends = loop.time() + INTERVAL
        for number in range(0, len(waiting), portion):
            began = loop.time()
            if self._wake.is_set() and began > ends:
                return  # there is something newer, perhaps for these
            done = await asyncio.gather(
                *(asyncio.to_thread(self._put, key, *each) for key, each in waiting[number : number + portion])
            )
            reason = next((each for each in done if each), "")
            if reason:
                if reason != self._problem:
                    log.get().warning("configserv.status.not-written", reason=reason)
                self._wake.set()
            self._problem = reason
            await asyncio.sleep(max(0.0, began + TICK - loop.time()))

    def _put(self, key: ResourceKey, item: Object, status: dict[str, Any]) -> str:
        """Write one status; return why that is not possible, "" if it was. In a thread."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for condition in status["conditions"]:
            condition["lastTransitionTime"] = condition["lastTransitionTime"] or stamp
        gone = dict.fromkeys((item.get("status") or {}).keys() - status.keys())
        api = self._resources.api(key.namespace)
        try:
            after = api.patch_status(key.kind, key.name, str(item["metadata"]["uid"]), {**gone, **status})
        except ApiError as error:
            return "" if error.status in _GONE else str(error)
        self._resources.put(key, after)
        return ""
