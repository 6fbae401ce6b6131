"""The pipeline of `--with spark` as a process of the suite: a Spark job, judged by what its queries report."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from enmasse import spark_jobs
from enmasse.engines.program import ChildHealth, HealthProbe, Spec
from enmasse.supervisor.children.launch import PYTHON_MODULE
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK
from enmasse.supervisor.plan.services import BEHIND, RATE, SPARK, Options


class Pipeline:
    """Program of the pipeline."""

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Return the command; what the last process left of its state is removed. Raises OSError."""
        state = folder / f"{spec.name}.json"
        state.unlink(missing_ok=True)
        given = [f"--{name}={spec.settings[name]}" for name in ("url", "work")]
        job = [*PYTHON_MODULE, "spark.run", "--state", str(state), f"--name={spec.name}"]
        return [*job, *given, spec.settings["file"]]

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the job's queries."""
        return JobProbe(Path(spec.settings["state"]))


class JobProbe:
    """Probe of a job, by the file that it writes."""

    def __init__(self, state: Path) -> None:
        self._state = state

    async def ask(self) -> ChildHealth:
        """Read the file. A job is ready while it has a query, which it has once its sources are attached."""
        job = await asyncio.to_thread(spark_jobs.read, self._state)
        if job is None or job.ended is not None or not job.queries:
            return ChildHealth(False, "starting")
        return ChildHealth(True, "; ".join(map(described, job.queries)), counts=counts(job))

    def close(self) -> None:
        """Do nothing: no file stays open."""


def counts(job: spark_jobs.Job) -> dict[str, int]:
    """Return the rows that come in a second, and the messages that are spooled and not processed, if that is known."""
    found = {RATE: round(sum(query.rows_per_second for query in job.queries))}
    known = [query.behind for query in job.queries if query.behind is not None]
    return {**found, BEHIND: sum(known)} if known else found


def described(query: spark_jobs.Query) -> str:
    """Return the last batch of a query in words."""
    if query.batch < 0:
        return "no batch yet"
    waits = f", the oldest message waits for {query.oldest_seconds:.0f} s" if query.oldest_seconds is not None else ""
    return f"{query.rows} rows, the last ones in batch {query.batch} of {query.at}{waits}"


async def progress(data: DataDir) -> dict[str, Any]:
    """Return the queries of the pipeline that runs, and its newest windows: as in enmasse.spark_jobs."""

    def read() -> dict[str, Any]:
        state = _state(data)
        job, recent = spark_jobs.read(state), spark_jobs.read_windows(spark_jobs.windows_of(state))
        queries = [] if job is None or job.ended is not None else job.queries
        return {"queries": queries, "windows": [] if recent is None else recent.windows}

    found: dict[str, Any] = msgspec.to_builtins(await asyncio.to_thread(read))
    return found


def _state(data: DataDir) -> Path:
    return data.run / f"{SPARK}.json"


def spec(options: Options, data: DataDir) -> Spec:
    """Return the process of the pipeline."""
    url = f"amqp://{LOOPBACK}:{options.public_ports.of_amqp()['amqp']}"
    work = str(data.path / SPARK)
    settings = {"file": str(options.pipeline), "state": str(_state(data)), "url": url, "work": work}
    return Spec(SPARK, SPARK, settings, engine=SPARK)


def check(file: Path) -> None:
    """Raise StartError if what Spark needs is missing, or if there is something wrong in the pipeline's file."""
    if importlib.util.find_spec("pyspark") is None:
        raise StartError(
            "start.spark.missing",
            "--with spark needs the packages of the extra `spark`: pip install '.[spark]' in the checkout",
        )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise StartError(
            "start.spark.missing",
            "--with spark needs Java 17 or newer, which is not on PATH: install it (Debian: apt-get install "
            "openjdk-17-jre-headless), or set JAVA_HOME",
        )
    command = [*PYTHON_MODULE, "spark.pipeline_file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StartError("start.spark.invalid", *done.stderr.strip().splitlines(), "Correct it, or name another file.")
