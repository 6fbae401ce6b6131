"""`enmasse` with address spaces, which are closed until all of the suite has them: as `python -m
tests.system.with_spaces up …`."""

from __future__ import annotations

from typing import Any

from enmasse.cli import main
from enmasse.supervisor import start
from enmasse.supervisor.plan.services import SettingsMaker


def _opened() -> None:
    start._check_spaces = lambda path: None
    make = SettingsMaker.__call__

    def with_spaces(self: SettingsMaker, name: str, kind: str = "", **more: Any) -> dict[str, Any]:
        found = make(self, name, kind, **more)
        return {**found, "spaces": True} if name == "configserv" else found

    SettingsMaker.__call__ = with_spaces  # type: ignore[method-assign]  # for the tests


if __name__ == "__main__":
    _opened()
    main()
