"""The API: its routes, and the way of each request from the gate to the handler and to its answer or problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from enmasse.errors import CATALOGUE
from enmasse.model.names import DEFAULT_SPACE
from services.console.door.access import Caller
from services.console.door.peer_limits import CONNECTIONS_KEY
from services.console.errors import STATUSES, RequestError, failed, unknown
from services.console.rest import (
    addresses,
    connections,
    flavors,
    infrastructure,
    issuers,
    messages,
    queries,
    sign_in,
    subscribers,
    suite,
    users,
    wills,
)
from services.console.rest.components import Components
from services.console.rest.openapi import document
from services.console.rest.operations import PREFIX, Call, Operation

FIRST_SECONDS = 10.0
"""For the first snapshots of configserv."""
MODULES = (
    addresses,
    messages,
    connections,
    subscribers,
    wills,
    flavors,
    users,
    suite,
    infrastructure,
    queries,
    sign_in,
    issuers,
)
_HTTP: dict[int, Callable[[str], RequestError]] = {
    404: lambda reason: RequestError("console.resource.unknown", reason),
    405: lambda reason: RequestError("console.method.unknown", reason),
    408: lambda reason: RequestError("console.request.invalid", reason),
    413: lambda reason: RequestError("console.request.too-large", reason),
}
"""Status of aiohttp's own errors → problem."""


class RestApi:
    """Answers the requests below `/api/v1`."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self._operations = [each for module in MODULES for each in module.operations(parts)]
        self._document = msgspec.json.encode(document(self._operations))

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        found = [web.route(each.method, PREFIX + each.path, self._handler(each)) for each in self._operations]
        found.append(web.get(f"{PREFIX}/openapi.json", self._openapi))
        found.append(web.get(f"{PREFIX}/problems/{{id}}", self._problem))
        return found

    def _handler(self, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            await self._known()
            gate = self._parts.gate
            gate.check_site(request)
            if operation.public:
                found = await operation.handler(Call(request, Caller("anonymous", None, None), operation))
            else:
                caller = await gate.caller(request)
                request.app[CONNECTIONS_KEY].claim(request, caller)
                if caller.space != DEFAULT_SPACE and operation.tag != "login":
                    raise unknown("such path in the default address space")
                with self._parts.live.followed():
                    found = await operation.handler(Call(request, caller, operation))
            return found if isinstance(found, web.StreamResponse) else found.response()

        return handle

    async def _known(self) -> None:
        if not await self._parts.configuration.complete(FIRST_SECONDS):
            raise RequestError(
                "console.service.unavailable", "the configuration service has not delivered yet; try again"
            )

    async def _openapi(self, request: web.Request) -> web.Response:
        await self._known()
        self._parts.gate.check_site(request)
        return web.Response(body=self._document, content_type="application/json", charset="utf-8")

    async def _problem(self, request: web.Request) -> web.Response:
        error = CATALOGUE.get(request.match_info["id"])
        if error is None or error.id not in STATUSES:
            raise RequestError("console.resource.unknown", "there is no such problem")
        return web.Response(text=f"{error.id} ({STATUSES[error.id]})\n\n{error.meaning} {error.action}\n")


@web.middleware
async def problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer errors with problems."""
    try:
        return await handler(request)
    except RequestError as error:
        return error.answer()
    except web.HTTPException as error:
        problem = _HTTP.get(error.status)
        if problem is None:
            raise
        found = problem(error.reason).answer()
        if "Allow" in error.headers:
            found.headers["Allow"] = error.headers["Allow"]
        return found
    except (ConnectionError, TimeoutError):
        raise
    except Exception:
        return failed(request.path).answer()
