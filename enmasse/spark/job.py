"""A Spark job as a process, on this machine or on a cluster.

`python -m enmasse.spark.job --state FILE PROGRAM [ARGUMENT …]` runs a Python program; `python -m spark.run` runs the
file of a pipeline in the same way. Each second the progress of its queries is written to FILE (enmasse.spark_jobs), of
each once its sources are attached: what is sent to a topic from then on is received.
SIGTERM and SIGINT stop the queries, then the session. Exit status 0: the program has ended, or was stopped. 1: it has
failed; the last line on standard error, and `ended` in FILE, state why in one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import re
import runpy
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from enmasse import spark_jobs
from enmasse.process import startup
from enmasse.spark import failed_queries
from enmasse.spark.archive import archive
from enmasse.spark.errors import QueryError, sentence
from enmasse.spark.source.lag import Lag
from enmasse.spark.spool.segment import partition_folder
from enmasse.spark.spool.spool import head_of

REPORT_SECONDS = 1.0
TRACE = re.compile(r'^  File "([^"\n]+)", line (\d+), in (.+)\n(?:    .*\n)*(\w.*)$', re.MULTILINE)
"""Last place of a Python traceback, and its error."""
BROKEN_PIPE = "Exception while sending command."
"""As Py4J logs, with a traceback, that the JVM does not answer."""
JVM_SECONDS = 1.0
"""Time for a JVM that does not answer to have ended."""
STARTING = ("Initializing sources", "Getting offsets from")
"""How Spark's status of a query begins until its sources have started their receivers."""
UNPACKED = "enmasse-site"
"""Folder of the archive where executors work."""


class Stopped(BaseException):
    """The job has to end. No Exception: a program that handles its own errors would continue."""


