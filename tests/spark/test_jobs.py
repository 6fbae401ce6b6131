"""The first job of docs/spark.md, a program with a Spark of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from enmasse.testing import running, wait_for
from tests.page import programs
from tests.spark.conftest import DEADLINE, LIMIT

pytestmark = pytest.mark.timeout(LIMIT)


@pytest.mark.slow
def test_the_first_job_shows_rows_and_what_becomes_of_its_connection(tmp_path: Path) -> None:
    (job,) = programs("spark.md")
    shown, warnings = tmp_path / "stdout", tmp_path / "stderr"
    with running(tmp_path / "suite") as suite, shown.open("wb") as stdout, warnings.open("wb") as stderr:
        suite.up(DEADLINE)
        folder = tmp_path / "job"
        job.write(folder, suite)
        for command in job.each[:-1]:
            job.run(command, folder, suite)
        process = subprocess.Popen(
            job.each[-1],
            shell=True,
            cwd=folder,
            env=job.environment(suite),
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            table = job.output[job.output.index("+") :].encode()
            wait_for("the rows of the page", lambda: table in shown.read_bytes(), DEADLINE)
            suite.kill(suite.component("router"))
            nothing, again = (
                f"spark.source.{event} source='myqueue' at {suite.url}".encode() for event in ("interrupted", "resumed")
            )
            wait_for("a warning that nothing comes", lambda: nothing in warnings.read_bytes(), DEADLINE)
            wait_for("a warning that it goes on", lambda: again in warnings.read_bytes(), DEADLINE)
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
