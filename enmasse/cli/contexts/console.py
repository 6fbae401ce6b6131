"""Requests to the API of a console: that of the suite on this machine, with the operator's secret, or of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import click

from enmasse.cli.common import HTTP_PORT, UNREACHABLE, end
from enmasse.cli.contexts.api_problems import Lost, refused
from enmasse.cli.contexts.contexts import in_force, space
from enmasse.cli.contexts.http import NotRunning, operator_secret, request
from enmasse.http.http11 import NONE

API = "/api/v1/"
MOST = 1000
"""Rows of a page."""
MESSAGES = 200
"""Messages of a page."""


class Console(Protocol):
    """A console."""

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        """Return the status of HTTP and the decoded JSON, None without a body. Ends the command if it does not answer
        (status 4)."""
        ...

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream, name and decoded data, until the console ends it. It may be used in another
        thread, after a request. Raises Lost."""
        ...


class LocalConsole:
    """The console of the suite on this machine."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        """Return the status of HTTP and the decoded JSON, None without a body."""
        try:
            return self.attempt(method, path, body, headers)
        except NotRunning as error:
            end("suite.http.unreachable", str(error), UNREACHABLE)

    def attempt(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        """As `request`. Raises NotRunning if no suite runs, or its console does not answer."""
        return request(self._offset, method, path, body, port=HTTP_PORT, headers=headers)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream. Raises Lost."""
        from enmasse.cli.contexts import remoteconsole
        from enmasse.identity.processes.operator import BEARER

        try:
            secret = operator_secret(self._offset)
            url = f"http://127.0.0.1:{HTTP_PORT + self._offset}"
            yield from remoteconsole.events(url, None, path, {"Authorization": BEARER + secret})
        except (NotRunning, OSError) as error:
            raise Lost("suite.http.unreachable", f"the console does not answer: {error}") from None


def console(offset: int) -> Console:
    """Return the console of the context in force, otherwise that of the suite on this machine."""
    if (context := in_force()) is None:
        return LocalConsole(offset)
    from enmasse.cli.contexts.remoteconsole import RemoteConsole

    return RemoteConsole.of(context)


def api(where: str) -> str:
    """Return the path of a resource of the API, in the address space that the command works on."""
    name = space()
    of_all = where.partition("?")[0].partition("/")[0] in ("me", "spaces", "login")
    return API + (where if name is None or of_all else f"{path('spaces', name)}/{where}")


def path(*parts: str) -> str:
    """Return the path of a resource, with its names percent-encoded. Ends the command (wrong usage) if one is empty."""
    if not all(parts):
        raise click.UsageError("a name is empty: a variable of the shell in it may have no value")
    return "/".join(quote(part, safe="") for part in parts)


def ask(offset: int, method: str, where: str, body: Any = None, headers: Mapping[str, str] = NONE) -> Any:
    """Return the answer, None without a body. Ends the command with status 1 if it is refused, 4 without an answer."""
    status, found = console(offset).request(method, api(where), body, headers)
    if status >= 400:
        refused(status, found)
    return found


def items(offset: int, where: str, most: int | None = None) -> list[dict[str, Any]]:
    """Return the items of a list, page after page: all, or the first `most`."""
    return _items(lambda page: ask(offset, "GET", page), where, most)


def items_if_running(offset: int, where: str) -> list[dict[str, Any]] | None:
    """Return all items of a list of the suite on this machine; None if its console does not answer."""
    there = LocalConsole(offset)

    def page(path: str) -> Any:
        status, found = there.attempt("GET", api(path))
        if status >= 400:
            raise NotRunning(f"the console answers {status}")
        return found

    try:
        return _items(page, where, None)
    except NotRunning:
        return None


def _items(get: Callable[[str], Any], where: str, most: int | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    sign, after = "&" if "?" in where else "?", None
    while True:
        limit = MOST if most is None else min(MESSAGES, most - len(found))
        more = f"{sign}limit={limit}" + ("" if after is None else f"&after={quote(after, safe='')}")
        page = get(where + more)
        found += page["items"]
        after = page["next"]
        if after is None or len(found) == most:
            return found
