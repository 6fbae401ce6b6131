"""Requests to the API of the console of the running suite, with the operator's secret."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from enmasse.cli.common import FAILED, HTTP_PORT, UNREACHABLE, end
from enmasse.cli.http import NotRunning, request

MOST = 1000
"""Rows of a page."""
MESSAGES = 200
"""Messages of a page."""


def path(*parts: str) -> str:
    """Return the path of a resource, with its names percent-encoded."""
    return "/".join(quote(part, safe="") for part in parts)


def ask(offset: int, method: str, where: str, body: Any = None) -> Any:
    """Return the answer, None without a body. Ends the command with status 1 if it is refused, 4 without an answer."""
    try:
        status, found = request(offset, method, f"/api/v1/{where}", body, port=HTTP_PORT)
    except NotRunning as error:
        end("suite.http.unreachable", str(error), UNREACHABLE)
    if status < 400:
        return found
    problem = found if isinstance(found, dict) else {}
    id = str(problem.get("type", "")).rpartition("/")[2] or "suite.http.unexpected"
    end(id, str(problem.get("detail", f"status {status}")), UNREACHABLE if status == 503 else FAILED)


def items(offset: int, where: str, most: int | None = None) -> list[dict[str, Any]]:
    """Return the items of a list, page after page: all, or the first `most`."""
    found: list[dict[str, Any]] = []
    sign, after = "&" if "?" in where else "?", None
    while True:
        limit = MOST if most is None else min(MESSAGES, most - len(found))
        more = f"{sign}limit={limit}" + ("" if after is None else f"&after={quote(after, safe='')}")
        page = ask(offset, "GET", where + more)
        found += page["items"]
        after = page["next"]
        if after is None or len(found) == most:
            return found
