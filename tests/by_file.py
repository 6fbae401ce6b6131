"""Which worker runs which tests, with `-n`."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = {
    "the broker of contract": (
        "contract/test_diverts", "contract/test_kill", "contract/test_limits", "contract/test_management",
        "contract/test_messages", "contract/test_queues", "contract/test_termini", "contract/test_topics",
    ),
    "the suite of conformance": (
        "conformance/test_crossings", "conformance/test_live", "conformance/test_malformed",
        "conformance/test_publishing", "conformance/test_sessions", "conformance/test_subscribing",
        "conformance/test_websocket",
    ),
    "the suite of console": (
        "console/test_address_commands", "console/test_commands", "console/test_following", "console/test_hostile",
        "console/test_live", "console/test_messages", "console/test_moves", "console/test_reading",
        "console/test_supervisor_paths", "console/test_top", "console/test_writing",
    ),
    "the suite with MQTT of console": (
        "console/test_mqtt_traffic", "console/test_subscribers", "console/test_terminal_output",
    ),
    "the session of Spark": ("spark/test_in_spark", "spark/test_in_spark_pipeline", "spark/test_in_spark_spaces"),
    "the suite of system": (
        "system/test_applied", "system/test_bad_files", "system/test_by_hand", "system/test_damage",
        "system/test_heal", "system/test_kill", "system/test_many", "system/test_memory", "system/test_removal",
        "system/test_roundtrip", "system/test_unsettled",
    ),
}  # fmt: skip
"""What is slow to start → the files that share it, by a fixture of their package. All others have what they start for
themselves, and cost nothing more side by side."""
UNITS = {f"tests/{file}.py": unit for unit, files in TOGETHER.items() for file in files}
BY_PARAMETER = ("tests/tenants/test_tenants.py",)
"""Files that have a suite for each first parameter of their tests, with minutes of tests each."""


class ByFile(LoadScopeScheduling):
    """With `-n`: a worker takes a whole file, with what its tests share, the files of an entry of TOGETHER, or those
    tests of a file of BY_PARAMETER that have the same suite; in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in BY_PARAMETER:
            return f"{file}[{nodeid.partition('[')[2].rstrip(']').partition('-')[0]}]"
        return UNITS.get(file, file)

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
