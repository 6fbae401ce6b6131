"""The telemetry pipeline as a container beside a running suite: killed and started again, and ended by SIGTERM."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse import __version__
from enmasse.testing import running, wait_for
from tests.images.build import build
from tests.images.containers import Container
from tests.telemetry import ADDRESSES, PATIENCE, WINDOW, Telemetry

QUICK = "-Duser.home=/tmp -Duser.name=enmasse -XX:TieredStopAtLevel=1"
"""The image's options, and the quick compiler alone: the other one repays itself after minutes."""


@pytest.mark.timeout(3600)
def test_a_killed_driver_loses_and_repeats_nothing(tmp_path: Path) -> None:
    build("spark-pipeline")
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    with running(tmp_path, ADDRESSES, options=()) as suite:
        suite.up()
        container = Container(f"localhost/enmasse/spark-pipeline:{__version__}").writable("/tmp")
        container.with_env("SPARK_SUBMIT_OPTS", QUICK)
        container.with_volume_mapping(str(work), "/var/lib/enmasse", "rw")
        container.with_command([f"--url={suite.url}", f"--window={WINDOW}", "--work=/var/lib/enmasse/pipeline"])
        telemetry = Telemetry("127.0.0.1", suite.mqtt_port)
        telemetry.windows(3)

        def batches() -> int:
            """How many it has done, over all its starts."""
            done = [int(file.name) for file in work.glob("pipeline/checkpoint/commits/[0-9]*")]
            return max(done, default=-1)

        def goes_on(before: int) -> None:
            def done() -> bool:
                assert container.running, container.said
                return batches() > before

            wait_for("a batch is done", done, PATIENCE)

        with container:
            goes_on(-1)
            for _ in range(2):
                before = batches()
                telemetry.windows(20)
                container.kill()
                telemetry.windows(2)
                container.start_again()
                goes_on(before)
            telemetry.windows(3)
            telemetry.check(suite.url, lambda: container.running or pytest.fail(container.said))
            assert container.terminate() == 0, container.said
        assert suite.down() == 0
