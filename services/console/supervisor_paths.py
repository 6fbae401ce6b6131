"""Paths of the supervisor's HTTP endpoint, to which requests are passed on unchanged."""

from __future__ import annotations

from aiohttp import web

from services.console.door.gate import BASIC, Gate, token_of
from services.console.door.peer_limits import CONNECTIONS_KEY, is_long
from services.console.errors import RequestError
from services.console.following.supervisor import Supervisor

READ = ("/livez", "/readyz", "/healthz", "/metrics", "/api/suite", "/api/status", "/api/ready")
ORDERS = ("/api/scale", "/api/force")
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
        headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        if await self._is_user(request):
            headers = self._supervisor.headers()
            if request.method == "POST":
                headers["Content-Type"] = request.content_type
        status, kind, body = await self._supervisor.send(
            request.method, request.rel_url.raw_path_qs, headers, await self._body(request) or None
        )
        return web.Response(status=status, body=body, headers={"Content-Type": kind})

    async def _body(self, request: web.Request) -> bytes:
        """Return the body, a long one of a caller with credentials only. Raises RequestError."""
        caller = await self._gate.find(request, passwords=request.path in READ) if is_long(request) else None
        if caller is not None and caller.how == "anonymous":
            caller = None
        return await request.app[CONNECTIONS_KEY].read_body(request, caller)

    async def _is_user(self, request: web.Request) -> bool:
        """Return whether a logged in user asks. Raises RequestError if the user may not."""
        stated = request.headers.get("Authorization", "")
        passwords = request.path in READ
        if stated and token_of(stated) is None and not (passwords and stated.startswith(BASIC)):
            return False
        caller = await self._gate.find(request, passwords=passwords)
        if caller is None or caller.how not in ("session", "bearer"):
            return False
        self._gate.check_site(request)
        caller = await self._gate.caller(request, passwords=passwords)
        request.app[CONNECTIONS_KEY].claim(request, caller)
        if not (caller.is_operator if request.path in ORDERS else self._gate.oversees(caller)):
            raise RequestError("console.permission.denied", "this needs `view` on everything, an order `manage`")
        return True