class Report:
    """The file of the job, written by a thread as its queries make progress."""

    def __init__(self, file: Path, job: spark_jobs.Job) -> None:
        self._file, self._job = file, job
        self._queries: dict[str, spark_jobs.Query] = {}
        self._sources = file.with_suffix(".sources")
        self._with_sources: set[str] = set()
        self._over = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Write the file, and again each second."""
        shutil.rmtree(self._sources, ignore_errors=True)
        self._sources.mkdir()
        os.environ[spark_jobs.SOURCES] = str(self._sources.absolute())
        spark_jobs.write(self._file, self._job)
        self._thread.start()

    def stop(self) -> None:
        """End the reports."""
        self._over.set()
        self._thread.join()

    def end(self, reason: str) -> None:
        """Write that the job has ended."""
        shutil.rmtree(self._sources, ignore_errors=True)
        spark_jobs.write(self._file, msgspec.structs.replace(self._job, queries=[], ended=reason))

    def _run(self) -> None:
        while not self._over.wait(REPORT_SECONDS):
            try:
                spark = SparkSession._instantiatedSession
                active = [] if spark is None else spark.streams.active
                now = [self._listed(query, alone=len(active) == 1) for query in active if self._has_sources(query)]
                spark_jobs.write(self._file, msgspec.structs.replace(self._job, queries=now))
            except Exception as error:  # the program may stop its session meanwhile
                if not self._failed and not jvm_end(error):
                    traceback.print_exc()
                self._failed = True

    def _has_sources(self, query: Any) -> bool:
        """Return True if the sources of a query have been attached."""
        if query.runId not in self._with_sources:
            started = query.lastProgress is not None or not query.status["message"].startswith(STARTING)
            if not started or not spark_jobs.are_attached(self._sources):
                return False
            self._with_sources.add(query.runId)
        return True

    def _listed(self, query: Any, *, alone: bool) -> spark_jobs.Query:
        """Return the state of a query. Until its first batch with rows has ended, its lag is that of the job's spools
        if it is `alone`: Spark tells no source of which query it is."""
        found = self._query(query)
        sources = spark_jobs.sources_of(self._sources) if alone and not found.rows else []
        if not sources:
            return found
        behind, oldest = spooled(sources, time.time_ns() // 1_000_000)
        return msgspec.structs.replace(found, behind=behind, oldest_seconds=oldest)

    def _query(self, query: Any) -> spark_jobs.Query:
        name, last = query.name or str(query.id), query.lastProgress
        known = self._queries.get(name, spark_jobs.Query.begun(name))
        if not known.rows:
            known = msgspec.structs.replace(known, starts=query.status["isDataAvailable"])
        if last is None:
            return known
        new = [last] if last["batchId"] <= known.batch + 1 else query.recentProgress
        new = [each for each in new if each["batchId"] > known.batch and each["numInputRows"]]
        rate = last["inputRowsPerSecond"]
        lags = [lag for source in last["sources"] if (lag := lag_of(source)) is not None]
        ages = [lag["oldestSeconds"] for lag in lags if lag["oldestSeconds"] is not None]
        self._queries[name] = spark_jobs.Query(
            name=name,
            batch=new[-1]["batchId"] if new else known.batch,
            starts=known.starts and not new,
            at=new[-1]["timestamp"] if new else known.at,
            rows=known.rows + sum(map(rows_of, new)),
            rows_per_second=round(rate * rows_of(last) / max(1, last["numInputRows"]), 1) if math.isfinite(rate) else 0,
            behind=sum(lag["behind"] for lag in lags) if lags else None,
            oldest_seconds=max(ages, default=None),
            without_id=sum(lag["withoutId"] for lag in lags),
            bad=known.bad + sum(map(bad_of, new)),
        )
        return self._queries[name]


def spooled(sources: list[spark_jobs.ProcessedSpool], now_ms: int) -> tuple[int, float | None]:
    """Return how many messages the spools of sources hold that are not processed, and seconds since the oldest of them
    arrived. now_ms: milliseconds since 1970. Raises OSError if a spool is gone."""
    lags = []
    for source in sources:
        folder = Path(source.spool)
        heads = [head_of(partition_folder(folder, n)).get() for n in range(len(source.processed))]
        lags.append(Lag(folder).report(source.processed, heads, now_ms))
    ages = [lag["oldestSeconds"] for lag in lags if lag["oldestSeconds"] is not None]
    return sum(lag["behind"] for lag in lags), max(ages, default=None)


def rows_of(progress: Any) -> int:
    """Return how many rows a batch had. Spark counts those of a source again for each branch of the query that reads
    it, so for amqp sources the offsets tell."""
    return sum(range_of(source) if lag_of(source) else source["numInputRows"] for source in progress["sources"])


def bad_of(progress: Any) -> int:
    """Return how many messages of a batch are no readings, which a pipeline counts; 0 of another query."""
    counts = progress["observedMetrics"].get("pipeline")
    return int(counts.asDict().get("bad", 0)) if counts is not None else 0


def range_of(source: Any) -> int:
    """Return how many records are between the offsets of an amqp source."""
    start, end = (json.loads(source[name] or "null") or {} for name in ("startOffset", "endOffset"))
    return int(sum(end.values()) - sum(start.values()))


def lag_of(source: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an amqp source states of its lag in a query's progress (enmasse.spark.source.lag); None for another
    one."""
    try:
        latest = json.loads(source.get("latestOffset") or "null")
    except (TypeError, ValueError):
        return None
    return latest if isinstance(latest, dict) and {"behind", "oldestSeconds"} <= latest.keys() else None


def submit_arguments(given: argparse.Namespace) -> str:
    """Return PYSPARK_SUBMIT_ARGS of this process. Executors elsewhere get an archive of what the source needs."""
    settings = {}
    if not given.master.startswith("local"):
        packed = archive()
        settings = {
            "spark.archives": f"{packed}#{UNPACKED}",
            "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}",
        }
        host = given.driver_host or address_towards(given.master)
        settings |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    pairs = [f"{name}={value}" for name, value in settings.items()] + given.conf
    words = ["--master", given.master, *(word for pair in pairs for word in ("--conf", pair)), "pyspark-shell"]
    return shlex.join(words)


