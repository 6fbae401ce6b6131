"""What counts as applied while the driver changes a broker, and after it could not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from services.storage_controller.drivers import DriverError, Manifest, RunningBroker
from services.storage_controller.provisioner import Provisioner
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

A, B = (Manifest("f", "data", {"memory": memory}) for memory in (1, 2))


class Driver:
    """Does what it is told, and then waits until it may answer; `fails`: it says that it could not."""

    def __init__(self) -> None:
        self.in_force: dict[str, Manifest] = {"b": A}
        self.at_work = False
        self.answers = asyncio.Event()
        self.fails = False

    async def _answer(self) -> None:
        self.at_work = True
        await self.answers.wait()
        self.at_work = False
        if self.fails:
            self.fails = False
            raise DriverError("no answer came")

    async def apply(self, name: str, manifest: Manifest) -> None:
        self.in_force[name] = manifest
        await self._answer()

    async def delete(self, name: str) -> None:
        self.in_force.pop(name, None)
        await self._answer()

    async def applied(self) -> tuple[Mapping[str, Manifest], Mapping[str, str]]:
        return dict(self.in_force), {}

    async def altered(self) -> list[str]:
        return []

    async def running(self) -> Mapping[str, RunningBroker]:
        return {}


@pytest.mark.parametrize("fails", [False, True], ids=["it succeeds", "its outcome is unknown"])
@pytest.mark.parametrize("change", ["apply", "delete"])
@asyncio_test
async def test_a_change_that_is_undone_while_the_driver_works(change: str, fails: bool) -> None:
    driver = Driver()
    looks: list[object] = []
    found = Provisioner(
        cast(Any, driver), applied=lambda *_: None, deleted=lambda _: None, looked=looks.append, is_settled=lambda: True
    )
    running = asyncio.ensure_future(found.run())
    await until(lambda: looks and found.is_applied("b"))
    if change == "apply":
        found.ask("b", B)
    else:
        found.give_up("b")
    await until(lambda: driver.at_work)
    found.ask("b", A)
    assert not found.is_applied("b"), "either may be in force"
    driver.fails = fails
    driver.answers.set()
    await until(lambda: found.is_applied("b"))
    assert driver.in_force == {"b": A}
    running.cancel()
    await asyncio.wait([running])
