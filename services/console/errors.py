"""Errors of requests, which become bodies of type `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec
from aiohttp import web

from enmasse.api.types import Address, Fault, Problem
from enmasse.errors import CATALOGUE
from enmasse.logs import log
from enmasse.text import MOST_COMPARED, did_you_mean

STATUSES: Mapping[str, int] = {
    "console.caller.busy": 429,
    "console.change.refused": 422,
    "console.etag.differs": 412,
    "console.etag.missing": 428,
    "console.login.limited": 503,
    "console.login.needed": 401,
    "console.login.refused": 401,
    "console.message.not-taken": 503,
    "console.message.refused": 422,
    "console.method.unknown": 405,
    "console.name.in-use": 409,
    "console.origin.refused": 403,
    "console.permission.denied": 403,
    "console.request.invalid": 400,
    "console.request.too-large": 413,
    "console.resource.unknown": 404,
    "console.request.failed": 500,
    "console.service.failed": 502,
    "console.service.unavailable": 503,
    "console.type.unsupported": 415,
    "console.watchers.too-many": 503,
}
"""Identifier in enmasse/errors.py → HTTP status."""


class RequestError(Exception):
    """Ends a request with a problem. `detail`: what is wrong, where, and what to do."""

    def __init__(self, id: str, detail: str, errors: Iterable[Fault] = ()) -> None:
        super().__init__(detail)
        self.id = id
        self.detail = detail
        self.errors = list(errors)

    def answer(self) -> web.Response:
        """Return the response."""
        status = STATUSES[self.id]
        problem = Problem(
            type=f"/api/v1/problems/{self.id}",
            title=CATALOGUE[self.id].meaning,
            status=status,
            detail=self.detail,
            errors=self.errors,
        )
        headers = {}
        if status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="EnMasse"'
        if status in (429, 503):
            headers["Retry-After"] = "2"
        body = msgspec.json.encode(problem)
        return web.Response(status=status, body=body, content_type="application/problem+json", headers=headers)


def unknown(what: str, hint: str = "") -> RequestError:
    """Return the error for what does not exist, or what the caller may not view. `hint`: a sentence after a space."""
    end = f".{hint}" if hint else ""
    return RequestError("console.resource.unknown", f"there is no {what}, or you may not view it{end}")


def unknown_address(
    name: str, rows: Iterable[tuple[str, Address]] = (), views: Callable[[str], bool] = bool
) -> RequestError:
    """Return the error for an address that there is not, with the one that may be meant of the first of these rows that
    the caller `views`."""
    viewed = [row.name for _, row in islice(rows, MOST_COMPARED) if views(row.name)]
    meant = did_you_mean(name[:200], viewed)
    return unknown(f"address {name[:200]!r}", f" `enmasse address list` shows them.{meant}")


def unknown_space(name: str) -> RequestError:
    """Return the error for an address space that there is not."""
    return unknown(f"address space {name[:100]!r}", " `enmasse space list` shows them.")


def of_suite() -> RequestError:
    """Return the error for what is of no address space, if the caller may not view it."""
    return RequestError(
        "console.permission.denied",
        "this is of the whole suite: the operator may, and while there are no address spaces a user with `view` on "
        "everything (orders: `manage`). `enmasse address list` and `enmasse space show` have what is yours",
    )


def failed(what: str) -> RequestError:
    """Log the exception that is being handled, which is an error of the console; return the problem that names it."""
    id = secrets.token_hex(6)
    log.get().exception("console.request.failed", path=what[:100], id=id)
    return RequestError("console.request.failed", f"the log of the console has the reason, under the id {id}")


_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "`true` or `false`",
    "array": "a list",
    "object": "an object",
    "null": "`null`",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`(?: of length)?(?: ([<>]=?) (\S+))?(?:, got `([^`]+)`)?")
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


def in_words(what: str, error: Exception) -> str:
    """Return a sentence for what msgspec found wrong with `what`: its own texts are of types of Python."""
    text, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    where = f"`{place}` of {what}" if place else what
    if found := _FIELD.fullmatch(text):
        return (
            f"{where} {'lacks the field' if found[1] == 'missing required' else 'has the unknown field'} `{found[2]}`"
        )
    if found := _EXPECTED.fullmatch(text):
        kinds, sign, bound, got = found.groups()
        needed = " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))
        if sign and "of length" in text:
            needed += (
                f" of {_BOUNDS[sign]} {bound} characters" if kinds == "str" else f" of {_BOUNDS[sign]} {bound} items"
            )
        elif sign:
            needed += f" of {_BOUNDS[sign]} {bound}"
        return f"{where} must be {needed}" + (f", not {_KINDS.get(got, got)}" if got else "")
    if text.startswith("Invalid enum value "):
        return f"{where} has the value {text.removeprefix('Invalid enum value ')}, which it may not have"
    return f"{where} is no JSON that can be used: {text}"
