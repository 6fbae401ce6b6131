"""Orders to the running suite about its processes, and the wait until they are carried out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from enmasse.cli.common import UNREACHABLE, end, tell
from enmasse.cli.contexts.contexts import in_force
from enmasse.text import printable

WAIT: Final = 200.0
"""Seconds for the processes to come and to go."""
LOOK: Final = 0.5
SAY: Final = 2.0
"""Seconds between two lines about the progress."""
Component = dict[str, Any]


def components(offset: int) -> list[Component]:
    """Return the processes of the suite, none if the caller may not see them. Ends the command with status 4 if no
    suite runs."""
    if in_force() is not None:
        from enmasse.cli.contexts.console import API, console

        status, answer = console(offset).request("GET", f"{API}components?limit=1000")
        return list(answer["items"]) if status == 200 else []
    _, answer = _asked(offset, "GET", "/api/components")
    return list(answer.get("components", ())) if isinstance(answer, dict) else []


def order(offset: int, path: str, body: Any) -> tuple[bool, str]:
    """Return whether the order is accepted, and the message. Ends the command with status 4 if no suite runs."""
    if in_force() is not None:
        from enmasse.cli.contexts.console import console

        _, answer = console(offset).request("POST", path, body)
    else:  # the supervisor answers without the console, too
        _, answer = _asked(offset, "POST", path, body)
    if not isinstance(answer, dict):
        end("suite.http.unexpected", "unexpected answer to the order", UNREACHABLE)
    return bool(answer.get("accepted")), str(answer.get("message") or answer.get("detail") or "")


def wait(offset: int, missing: Callable[[list[Component]], str | None]) -> str | None:
    """Wait until `missing` of the processes is None, and show what it says. Return what is missing after WAIT."""
    ends, says = time.monotonic() + WAIT, 0.0
    shown = ""
    while (line := missing(components(offset))) is not None:
        if line and line != shown and time.monotonic() >= says:
            tell(printable(line))
            shown, says = line, time.monotonic() + SAY
        if time.monotonic() >= ends:
            return line
        time.sleep(LOOK)
    return None


def stage(component: Component) -> str:
    """Return the name of a process that is not ready, or leaves, and how far it is."""
    how = str(component["detail"]) or ("leaving" if component.get("leaving") else "not ready")
    return f"{component['name']} {how}"


def _asked(offset: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    from enmasse.cli.contexts.http import NotRunning, request

    try:
        return request(offset, method, path, body)
    except NotRunning as error:
        end("suite.http.unreachable", str(error), UNREACHABLE)
