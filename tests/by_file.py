"""Which worker runs which tests, with `-n`."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ONE_WORKER = ("tests/contract/", "tests/conformance/", "tests/console/", "tests/system/", "tests/spark/test_in_spark")
"""Folders, and beginnings of names, whose files share processes that are slow to start."""
APART = (
    "tests/conformance/test_killed.py",
    *(f"tests/console/test_{name}.py" for name in (
        "alone", "browsers", "dispatch_mesh", "logins", "mqtt_names", "page", "prometheus", "subscribers",
    )),
    *(f"tests/system/test_{name}.py" for name in (
        "amqp_owners", "amqp_users", "artemis", "client_certificates", "deaf_subscribers", "keycloak", "moving_topics",
        "mqtt", "mqtt_users", "mqtt_users_killed", "mqtt_users_together", "qdrouterd", "restart", "senders", "traces",
        "wills",
    )),
)  # fmt: skip
"""They have suites of their own, so they cost nothing more side by side, and no worker is left alone with them."""
BY_PARAMETER = ("tests/tenants/test_tenants.py",)
"""Files that have a suite for each first parameter of their tests, with minutes of tests each."""


class ByFile(LoadScopeScheduling):
    """With `-n`: a worker takes a whole file, with what its tests share, a folder of ONE_WORKER, or those tests of a
    file of BY_PARAMETER that have the same suite; in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in BY_PARAMETER:
            return f"{file}[{nodeid.partition('[')[2].rstrip(']').partition('-')[0]}]"
        folder = next((one for one in ONE_WORKER if file.startswith(one)), "")
        return folder if folder and file not in APART else file

    def remove_node(self, node: WorkerController) -> str | None:
        """A test in which a worker died has failed: no other worker runs it again, and dies of it too."""
        work = self.assigned_work[node]
        crashed = next(((unit, test) for unit in work.values() for test, done in unit.items() if not done), None)
        if crashed is not None:
            unit, test = crashed
            unit[test] = True
        for scope in [scope for scope, unit in work.items() if all(unit.values())]:
            del work[scope]
        super().remove_node(node)
        return crashed and crashed[1]
