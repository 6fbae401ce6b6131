"""`enmasse spark`: run Spark jobs on this machine or on a cluster, list them, stop them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from enmasse.cli.common import COULD_NOT_START, FAILED, INTERRUPTED, OK, done, end, report
from enmasse.cli.contexts.folders import state_folder
from enmasse.process.installed import import_path

JAVA = 17
"""The oldest Java that PySpark runs on."""
MASTERS = ("local", "spark://", "k8s://", "yarn")
PIPELINES = (".toml", ".json")
"""Endings of the files of pipelines."""
UNATTACHED = "no query runs yet: Spark starts, or a source is not attached"
LOOK = 0.2
STOP_SECONDS = 60.0
"""Time for a job to stop its queries; then it is killed."""
F = TypeVar("F", bound=Callable[..., Any])


class Master(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """A master of Spark."""

    name = "master"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the master; one that Spark does not know is wrong usage."""
        if not str(value).startswith(MASTERS):
            self.fail(
                f"{value!r} is no master: write local[N], spark://HOST:PORT, k8s://HOST:PORT or yarn.", param, ctx
            )
        return value


class Name(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """The name of a job, which is a file name."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name; one that is no file name is wrong usage."""
        from enmasse.spark_jobs import NAME

        if not NAME.fullmatch(str(value)):
            self.fail(f"{value!r} is no name: letters, digits, '.', '_' and '-', 64 at most.", param, ctx)
        return value


def job_options(function: F) -> F:
    """The options and arguments of commands that start a job."""
    for decorate in (
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT]…"),
        click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"),
        click.option("--python", "python", metavar="PROGRAM",
                     help="Python of the executors on a cluster (default: of this release, as python3.11)."),
        click.option("--driver-host", metavar="HOST",
                     help="Address of this machine for executors on a cluster (default: the one towards the master)."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark. May be repeated."),
        click.option("--name", type=Name(), metavar="NAME", help="Name of the job (default: that of FILE)."),
        click.option("--master", type=Master(), default="local[*]", show_default=True, metavar="MASTER",
                     help="local[N], spark://HOST:PORT, k8s://HOST:PORT or yarn."),
    ):  # fmt: skip
        function = decorate(function)
    return function


@click.group(name="spark", short_help="Run Spark jobs: programs, and files of pipelines.")
def command() -> None:
    """Run Spark jobs: Python programs, and files of telemetry pipelines (docs/spark.md).

    They need Java 17 and the packages of the extra `spark`.
    """


@command.command("run", context_settings={"ignore_unknown_options": True})
@job_options
def run(file: Path, words: tuple[str, ...], **options: Any) -> None:
    """Run a job in the foreground, until it ends or is stopped (Ctrl-C, SIGTERM, `enmasse spark stop`).

    FILE is a Python program, which gets the ARGUMENTs, or the file of a pipeline (.toml, .json).

    Exit status 0: it has ended, or was stopped. 1: it has failed, and why is on stderr. 2: it could not start.
    """
    with _started(file, words, options, background=False) as (state, process):
        told: list[int] = []

        def tell(number: int, _: object) -> None:
            told.append(number)
            if len(told) > 1:
                _kill(process)
            else:
                process.terminate()

        before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
        status = _watched(state, process)
        for number, handler in before.items():
            signal.signal(number, handler)
        _kill(process)
        failure = _failure(state)
        if status >= 0 or told:  # one that was killed is listed until it is run again, or `stop`
            state.unlink(missing_ok=True)
    if signal.SIGINT in told:
        report(f"{state.stem} is stopped")
        sys.exit(INTERRUPTED)
    if status and not told:
        end("spark.job.failed", _failed(state, failure or _how(status)), FAILED)
    sys.exit(OK)


@command.command("submit", context_settings={"ignore_unknown_options": True})
@job_options
def submit(file: Path, words: tuple[str, ...], **options: Any) -> None:
    """Run a job in the background, and end when a query runs and its sources are attached, or the program has ended.

    The driver is a process of this machine with any MASTER. `enmasse spark status` shows it, `enmasse spark stop NAME`
    ends it.

    Exit status 0: it runs, or has ended already. 1: it has failed, and why is on stderr. 2: it could not start.
    """
    from enmasse import spark_jobs

    with _started(file, words, options, background=True) as (state, process):
        while process.poll() is None:
            job = spark_jobs.read(state)
            if job is not None and job.pid == process.pid and job.queries:
                line = f"{state.stem} runs (pid {process.pid}); its log is {state.with_suffix('.log')}"
                done(line, "begun", name=state.stem, pid=process.pid, log=str(state.with_suffix(".log")))
                sys.exit(OK)
            time.sleep(LOOK)
    if process.returncode:
        log = state.with_suffix(".log")
        end("spark.job.failed", f"{_failed(state, _failure(state) or _how(process.returncode))}; see {log}", FAILED)
    done(f"{state.stem} has ended", "ended", name=state.stem)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help='One JSON object on stdout: {"items": [...], "total": N}.')
