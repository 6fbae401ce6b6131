"""Exit statuses of commands that run Spark or helm."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from enmasse.testing import wait_for
from tests.cli.running import ENMASSE, enmasse
from tests.cli.statuses.cases import case
from tests.kit import processes
from tests.kit.waiting import DEADLINE


def deploying(folder: Path, helm: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """`enmasse deploy` with a shell script as helm."""
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\n{helm}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = [ENMASSE, "deploy", "--namespace", "n"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def sparking(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`enmasse spark` with a folder of its own for its jobs."""
    return enmasse("spark", *words, env={"XDG_STATE_HOME": str(folder / "state"), **(env or {})})


@case("spark", 0)
def no_job_runs(folder: Path) -> int:
    return sparking(folder, "status").returncode


@case("spark", 1)
def no_such_job(folder: Path) -> int:
    return sparking(folder, "stop", "other").returncode


@case("spark", 1)
def no_table_to_draw(folder: Path) -> int:
    (folder / "p.toml").write_text(f'[source]\naddress = "a"\nwork = "{folder}"\n[windows]\naddress = "w"\n')
    done = sparking(folder, "chart", str(folder / "p.toml"), "windows", str(folder / "p.png"))
    assert "has no section [table]" in done.stderr and "spark.chart.failed" in done.stderr
    return done.returncode


@case("spark", 2)
def no_java(folder: Path) -> int:
    (folder / "job.py").touch()
    done = sparking(folder, "run", str(folder / "job.py"), env={"JAVA_HOME": str(folder)})
    assert "Java 17" in done.stderr
    return done.returncode


@case("spark", 130)
def interrupted_while_a_job_runs(folder: Path) -> int:
    (folder / "job.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(1000)")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    command = [ENMASSE, "spark", "run", str(folder / "job.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=DEADLINE)
    assert shown == "job is stopped\n"
    return process.returncode


@case("spark", 141)
def nobody_reads_the_jobs(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    done = processes.run(processes.COMMAND, "spark", "status", "--json", stdout=writing)
    os.close(writing)
    return done.returncode


@case("deploy", 0)
def all_is_ready(folder: Path) -> int:
    process = deploying(folder, "exit 0")
    process.communicate(timeout=DEADLINE)
    return process.returncode


@case("deploy", 1)
def helm_failed(folder: Path) -> int:
    process = deploying(folder, "echo the cluster is gone >&2; exit 7")
    _, shown = process.communicate(timeout=DEADLINE)
    assert "the cluster is gone" in shown
    return process.returncode


@case("deploy", 2)
def no_helm(folder: Path) -> int:
    done = enmasse("deploy", "--namespace", "n", env={"PATH": str(folder)})
    assert "needs helm" in done.stderr
    return done.returncode


@case("deploy", 130)
def interrupted_while_helm_waits(folder: Path) -> int:
    process = deploying(folder, "touch $(dirname $0)/running; exec sleep 600")
    wait_for("helm runs", (folder / "running").exists)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=DEADLINE)
    assert "helm rollback" in shown and "Traceback" not in shown
    return process.returncode


@case("deploy", 141)
def nobody_reads_that_it_is_ready(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    process = deploying(folder, "exit 0", writing)
    os.close(writing)
    process.communicate(timeout=DEADLINE)
    return process.returncode
