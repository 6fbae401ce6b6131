"""A suite that serves address spaces: run as a program, this is `enmasse` with open guards (docs/spaces.md)."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from enmasse import cli
from enmasse.testing import Executed, Suite, running


@contextlib.contextmanager
def running_with_spaces(folder: Path, files: dict[str, Any], **more: Any) -> Iterator[Suite]:
    """Yield a suite to be started, with these further files: path in the configuration's folder → content."""
    with running(folder, **more) as suite:
        suite.commands = Executed(sys.executable, __file__)
        for path, content in files.items():
            file = suite.config / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, indent=2))
        yield suite


def _open_guards() -> None:
    from enmasse.model import configuration

    configuration.Applied = partial(configuration.Applied, tenants=True)  # type: ignore[misc,assignment]  # as the guard will open it
    from enmasse.supervisor import start
    from enmasse.supervisor.plan.services import SettingsMaker

    start._check_spaces = lambda path: None
    make = SettingsMaker.__call__

    def with_spaces(self: SettingsMaker, name: str, kind: str = "", **more: Any) -> dict[str, Any]:
        return make(self, name, kind, **more, **({"spaces": True} if name == "configserv" else {}))

    SettingsMaker.__call__ = with_spaces  # type: ignore[method-assign]  # replaced for tests


if __name__ == "__main__":
    _open_guards()
    cli.main()