def status(as_json: bool) -> None:
    """List the jobs that run, with their queries; those that were killed; and those in the background that have failed.

    Exit status 0.
    """
    from enmasse import spark_jobs
    from enmasse.cli.output.tables import age, print_notes, print_table

    found = spark_jobs.listed(state_folder())
    if as_json:
        import msgspec

        jobs = [{**msgspec.to_builtins(job), "running": runs} for job, runs in found]
        click.echo(json.dumps({"items": jobs, "jobs": jobs, "total": len(jobs)}))
        return
    rows = []
    for job, runs in found:
        state = "runs" if runs else spark_jobs.KILLED if (job.ended or "").startswith(spark_jobs.KILLED) else "failed"
        first = (job.name, job.pid if runs else None, age(job.since) if runs else "", job.master, state)
        for query in job.queries if runs and job.queries else [None]:
            rows.append((*first, *_progress(query)))
            first = ("", None, "", "", "")
    print_table(
        ("job", "pid", "for", "master", "state", "query", "batch", "rows", "rows/s", "behind", "last batch"), rows,
        none="no job runs",
    )  # fmt: skip
    ends = [(job.name, _end(job)) for job, runs in found if not runs]
    starting = [(job.name, UNATTACHED) for job, runs in found if runs and not job.queries]
    running = [query for job, runs in found if runs for query in job.queries]
    print_notes(ends + starting + [(query.name, note) for query in running for note in _notes(query)])


@command.command("stop")
@click.argument("name", type=Name())
def stop(name: str) -> None:
    """Stop a job: its queries, then Spark. A batch that is cut off is done again by the next run.

    Exit status 0: it is stopped. 1: there is no such job.
    """
    from enmasse import spark_jobs

    state = state_folder() / f"{name}.json"
    job = spark_jobs.read(state)
    if job is None:
        end("spark.job.unknown", f"there is no job {name!r}; `enmasse spark status` lists them")
    if spark_jobs.is_running(state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while spark_jobs.is_running(state):
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)
            time.sleep(LOOK)
    state.unlink(missing_ok=True)
    done(f"{name} is stopped", "stopped", name=name)


@command.command("archive")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def archive(file: Path) -> None:
    """Write the archive (.tar.gz) that executors of a cluster need, for a spark-submit of your own (docs/spark.md)."""
    _check()
    if not file.parent.is_dir():
        end("spark.archive.failed", f"{file} cannot be written: there is no folder {file.parent}; make it first")
    if failed := _failed_of("enmasse.spark.archive", str(file)):
        end("spark.archive.failed", f"{file} cannot be written: {failed}")
    done("", "written", file=str(file))


@command.command("chart")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("what", type=click.Choice(("windows", "lag")))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--device", "devices", metavar="NAME", multiple=True,
              help="A device whose windows are drawn; may be repeated. Default: the first five by name.")  # fmt: skip
def chart(file: Path, what: str, picture: Path, devices: tuple[str, ...]) -> None:
    """Draw the windows in the table of a pipeline, or its lag, as PNG. FILE is that of the pipeline.

    It needs the packages of the extra `charts`; the pipeline may run or not.
    """
    _check_packages()
    given = [f"--device={name}" for name in devices]
    if failed := _failed_of("spark.chart", str(file), what, str(picture), *given):
        end("spark.chart.failed", failed.removeprefix("chart: "))
    done("", "written", file=str(picture))


def _failed_of(module: str, *words: str) -> str:
    """Run a module of Spark's; return the last line of its errors if it fails."""
    environment = {**os.environ, **import_path()}
    done = subprocess.run([sys.executable, "-P", "-m", module, *words], capture_output=True, text=True, env=environment)
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines()[-1:] or [_how(done.returncode)])[0]


def _watched(state: Path, process: subprocess.Popen[bytes]) -> int:
    """Report on a terminal how far a job is until its first batch; return the exit status of its process."""
    from enmasse import spark_jobs
    from enmasse.text import counted

    if not sys.stderr.isatty():
        return process.wait()

    began, waits = time.monotonic(), False
    report(f"{state.stem}: starting Spark, which takes some seconds")
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK)
        job = spark_jobs.read(state)
        if job is None or job.pid != process.pid or not job.queries:
            continue
        if found := next((query for query in job.queries if query.batch >= 0), None):
            after = time.monotonic() - began
            report(f"{state.stem}: the first batch, of {counted(found.rows, 'row')}, came after {after:.0f} s")
            return process.wait()
        if not waits:
            report(f"{state.stem}: Spark runs; {job.queries[0].name} waits for its first batch")
        waits = True


