"""Exit statuses of commands that ask the services of a suite."""

from __future__ import annotations

from pathlib import Path

from enmasse.cli.common import OPERATORS_PORT
from tests.cli.running import free_offset
from tests.cli.statuses.cases import Case, case, of
from tests.cli.subctrl import RETAINED, ROW, SESSION, answering
from tests.cli.test_client import peer

ASKS: dict[str, tuple[str, ...]] = {
    "subscription": ("list",),
    "retained": ("clear", "a"),
    "mqtt": ("disconnect", "a"),
}
"""Commands that ask the subscription service."""
ANSWERS = {
    "subscriptions": {"subscriptions": [ROW]},
    "retained": {"retained": [RETAINED], "total": 1},
    "sessions": {"sessions": [SESSION]},
    "clear_retained": {"count": 1},
    "disconnect": {"count": 1},
}


def answered(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(answering(ANSWERS)) as port:
            return of(command, *ASKS[command], "--port-offset", port - OPERATORS_PORT)

    return run


def not_done(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(answering({})) as port:
            return of(command, *ASKS[command], "--port-offset", port - OPERATORS_PORT)

    return run


def nobody_to_ask(command: str) -> Case:
    return lambda folder: of(command, *ASKS[command], "--port-offset", free_offset())


for name in ASKS:
    case(name, 0)(answered(name))
    case(name, 1)(not_done(name))
    case(name, 4)(nobody_to_ask(name))
case("connection", 4)(lambda folder: of("connection", "list", "--port-offset", free_offset()))
case("space", 4)(lambda folder: of("space", "list", "--port-offset", free_offset()))
case("plan", 4)(lambda folder: of("plan", "list", "--port-offset", free_offset()))
case("token", 4)(lambda folder: of("token", "list", "--port-offset", free_offset()))
case("token", 1)(lambda folder: of("token", "add", "ci", "--port-offset", free_offset()))
case("top", 4)(lambda folder: of("top", "--once", "--port-offset", free_offset()))
case("events", 4)(lambda folder: of("events", "--port-offset", free_offset()))
