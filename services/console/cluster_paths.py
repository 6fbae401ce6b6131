"""The paths that `enmasse up` answers on one machine, in a cluster: there is no supervisor, so health is that of the
console, and status what configserv's feeds have."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from services.console.door.access import Caller
from services.console.door.gate import Gate
from services.console.errors import RequestError, of_suite
from services.console.following.configuration import Configuration

HEALTH = ("/livez", "/readyz", "/healthz")


class ClusterPaths:
    """Answers health, `/api/status` and `/api/ready`. Processes are Kubernetes' to show: `components` is empty.
    `config` has the SHA-256 of the files that storage controller and router agents apply, as configserv's feed: it is
    empty until these have reported."""

    def __init__(self, configuration: Configuration, gate: Gate) -> None:
        self._configuration = configuration
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *(web.get(path, self._health) for path in HEALTH),
            web.get("/api/ready", self._ready),
            web.get("/api/status", self._status),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        ready = await self._configuration.complete(0) or request.path == "/livez"
        detail = "" if self._configuration.connected else "the configuration service is not reached"
        return _json({"ready": ready, "detail": detail}, 200 if ready else 503)

    async def _ready(self, request: web.Request) -> web.Response:
        await self._viewer(request)
        return _json(self._brief())

    async def _status(self, request: web.Request) -> web.Response:
        await self._viewer(request)
        configuration = self._configuration
        status = {
            **self._brief(),
            "components": [],
            "addresses": configuration.status,
            "errors": configuration.errors,
            "ca": None,
            "insecure": [],
            "certificates": [],
            "listeners": [],
        }
        return _json(status)

    def _brief(self) -> dict[str, Any]:
        configuration = self._configuration
        wrong = {error.entry for error in configuration.errors}
        waiting = [
            each for each in configuration.status if not (each.ready or (each.phase == "Failed" and each.name in wrong))
        ]
        ready = all(each.phase == "Terminating" for each in waiting)
        degraded = [] if configuration.connected else ["the configuration service is not reached: changes wait"]
        settled = ready and not degraded and not waiting
        return {
            "schema": 1, "ready": ready, "settled": settled, "degraded": degraded, "config": configuration.files,
        }  # fmt: skip

    async def _viewer(self, request: web.Request) -> Caller:
        """Return the caller, if it may view everything. Raises RequestError."""
        if not await self._configuration.complete(10.0):
            raise RequestError("console.service.unavailable", "the configuration service has not delivered yet")
        self._gate.check_site(request)
        caller = await self._gate.caller(request)
        if not self._gate.oversees(caller):
            raise of_suite()
        return caller


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