def _progress(query: Any) -> tuple[Any, ...]:
    from enmasse.cli.output.tables import age

    if query is None:
        return ("",) * 6
    batch = query.batch if query.batch >= 0 else "none yet"
    ago = f"{age(query.at)} ago" if query.at else ""
    return query.name, batch, query.rows, f"{query.rows_per_second:,.0f}", query.behind, ago


def _end(job: Any) -> str:
    """Return why a job has ended; of several faults the first, and where the others are."""
    first, *others = (job.ended or "").splitlines() or [""]
    log = state_folder() / f"{job.name}.log"
    return f"{first}; and {len(others)} more, see {log}" if others else first


def _notes(query: Any) -> Iterator[str]:
    """Yield notes about a query without rows, about messages without an id, and about those that are no readings."""
    from enmasse.text import counted

    if query.starts:
        yield "its first batch runs"
    elif not query.rows:
        yield "its sources are attached, and nothing has come from them yet"
    elif number := query.without_id:
        yield f"{counted(number, 'message')} without a message-id: a redelivered copy is a second row"
    if number := query.bad:
        are = "is no reading" if number == 1 else "are no readings"
        yield f"{counted(number, 'message')} that {are}: see `spark.readings.bad` in its log"


@contextlib.contextmanager
def _started(file: Path, words: tuple[str, ...], options: dict[str, Any], *, background: bool) -> Any:
    """Start the process of a job; the file of its state, and the process. Ends the command if it cannot start."""
    from enmasse import spark_jobs

    _check()
    name = options["name"] or _name_of(file)
    state = state_folder() / f"{name}.json"
    if spark_jobs.is_running(state):
        text = f"a job {name!r} runs already: stop it with `enmasse spark stop {quote(name)}`, or choose another --name"
        end("spark.job.in-use", text, COULD_NOT_START)
    for pair in options["conf"]:
        if not pair.partition("=")[0] or "=" not in pair:
            raise click.BadParameter(f"expected KEY=VALUE, got {pair!r}", param_hint="--conf")
    given = [f"--state={state}", f"--name={name}", f"--master={options['master']}"]
    given += [f"--conf={pair}" for pair in options["conf"]]
    given += [] if background else ["--quiet"]
    given += [f"--{word.replace('_', '-')}={options[word]}" for word in ("driver_host", "python") if options[word]]
    run_by, environment = (["-m", "enmasse.spark.job"], dict(os.environ))
    if file.suffix in PIPELINES:
        run_by, environment = (["-P", "-m", "spark.run"], {**os.environ, **import_path()})
    program = [sys.executable, *run_by, *given, str(file.absolute()), *words]
    with contextlib.ExitStack() as stack:
        output: Any = None
        if background:
            environment.pop("ENMASSE_PARENT", None)
            state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            log = state.with_suffix(".log")
            output = stack.enter_context(open(log, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)))
        else:
            environment["ENMASSE_PARENT"] = str(os.getpid())
        # A session of its own: Ctrl-C is for this command, which stops the job in order.
        process = subprocess.Popen(
            program, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield state, process
        except KeyboardInterrupt:
            _kill(process)
            state.unlink(missing_ok=True)
            raise


def _check_packages() -> None:
    """End the command if PySpark is missing."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        text = "Spark jobs need the packages of the extra `spark`: pip install '.[spark]' in the checkout"
        end("spark.package.missing", text, COULD_NOT_START)


def _check() -> None:
    """End the command if PySpark or Java is missing."""
    _check_packages()
    home = os.environ.get("JAVA_HOME")
    if not (os.access(Path(home) / "bin" / "java", os.X_OK) if home else shutil.which("java")):
        text = (
            f"Spark jobs need Java {JAVA} or newer, which is {f'not in JAVA_HOME ({home})' if home else 'not on PATH'}:"
            " install it (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
        )
        end("spark.java.missing", text, COULD_NOT_START)


def _name_of(file: Path) -> str:
    from enmasse.spark_jobs import NAME

    if not NAME.fullmatch(file.stem):
        raise click.UsageError(f"{file.stem!r} cannot be the name of a job: give --name NAME")
    return file.stem


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of a job."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure(state: Path) -> str:
    from enmasse import spark_jobs

    job = spark_jobs.read(state)
    return (job.ended or "") if job is not None else ""


def _failed(state: Path, reason: str) -> str:
    """Return that a job failed, and why; several faults in a line each."""
    return f"{state.stem} failed:" + ("\n" if "\n" in reason else " ") + reason


def _how(status: int) -> str:
    return f"it was killed by {signal.Signals(-status).name}" if status < 0 else f"it ended with status {status}"