def executors_python(python: str) -> dict[str, str]:
    """Return the variables of this process with which executors run `python`.

    Spark runs what plans a query on this machine by the same name: it has to be an interpreter with the packages.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {"PYSPARK_PYTHON": python, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def address_towards(master: str) -> str:
    """Return the address of this machine that faces a cluster: that of the way to its master, or the host's name."""
    host = re.match(r"(?:spark|k8s://https?)://(\[[^]]+\]|[^:/,]+)", master)
    if host is not None:
        with contextlib.suppress(OSError):
            family, kind, protocol, _, address = socket.getaddrinfo(host[1].strip("[]"), 1, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:  # sends nothing
                probe.connect(address)
                return str(probe.getsockname()[0])
    return socket.getfqdn()


def run_program(given: argparse.Namespace) -> None:
    """Run a Python program. Raises what ends it; an error that no query has caused is shown as usual first."""
    sys.argv = [str(given.program), *given.arguments]
    sys.path[0] = str(given.program.parent)
    try:
        runpy.run_path(str(given.program), run_name="__main__")
    except Exception as error:
        if not isinstance(error, (QueryError, PySparkException)) and not sentence(error) and not jvm_end(error):
            traceback.print_exc()
        raise


def reason(error: BaseException) -> str:
    """Return one sentence about the error that ends a job."""
    if isinstance(error, QueryError):
        return str(error)
    if text := sentence(error):
        return text
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, str) else f"the program ended with status {error.code}"
    if ended := jvm_end(error):
        return ended
    if isinstance(error, PySparkException) and (places := TRACE.findall(str(error))):
        file, line, function, raised = places[-1]
        return f"{raised} ({file}, line {line}, in {function})"
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    kind = type(error).__name__
    return f"{kind}: {first}" if first else kind


def jvm_end(error: BaseException) -> str:
    """Return how the JVM of Spark has ended, if it has, and `error` may come from that; else an empty text."""
    started = getattr(SparkContext._gateway, "proc", None)
    of_connection = isinstance(error, OSError) or type(error).__module__.startswith("py4j.")
    if started is None or not of_connection:
        return ""
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = started.wait(JVM_SECONDS)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"the JVM of Spark {how}. If it had too little memory, give it more: --conf spark.driver.memory=4g"
    return ""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped in this block at the first SIGTERM or SIGINT; later ones are ignored."""

    def stop(*_: object) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    yield


def stop_session() -> None:
    """Stop the queries and the session, if there is one; a batch that is cut off is done again by the next run."""
    with contextlib.suppress(Exception):
        spark = SparkSession._instantiatedSession
        if spark is not None:
            for query in spark.streams.active:
                query.stop()
            spark.stop()


def kill_starting_jvm() -> None:
    """Kill a JVM that was still starting: it does not notice the end of this process, and would stay. One that runs
    ends with its standard input, and lets the receivers settle what they have stored."""
    own = os.getpid()
    if SparkContext._gateway is not None or os.getpgrp() != own:
        return
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            pid = int(process.name)
            if pid != own and os.getpgid(pid) == own:
                os.kill(pid, signal.SIGKILL)


def outcome(given: argparse.Namespace, run: Callable[[argparse.Namespace], None]) -> str:
    """Run the job; return why it failed, empty if it did not."""
    try:
        with stoppable():
            os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(given)
            os.environ["SPARK_MASTER"] = given.master
            if not given.master.startswith("local"):
                os.environ |= executors_python(given.python)
            run(given)
    except Stopped:
        pass
    except SystemExit as error:
        if error.code not in (None, 0):
            return reason(error)
    except Exception as error:
        failed_queries.ends.set()
        return reason(error)
    return ""


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of the command line of a job."""
    parser = argparse.ArgumentParser(name, description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--driver-host", default="")
    parser.add_argument("--python", default=f"python{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--quiet", action="store_true", help="leave it to the caller to show why the job failed")
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main(given: argparse.Namespace, run: Callable[[argparse.Namespace], None]) -> None:
    """Run the job; end with its exit status."""
    startup.die_with_parent()
    logging.getLogger().addFilter(lambda record: record.msg != BROKEN_PIPE)
    held = spark_jobs.lock(given.state)
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    report = Report(given.state, spark_jobs.Job(given.name, os.getpid(), given.master, str(given.program), since))
    report.start()
    failure = outcome(given, run)
    report.stop()
    stop_session()
    kill_starting_jvm()
    report.end(failure)
    os.close(held)
    sys.stdout.flush()
    if failure and not given.quiet:
        print(failure, file=sys.stderr, flush=True)  # noqa: T201 - the last line, for people
    os._exit(1 if failure else 0)  # threads of the program do not hold it up


if __name__ == "__main__":
    main(parser("python -m enmasse.spark.job", __doc__ or "").parse_args(), run_program)
