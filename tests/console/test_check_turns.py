"""Checks of large changes: other requests have their turns, and a space has one check at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from enmasse.api.types import Change, ChangeResult, Fault
from services.console.rest.suite import operations

ENTRIES = 10_000


class Caller:
    """May do everything."""

    manager = viewer = administrator = True
    principal = None

    def may(self, operation: str, address: str) -> bool:
        return True

    def views(self, address: str | None) -> bool:
        return True


class Call:
    """A request for a check."""

    def __init__(self) -> None:
        self.caller = Caller()
        self.host = "?"

    def parameters(self) -> dict[str, Any]:
        return {}

    async def body(self, kind: type[Change]) -> Change:
        return Change(kind="addresses", set={f"a{n}": {"type": "queue"} for n in range(ENTRIES)})


class Configuration:
    """Finds something wrong with each entry."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def configure(self, change: Change, *_: Any) -> ChangeResult:
        assert change.check
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return ChangeResult(accepted=False, errors=[Fault(file="f", entry=name, reason="r") for name in change.set])


def test_others_have_their_turns_while_a_large_change_is_checked() -> None:
    configuration = Configuration()
    lists = SimpleNamespace(of=lambda listing: None)
    parts = SimpleNamespace(
        configuration=configuration, supervisor=None, addresses=None, space="one", gate=None, lists=lists
    )
    handler = next(each.handler for each in operations(cast("Any", parts)) if each.id == "checkConfig")

    async def run() -> int:
        checks = [asyncio.create_task(cast("Any", handler)(Call())) for _ in range(3)]
        turns = 0
        while not all(check.done() for check in checks):
            await asyncio.sleep(0)
            turns += 1
        for check in checks:
            assert len((await check).value.errors) == ENTRIES
        return turns

    assert asyncio.run(run()) >= 3 * 2 * ENTRIES / 50
    assert configuration.most == 1, "one after the other"
