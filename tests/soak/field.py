"""The suite that faults are done to."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

from enmasse.testing import Suite, wait_for
from tests.soak.watch import status

Fault = Callable[["Field", random.Random], str]


class Field:
    """What faults are done to. `small_disk`: the data directory is a file system of its own, to be filled."""

    def __init__(self, suite: Suite, small_disk: bool) -> None:
        self.suite, self.small_disk = suite, small_disk
        self.over = threading.Event()
        """Set when the soak was told to end: no fault goes on then."""

    def pick(self, rng: random.Random, *kinds: str) -> dict[str, Any]:
        """A running component of one of these kinds."""

        def running() -> list[dict[str, Any]]:
            return [c for c in status(self.suite)["components"] if c["kind"] in kinds and c["pid"]]

        found: list[dict[str, Any]] = wait_for(f"a running {' or '.join(kinds)}", running)
        return rng.choice(sorted(found, key=lambda c: str(c["name"])))

    def kill(self, component: dict[str, Any]) -> dict[str, Any]:
        """SIGKILL; the component as it is when it was started again."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(component["pid"], signal.SIGKILL)

        def again() -> Any:
            found = (c for c in status(self.suite)["components"] if c["name"] == component["name"])
            return next((c for c in found if c["pid"] not in (None, component["pid"])), None)

        found: dict[str, Any] = wait_for(f"{component['name']} to be started again", again)
        return found

    def renew_brokers(self) -> None:
        """Every broker is killed, and ready again: it has read its journal, and has none of its files open for that."""
        for component in status(self.suite)["components"]:
            if component["kind"] == "broker" and component["pid"]:
                self.kill(component)
        wait_for("the brokers", lambda: all(c["ready"] for c in status(self.suite)["components"]))

    def let(self, seconds: float) -> None:
        """The fault lasts."""
        self.over.wait(seconds)

    def start(self) -> None:
        """`enmasse up`, however often it takes. Raises RuntimeError where it does not become ready."""
        self.suite.up(180)
