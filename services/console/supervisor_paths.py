"""Paths of the supervisor's HTTP endpoint, to which requests are passed on unchanged."""

from __future__ import annotations

from aiohttp import web

from services.console.door.access import Caller
from services.console.door.gate import Gate
from services.console.door.peer_limits import CONNECTIONS_KEY
from services.console.errors import of_suite
from services.console.following.supervisor import Supervisor

READ = ("/livez", "/readyz", "/healthz", "/metrics", "/api/suite", "/api/status", "/api/ready")
ORDERS = ("/api/scale", "/api/restart", "/api/force")
PASSED = ("Host", "Origin", "Authorization", "Content-Type")
"""Headers by which the supervisor decides."""


class SupervisorPaths:
    """Passes requests on. A logged in user that may view (for orders: manage) everything gets what the operator's
    secret gives."""

    def __init__(self, supervisor: Supervisor, gate: Gate) -> None:
        self._supervisor = supervisor
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.route("*", path, self.answer) for path in (*READ, *ORDERS)]

    async def answer(self, request: web.Request) -> web.Response:
        """Pass a request on, and return its answer."""
        caller = await self._permitted(request)
        body = await request.app[CONNECTIONS_KEY].read_body(request, caller)
        if caller is None or caller.how == "operator":
            headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        else:
            headers = self._supervisor.headers()
            if request.method == "POST":
                headers["Content-Type"] = request.content_type
        status, kind, body = await self._supervisor.send(
            request.method, request.rel_url.raw_path_qs, headers, body or None
        )
        return web.Response(status=status, body=body, headers={"Content-Type": kind})

    async def _permitted(self, request: web.Request) -> Caller | None:
        """Return the caller, if it is the operator or a user that may ask this; None: one without credentials, of whom
        the supervisor decides. Raises RequestError if a user may not."""
        caller = await self._gate.find(request)
        if caller is None or caller.how == "anonymous":
            return None
        request.app[CONNECTIONS_KEY].claim(request, caller)
        if caller.how != "operator":
            self._gate.check_site(request)
            self._gate.check_token(request, caller)
            if not (caller.is_operator if request.path in ORDERS else self._gate.oversees(caller)):
                raise of_suite()
        return caller
