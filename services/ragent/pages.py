"""Pages of a router's tables: what a QUERY answered, and what is remembered of it. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from enmasse.control import ControlError, Reply


class Unchanged(NamedTuple):
    """A complete sweep of a type that found nothing new: the table's version then, digest and rows of each page."""

    version: int
    pages: list[tuple[int, int]]


class Counts(NamedTuple):
    """A page of the router's addresses: digest, rows, and the subscribers of those that have any, by key."""

    digest: int
    rows: int
    counts: dict[str, int]


def counts(reply: Reply) -> Counts:
    """The subscribers in a page of the router's addresses. Raises ControlError, ValueError where it is none."""
    names, rows = results(reply)
    at, count_at = names.index("key"), names.index("subscriberCount")
    found = {row[at]: row[count_at] for row in rows if isinstance(row[at], str) and row[count_at]}
    return Counts(reply.digest, len(rows), {key: int(n) for key, n in found.items() if isinstance(n, int)})


def results(reply: Reply) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the answer to a QUERY. Raises ControlError where it is none."""
    body = reply.body
    if not isinstance(body, dict) or not isinstance(body.get("results"), list):
        raise ControlError("amqp:decode-error", "QUERY: the reply has no results")
    return list(body.get("attributeNames") or ()), body["results"]
