"""Writes the status of custom resources: transitions only, those that are ready or failed first, RATE a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Protocol

from enmasse.kubernetes.api_server import ApiError, Object
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
    Urgency,
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
"""Writes in any second at most, for all objects."""
AT_ONCE = 8
"""Writes under way at most: more than RATE a second even of an API server that takes 80 ms for each."""
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


Due = dict[ResourceKey, tuple[Object, dict[str, Any]]]
"""Object → the status that it is to have."""


class StatusWriter:
    """Writer of the statuses of all objects."""

    def __init__(self, resources: CustomResources, service: Service) -> None:
        self._resources = resources
        self._service = service
        self.problems: Callable[[], Problems] = dict
        """Gives what hinders exports of endpoints."""
        self._since: dict[ResourceKey, float] = {}
        """Object → since when its status is neither ready nor failed, and differs from the written one."""
        self._known: dict[ResourceKey, tuple[Facts, dict[str, Any], Urgency]] = {}
        """Object → the facts of the last look, the status that follows from them, and when that is to be written."""
        self._begun: deque[float] = deque(maxlen=RATE)
        """When the last writes began."""
        self._threads = ThreadPoolExecutor(AT_ONCE, "status")
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
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await runner.woken(self._wake, LATER / 2 if self._since else None)
            await asyncio.sleep(max(0.0, self._looked + INTERVAL - asyncio.get_running_loop().time()))
            self._looked = asyncio.get_running_loop().time()
            if self._service.applied.state.complete:
                await self._write(self._due())

    def _due(self) -> Due:
        """Return the statuses to be written, in this order."""
        service, became = self._service, self._resources.became
        now = shown(service.status(), service.origins, service.placements, service.applied.state)
        is_taken = self._resources.taken(service.applied.contents)
        clock = asyncio.get_running_loop().time()
        found: Due = {}
        later: Due = {}
        since: dict[ResourceKey, float] = {}
        known: dict[ResourceKey, tuple[Facts, dict[str, Any], Urgency]] = {}
        for key, item in self._resources.objects().items():
            if key not in became or not is_taken(key):
                continue
            facts = facts_of(key, item, became[key], now)
            before = self._known.get(key)
            if facts is not None and before is not None and before[0] == facts:
                _, status, when = before
            else:
                status = status_of(key, item, became[key], now, self._endpoints(key, item))
                when = urgency(item.get("status") or {}, status)
            if facts is not None:
                known[key] = facts, {} if when == "never" else status, when
            if when == "now":
                found[key] = item, status
            elif when == "later" and service.reported:
                since[key] = self._since.get(key, clock)
                if clock - since[key] >= LATER:
                    later[key] = item, status
        self._since, self._known = since, known
        return {**found, **later}

    def _endpoints(self, key: ResourceKey, item: Object) -> Endpoints:
        services = self._resources.endpoints_of(key.name)
        if key.kind != ADDRESS_SPACE or not services:
            return NO_ENDPOINTS
        authority = self._resources.authority()
        return Endpoints(endpoint_statuses(item, services, authority), authority, self.problems().get(key, {}))

    async def _write(self, due: Due) -> None:
        """Write statuses in this order, until there is something newer, perhaps for these."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + INTERVAL
        writing: set[asyncio.Future[str]] = set()
        reasons: list[str] = []
        for key, each in due.items():
            if self._wake.is_set() and loop.time() > ends:
                break
            if len(writing) == AT_ONCE:
                done, writing = await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
                reasons += (future.result() for future in done)
            if len(self._begun) == RATE:
                await asyncio.sleep(self._begun[0] + 1.0 - loop.time())
            self._begun.append(loop.time())
            writing.add(loop.run_in_executor(self._threads, self._put, key, *each))
        reasons += await asyncio.gather(*writing)
        reason = next((each for each in reasons if each), "")
        if reason:
            if reason != self._problem:
                log.get().warning("configserv.status.not-written", reason=reason)
            self._wake.set()
        self._problem = reason

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
