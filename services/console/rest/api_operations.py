"""Operations of the API: what OpenAPI shows of each, and how a request becomes a call of its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from enmasse.storage.decoding import decode
from services.console.door.access import Caller
from services.console.door.peer_limits import CONNECTIONS_KEY
from services.console.errors import RequestError, in_words

T = TypeVar("T")
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
"""Media type of a merge patch (RFC 7396)."""
PREFIX = "/api/v1"
"""Beginning of the paths of all operations."""


class Parameter(NamedTuple):
    """A parameter of the query, or a header."""

    name: str
    text: str
    kind: Any = str
    where: Literal["query", "header"] = "query"
    required: bool = False


IF_MATCH = Parameter("If-Match", "the ETag of the entry that the change is based on, or `*`", str, "header")


class Call:
    """A request that has been let in: by whom, and what it brings."""

    def __init__(self, request: web.Request, caller: Caller, operation: Operation) -> None:
        self.request = request
        self.caller = caller
        self.operation = operation

    @property
    def host(self) -> str:
        """The client's address, without port."""
        return self.request.remote or "?"

    def name(self, part: str = "name") -> str:
        """Return a part of the path, decoded."""
        return self.request.match_info[part]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the query, converted. Raises RequestError if one is unknown, repeated or invalid."""
        known = {each.name: each for each in self.operation.parameters if each.where == "query"}
        found: dict[str, Any] = {}
        for name, text in self.request.query.items():
            parameter = known.get(name)
            if parameter is None:
                listed = ", ".join(known) or "none"
                raise RequestError("console.request.invalid", f"unknown parameter {name[:100]!r}; known are {listed}")
            if name in found:
                raise RequestError("console.request.invalid", f"parameter {name!r} is there twice")
            try:
                found[name] = msgspec.convert(text, parameter.kind, strict=False)
            except msgspec.ValidationError as error:
                raise RequestError("console.request.invalid", in_words(f"parameter {name!r}", error)) from None
        for parameter in known.values():
            if parameter.required and parameter.name not in found:
                raise RequestError("console.request.invalid", f"parameter {parameter.name!r} is missing")
        return found

    async def body(self, kind: type[T]) -> T:
        """Return the body. Raises RequestError."""
        if self.request.content_type not in self.operation.body_types:
            text = f"the Content-Type must be {' or '.join(self.operation.body_types)}"
            raise RequestError("console.type.unsupported", text)
        caller = None if self.operation.public else self.caller
        content = await self.request.app[CONNECTIONS_KEY].read_body(self.request, caller)
        try:
            return decode(content, kind)
        except ValueError as error:
            raise RequestError("console.request.invalid", in_words("the body", error)) from None

    def if_match(self) -> str | None:
        """Return the etag of If-Match; or `*`; None without one. Raises RequestError if there are several."""
        text = self.request.headers.get("If-Match")
        if text is None:
            return None
        text = text.strip()
        if text == "*":
            return text
        if len(text) < 2 or text[0] != '"' or text[-1] != '"' or '"' in text[1:-1]:
            raise RequestError("console.request.invalid", 'If-Match must be one etag, as "0a1b…", or *')
        return text[1:-1]


class Answer(NamedTuple):
    """Result of a handler. `value`: encoded as JSON; None: no body."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}

    def response(self) -> web.Response:
        """Return the response."""
        if self.value is None:
            return web.Response(status=self.status, headers=self.headers)
        body = msgspec.json.encode(self.value)
        return web.Response(status=self.status, body=body, content_type=JSON, charset="utf-8", headers=self.headers)


Answered = Answer | web.StreamResponse
Handler = Callable[[Call], Awaitable[Answered]]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation. `answer`, `body`: types of the JSON; None: without. `public`: without a login. `watched`: the
    parameter `watch` makes the answer a stream of events. `in_spaces`: each address space has it too, below
    `/spaces/{space}`."""

    method: Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
    path: str
    id: str
    text: str
    handler: Handler
    answer: Any = None
    body: Any = None
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    public: bool = False
    watched: bool = False
    in_spaces: bool = True
    tag: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    """Further media types of the answer → text."""

    @property
    def body_types(self) -> tuple[str, ...]:
        """Media types of the body that are taken."""
        return (JSON, MERGE_PATCH) if self.method == "PATCH" else (JSON,)


def etagged(value: Any, etag: str | None, status: int = 200) -> Answer:
    """Return an answer with the etag of its entry."""
    return Answer(value, status, {} if etag is None else {"ETag": f'"{etag}"'})
