"""Paths of requests: `/v1/ADDRESS/RESOURCE`, where an address may have several levels. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from services.http_gateway.api.http_problems import Answered

BASE: Final = "/v1/"
OPENAPI: Final = "openapi.json"
_ENDS: Final = (("messages", "next"), ("messages",), ("events",), ("requests",))
_PARAMETERS: Final = {
    "messages": ("batch",),
    "messages/next": ("wait", "lock", "count"),
    "events": ("name",),
    "requests": ("wait",),
}
"""Parameters that the query may have, by kind of resource."""
_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_NAME: Final = re.compile(r"[\x00-\x20\x7f*#+]|::")
_WILD: Final = ("+", "#")
"""Levels of a filter, which events may be of: any one level, and all further ones."""
MAX_NAME: Final = 1024


class Resource(NamedTuple):
    """Resource of a request. `kind`: `messages`, `messages/next`, `events`, `requests`, `deliveries` (with `token`),
    `openapi`; `query`: parameters by name."""

    kind: str
    address: str = ""
    token: str = ""
    query: dict[str, str] = {}  # noqa: RUF012 - never changed


def parsed(target: str) -> Resource:
    """Return the resource of a target. Raises Answered."""
    path, _, text = target.partition("?")
    if not path.startswith(BASE):
        raise Answered(404, f"paths begin with {BASE}ADDRESS/, such as {BASE}jobs/messages")
    if _PERCENT.search(path):
        raise Answered(400, "a % in a path is followed by two hexadecimal digits")
    try:
        query = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=False, max_num_fields=20))
        levels = [unquote(level, errors="strict") for level in path[len(BASE) :].split("/")]
    except ValueError:
        raise Answered(400, "path and query are UTF-8") from None
    found = _of_levels(levels, query)
    known = _PARAMETERS.get(found.kind, ())
    if unknown := next((name for name in query if name not in known), None):
        listed = f"known are {', '.join(known)}" if known else "it has none"
        raise Answered(400, f"{unknown[:40]!r} is no parameter of this resource: {listed}")
    return found


def _of_levels(levels: list[str], query: dict[str, str]) -> Resource:
    """Return the resource of the levels of a path. Raises Answered."""
    if levels == [OPENAPI]:
        return Resource("openapi", query=query)
    if len(levels) > 2 and levels[-2] == "deliveries":
        return Resource("deliveries", _name(levels[:-2]), levels[-1], query)
    for end in _ENDS:
        if len(levels) > len(end) and tuple(levels[-len(end) :]) == end:
            name, kind = levels[: -len(end)], "/".join(end)
            return Resource(kind, _filter(name) if kind == "events" else _name(name), query=query)
    raise Answered(404, "a path ends with /messages, /messages/next, /deliveries/TOKEN, /events or /requests")


def _filter(levels: list[str]) -> str:
    """Return the filter that these levels are. Raises Answered."""
    _name([level for level in levels if level not in _WILD] or [""])
    if "#" in levels[:-1] or levels[0] in _WILD:
        raise Answered(404, "a filter begins with the name of an address, and # is its last level")
    return "/".join(levels)


def _name(levels: list[str]) -> str:
    """Return the name of an address. Raises Answered for other texts."""
    name = "/".join(levels)
    if not all(levels) or _NO_NAME.search(name) or len(name) > MAX_NAME:
        raise Answered(404, "no address has this name: it has empty levels, white space, *, #, + or ::")
    return name
