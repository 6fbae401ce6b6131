"""The API: its routes, and the way of each request from the gate to the handler and to its answer or problem."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
from aiohttp import web

from enmasse.errors import CATALOGUE
from enmasse.model.names import DEFAULT_SPACE, in_space
from enmasse.text import did_you_mean
from services.console.door.access import Caller
from services.console.door.peer_limits import CONNECTIONS_KEY
from services.console.errors import STATUSES, RequestError, failed, unknown, unknown_space
from services.console.rest import (
    addresses,
    connections,
    flavors,
    infrastructure,
    issuers,
    messages,
    past_numbers,
    queries,
    sign_in,
    spaces,
    subscribers,
    suite,
    users,
    wills,
)
from services.console.rest.api_operations import PREFIX, Answered, Call, Operation
from services.console.rest.components import Components
from services.console.rest.openapi import document

FIRST_SECONDS = 10.0
"""For the first snapshots of configserv."""
MODULES = (
    addresses,
    past_numbers,
    messages,
    connections,
    subscribers,
    wills,
    flavors,
    users,
    suite,
    spaces,
    infrastructure,
    queries,
    sign_in,
    issuers,
)
IN_SPACES = (addresses, past_numbers, messages, connections, subscribers, wills, flavors, users, suite, spaces)
"""Modules whose operations each address space has too, below OF_SPACE."""
OF_SPACE, SUFFIX = "/spaces/{space}", "InSpace"
OF_ALL = ("listSpaces", "getSpace")
"""Operations that callers of each space have, who get what is theirs."""
OPERATORS = "only the operator may do this; you may change what is in your own address space"
MOST = 200
"""Address spaces whose operations are kept, those used last."""
_PART = re.compile(r"{(\w+)}")
"""A name in a path. aiohttp's own pattern does not take braces, which a name may have."""
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
        self._in_spaces = _of_space(parts)
        self._of: dict[str, dict[str, Operation]] = {}
        """Address space → its operations by their ids, the space used last at the end."""
        self._document = msgspec.json.encode(document([*self._operations, *self._in_spaces]))

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        found = [
            web.route(each.method, PREFIX + _PART.sub(r"{\1:[^/]+}", each.path), self._handler(each))
            for each in (*self._operations, *self._in_spaces)
        ]
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
                found = await self._answer(request, caller, operation)
            return found if isinstance(found, web.StreamResponse) else found.response()

        return handle

    async def _answer(self, request: web.Request, caller: Caller, operation: Operation) -> Answered:
        """Return the answer to a caller: of the space that the path names, else of the caller's own. Raises
        RequestError."""
        named = request.match_info.get("space")
        if named is None and (caller.space == DEFAULT_SPACE or operation.id in OF_ALL or operation.tag == "login"):
            with self._parts.live.followed():
                return await operation.handler(Call(request, caller, operation))
        space = named or caller.space
        acting = caller.within(space)
        known = space != DEFAULT_SPACE and self._parts.configuration.space_rows.get(space) is not None
        if acting is None or not known:
            raise unknown_space(space)
        there = self._operations_of(space).get(operation.id.removesuffix(SUFFIX))
        if there is None and operation.method != "GET":
            raise RequestError("console.permission.denied", OPERATORS)
        if there is None:
            raise unknown("such path in an address space")
        try:
            with self._parts.live.followed():
                return await there.handler(Call(request, acting, there))
        except RequestError as error:
            error.detail = in_space(space, error.detail)
            raise

    def _operations_of(self, space: str) -> dict[str, Operation]:
        """Return the operations of an address space, made when they are wanted."""
        found = self._of.pop(space, None)
        if found is None:
            found = {each.id.removesuffix(SUFFIX): each for each in _of_space(self._parts.of(space))}
            while len(self._of) >= MOST:
                del self._of[next(iter(self._of))]
        self._of[space] = found
        return found

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


def _of_space(parts: Components) -> list[Operation]:
    """Return the operations of an address space."""
    return [
        replace(each, path=OF_SPACE + each.path, id=each.id + SUFFIX)
        for module in IN_SPACES
        for each in module.operations(parts)
        if each.in_spaces
    ]


async def _reason(request: web.Request, error: web.HTTPException) -> str:
    """Return what is wrong with a request that aiohttp has refused."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        possible = ", ".join(sorted(error.allowed_methods))
        return f"{error.method[:20]} is not possible there; possible are {possible}{await _entry_of_list(request)}"
    return _unknown_path(request) if isinstance(error, web.HTTPNotFound) else error.reason


async def _entry_of_list(request: web.Request) -> str:
    """Return how an entry of the list at this path is made; empty if it is no list, or PUT makes none in it."""
    path = f"{request.path.rstrip('/')}/NAME"
    entry = request.clone(method="PUT", rel_url=request.rel_url.with_path(path))
    makes = (await request.app.router.resolve(entry)).http_exception is None
    return f". PUT {path[:200]} makes an entry, or changes it" if makes else ""


def _unknown_path(request: web.Request) -> str:
    """Return the first part of a path that no resource has, with the word that may be meant."""
    parts = request.rel_url.raw_path.split("/")
    known = [resource.canonical.split("/") for resource in request.app.router.resources()]
    hint = ""
    for at, part in enumerate(parts):
        words = {each[at] for each in known if len(each) > at}
        known = [each for each in known if len(each) > at and (each[at] == part or each[at].startswith("{"))]
        if not known:
            hint = did_you_mean(part[:100], (word for word in words if not word.startswith("{")))
            break
    return f"there is no path {'/'.join(parts[: at + 1])[:200]!r}; {PREFIX}/openapi.json has the paths.{hint}"


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
        found = problem(await _reason(request, error)).answer()
        if "Allow" in error.headers:
            found.headers["Allow"] = error.headers["Allow"]
        return found
    except (ConnectionError, TimeoutError):
        raise
    except Exception:
        return failed(request.path).answer()
