"""The whole suite on the engines of the field: Apache Qpid Dispatch before Apache ActiveMQ Artemis."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.testing import running
from tests import one_program
from tests.artemis import ENVIRONMENT


@pytest.mark.needs("qdrouterd")
def test_one_program_for_every_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with running(tmp_path, options=("--broker", "artemis", "--router", "qdrouterd")) as suite:
        suite.up(300)
        engines = {
            one["engine"] for one in suite.status()["components"] if one["kind"] in ("broker", "artemis", "router")
        }
        assert engines == {"artemis", "qdrouterd"}
        one_program.check_files(suite.config)
        one_program.check(suite.url, f"mqtt://127.0.0.1:{suite.mqtt_port}")
        assert suite.down() == 0
