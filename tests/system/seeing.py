"""What the running suite says of itself, read over HTTP as a dashboard would."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE


def status(suite: Suite) -> dict[str, Any]:
    url = f"http://127.0.0.1:{8079 + suite.offset}/api/status"
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=suite.operator_headers), timeout=DEADLINE
    ) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def component(suite: Suite, name: str) -> dict[str, Any]:
    """One process, by its name. Raises StopIteration where there is none."""
    found: dict[str, Any] = next(c for c in status(suite)["components"] if c["name"] == name)
    return found


def find(suite: Suite, name: str) -> dict[str, Any] | None:
    """One address of the status; None where it is not there."""
    return next((a for a in status(suite)["addresses"] if a["name"] == name), None)


def carrier(suite: Suite, name: str) -> dict[str, Any]:
    """The broker process that carries an address."""
    now = status(suite)
    names = next(a["components"] for a in now["addresses"] if a["name"] == name)
    found: dict[str, Any] = next(c for c in now["components"] if c["kind"] == "broker" and c["name"] in names)
    return found


def wait_address(suite: Suite, name: str, **expected: Any) -> dict[str, Any]:
    """Wait until each of these fields of an address has this value; gives what the status said of it then."""

    def settled() -> dict[str, Any] | None:
        found = find(suite, name)
        return found if found is not None and all(found[key] == value for key, value in expected.items()) else None

    try:
        found: dict[str, Any] = wait_for(f"{name} with {expected}", settled)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {find(suite, name)}") from None
    return found


def wait_message(suite: Suite, name: str, text: str) -> dict[str, Any]:
    """Wait until the status of an address says this, among other things."""

    def says() -> dict[str, Any] | None:
        found = find(suite, name)
        return found if found is not None and text in found["message"] else None

    try:
        found: dict[str, Any] = wait_for(f"{name} to say {text!r}", says)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {find(suite, name)}") from None
    return found


def wait_gone(suite: Suite, name: str) -> None:
    wait_for(f"{name} to be gone", lambda: find(suite, name) is None)


def kill(suite: Suite, name: str) -> int:
    """SIGKILL a process; gives the pid it had."""
    one = component(suite, name)
    suite.kill(one)
    pid: int = one["pid"]
    return pid


def wait_process(suite: Suite, name: str, pid: int) -> None:
    """Wait until a process that had this pid runs again."""

    def again() -> bool:
        return any(c["ready"] and c["pid"] != pid for c in status(suite)["components"] if c["name"] == name)

    wait_for(f"{name} to run again", again)


def wait_again(suite: Suite, name: str, pid: int) -> None:
    """Wait until a killed process runs again, and everything is ready."""
    wait_process(suite, name, pid)
    suite.wait_ready()
