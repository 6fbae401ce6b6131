"""`enmasse spark`, and `enmasse up --with spark`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from msgspec.structs import replace
from proton import Message
from proton.utils import BlockingConnection
from pyspark.errors import PySparkException

from enmasse import spark_jobs
from enmasse.cli.commands import spark
from enmasse.cli.common import ADMIN_PORT
from enmasse.spark.job import Report, reason
from enmasse.spark.spool.spool import SpoolWriter
from enmasse.testing import Suite, running, wait_for
from tests.console.browser import Console, chromium
from tests.console.client import Client
from tests.kit.marks import first_soon
from tests.spark.conftest import DEADLINE, LIMIT

pytestmark = pytest.mark.timeout(LIMIT)
ENMASSE = str(Path(sys.executable).with_name("enmasse"))
Run = Callable[..., subprocess.CompletedProcess[str]]
PIPELINE = """
[source]
address = "telemetry"

[readings]
deadLetterAddress = "bad"
watermark = "1 second"

[windows]
address = "windows"
window = "1 second"

[commands]
address = "commands/{device}"
body = "cool"
above = 90.0
"""
COUNTING = """
import sys
from enmasse.spark import session
spark = session.session("counting")
url, work = sys.argv[1:]
rows = spark.readStream.format("amqp").options(url=url, address="counted", spool=f"{work}/spool").load()
written = rows.writeStream.queryName("counted").format("noop").option("checkpointLocation", f"{work}/checkpoint")
written.start().awaitTermination()
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "enmasse" / "spark"
    yield folder
    for job, runs in spark_jobs.listed(folder):
        if runs:
            os.killpg(job.pid, signal.SIGKILL)


@pytest.fixture
def enmasse(tmp_path: Path, state: Path) -> Run:
    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ENMASSE, "spark", *words], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **environment}
        )

    return run


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("with-spark")
    file = folder / "pipeline.toml"
    file.write_text(PIPELINE)
    queue = {"type": "queue", "flavor": "small-persisted-queue"}
    addresses = {
        "telemetry": queue,
        "bad": queue,
        "counted": queue,
        "windows": queue,
        "commands": {"type": "multicast"},
        "news": {"type": "topic", "flavor": "small-persisted-topic"},
    }
    with running(folder, addresses, options=("--without", "mqtt", "--with", f"spark={file}")) as started:
        started.up(DEADLINE)
        yield started


def send(suite: Suite, address: str, count: int) -> None:
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    sender = connection.create_sender(address)
    for number in range(count):
        sender.send(Message(id=f"m{number}", body="no reading", durable=True))
    connection.close()


def component(suite: Suite) -> dict[str, Any]:
    return suite.component("spark")


def children(pid: int) -> list[psutil.Process]:
    return list(psutil.Process(pid).children(recursive=True))


def have_ended(processes: list[psutil.Process]) -> bool:
    """Return whether none of these runs. One whose new parent has not taken its status has ended too."""

    def runs(process: psutil.Process) -> bool:
        try:
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return not any(map(runs, processes))


@pytest.mark.slow
def test_a_pipeline_beside_the_suite_is_restarted_and_its_progress_is_shown(suite: Suite) -> None:
    first = component(suite)
    wait_for("the pipeline", lambda: component(suite)["ready"], DEADLINE)
    send(suite, "telemetry", 7)
    wait_for("seven rows", lambda: "7 rows," in component(suite)["detail"], DEADLINE)
    assert component(suite)["counts"].keys() == {"rows a second", "messages behind"}
    page = f"http://127.0.0.1:{ADMIN_PORT + suite.offset}/metrics"
    request = urllib.request.Request(page, headers=suite.operator_headers)
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    assert 'enmasse_spark_rows_per_second{name="spark"}' in text
    assert 'enmasse_spark_messages_behind{name="spark"} 0' in text
    helpers = children(first["pid"])
    os.kill(first["pid"], signal.SIGKILL)
    wait_for("the end of all that the job had started", lambda: have_ended(helpers), DEADLINE)
    wait_for("another one", lambda: component(suite)["ready"] and component(suite)["restarts"] == 1, DEADLINE)
    send(suite, "telemetry", 5)
    wait_for("five rows", lambda: "5 rows," in component(suite)["detail"], DEADLINE)


@pytest.mark.slow
def test_the_console_shows_the_query_and_its_newest_windows(suite: Suite) -> None:
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    sender = connection.create_sender("telemetry")
    for second in range(10):
        for device in ("boiler", "<b>oven</b>"):
            reading = {"device": device, "time": f"2026-01-01T00:00:0{second}Z", "temperature": 20.0 + second}
            sender.send(Message(body=json.dumps(reading), durable=True))
    connection.close()
    with Client(suite) as client:

        def windows() -> list[dict[str, Any]]:
            reply = client("GET", "queries/spark/windows")  # 404 while the pipeline starts
            return [] if reply.status != 200 else list(reply.body["windows"])

        wait_for("windows of both devices", lambda: {each["device"] for each in windows()} > {"boiler"}, DEADLINE)
        first = next(each for each in windows() if each["device"] == "boiler")
        assert (first["start"], first["mean"], first["readings"]) == ("2026-01-01T00:00:00Z", 20.0, 1)

        def has_all() -> bool:
            (query,) = client.items("queries")
            return query["behind"] is not None and query["rows"] >= 20 and query["batch"] >= 0

        wait_for("the query to have all readings", has_all, DEADLINE)  # its progress comes after the windows
        assert client("GET", "queries/other/windows").status == 404
    with chromium() as browser:
        for theme, width in (("light", 1280), ("dark", 390)):
            console = Console(
                browser, 8080 + suite.offset, color_scheme=theme, viewport={"width": width, "height": 800}
            )  # fmt: skip
            page = console.open("queries", "Spark queries")
            page.get_by_label("Device").select_option("boiler")
            page.get_by_text("The same as a table").click()
            page.get_by_role("region", name="Windows of boiler").get_by_text("20", exact=True).first.wait_for()
            assert console.findings() == []
            console.close()


@pytest.mark.slow
def test_a_job_in_the_background_is_listed_with_its_progress_until_it_is_stopped(
    suite: Suite, enmasse: Run, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    started = enmasse("submit", "counting.py", suite.url, str(tmp_path / "work"))
    assert not started.returncode, started.stderr
    send(suite, "counted", 9)

    def job() -> dict[str, Any]:
        (found,) = json.loads(enmasse("status", "--json").stdout)["jobs"]
        return dict(found)

    def rows() -> int:
        return sum(query.rows for found, _ in spark_jobs.listed(state) for query in found.queries)

    wait_for("nine rows", lambda: rows() == 9, DEADLINE)
    found = job()
    assert (found["name"], found["running"], found["master"]) == ("counting", True, "local[*]")
    assert (found["queries"][0]["name"], found["queries"][0]["behind"]) == ("counted", 0)
    assert "counted" in enmasse("status").stdout
    again = enmasse("submit", "counting.py", suite.url, str(tmp_path / "work"))
    assert again.returncode == 2 and "runs already" in again.stderr
    processes = [psutil.Process(found["pid"]), *children(found["pid"])]
    stopped = enmasse("stop", "counting")
    assert (stopped.returncode, stopped.stdout) == (0, "counting is stopped\n")
    wait_for("the end of the job", lambda: have_ended(processes), DEADLINE)
    assert enmasse("status").stderr == "no job runs\n"


@pytest.mark.slow
def test_what_is_sent_to_a_topic_after_submit_is_received(
    suite: Suite, enmasse: Run, state: Path, tmp_path: Path
) -> None:
    program = COUNTING.replace('address="counted"', 'address="news", subscription="counting"')
    (tmp_path / "reading.py").write_text(program)
    started = enmasse("submit", "reading.py", suite.url, str(tmp_path / "work"))
    assert not started.returncode, started.stderr
    wait_for("no rows", lambda: "nothing has come from them yet" in enmasse("status").stdout, DEADLINE)
    send(suite, "news", 21)

    def rows() -> int:
        return sum(query.rows for found, _ in spark_jobs.listed(state) for query in found.queries)

    wait_for("all rows", lambda: rows() == 21, DEADLINE)


def test_receivers_of_a_job_are_attached_when_all_that_live_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spark_jobs.SOURCES, str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for receiver in (os.getpid(), ended.pid):
        spark_jobs.note_attaching(receiver)
    assert not spark_jobs.are_attached(tmp_path)
    spark_jobs.note_attached(os.getpid())
    assert spark_jobs.are_attached(tmp_path)


def test_a_terminal_is_told_how_far_a_job_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pipe = process.stdin
    assert pipe is not None
    job = spark_jobs.Job("count", process.pid, "local[*]", "count.py", "2026-01-02T03:04:05Z")
    waits = spark_jobs.Query.begun("counted")
    reads = [None, replace(job, pid=1, queries=[waits]), job, replace(job, queries=[waits])]

    def read(file: Path) -> spark_jobs.Job | None:
        if reads:
            return reads.pop(0)
        pipe.write(b"\n")
        pipe.close()
        return replace(job, queries=[replace(waits, batch=0, rows=3)])

    monkeypatch.setattr(spark_jobs, "read", read)
    monkeypatch.setattr(spark, "LOOK", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert spark._watched(tmp_path / "count.json", process) == 0
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "count: starting Spark, which takes some seconds"
    assert second == "count: Spark runs; counted waits for its first batch"
    assert third.startswith("count: the first batch, of 3 rows, came after ")


def test_ctrl_c_ends_a_job_in_one_line_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    (tmp_path / "waiting.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(1000)\n")
    with subprocess.Popen(
        [ENMASSE, "spark", "run", "waiting.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as command:  # fmt: skip
        assert command.stdout is not None
        assert command.stdout.readline() == "runs\n"
        (job,) = children(command.pid)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=DEADLINE)
    assert (command.returncode, said) == (130, "waiting is stopped\n")
    assert not job.is_running()
    assert not list(state.glob("*.json"))


@pytest.mark.slow
def test_a_job_that_is_stopped_while_spark_starts_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "starting.py").write_text("from enmasse.spark import session\nsession.session('starting')\n")
    words = ["--state", str(tmp_path / "starting.json"), "--name", "starting", str(tmp_path / "starting.py")]
    job = subprocess.Popen([sys.executable, "-m", "enmasse.spark.job", *words], process_group=0)
    wait_for("the start of Spark", lambda: children(job.pid), DEADLINE)
    started = children(job.pid)
    job.send_signal(signal.SIGTERM)
    assert not job.wait(DEADLINE)
    wait_for("the end of all that the job had started", lambda: have_ended(started), DEADLINE)


@pytest.mark.parametrize("command", first_soon(["run", "submit"]))
def test_a_job_that_fails_says_why_in_one_sentence(enmasse: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "wrong.toml").write_text('[source]\naddress = "a"\nwork = "w"\n')
    found = enmasse(command, "wrong.toml")
    assert found.returncode == 1
    sentence = f"wrong failed: {tmp_path}/wrong.toml: there is no stage: write a section windows"
    assert found.stderr.startswith(sentence) and found.stderr.count("\n") == 1
    if command == "submit":
        assert f"wrong: {tmp_path}/wrong.toml: there is no stage" in enmasse("status").stdout
        assert not enmasse("stop", "wrong").returncode
    assert not enmasse("status").stdout


def test_an_archive_in_no_folder_is_refused_in_one_sentence(enmasse: Run) -> None:
    found = enmasse("archive", "nodir/a.tgz")
    assert found.returncode == 1
    assert found.stderr.startswith("nodir/a.tgz cannot be written: there is no folder nodir; make it first")


TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Reason: Traceback (most recent call last):
  File "/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^
  File "/jobs/fb.py", line 4, in broken
    raise ValueError("my bug")
ValueError: my bug
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ==="""


def test_an_error_of_the_programs_own_function_is_named_with_its_place() -> None:
    assert reason(PySparkException(TRACEBACK)) == "ValueError: my bug (/jobs/fb.py, line 4, in broken)"
    plain = PySparkException("[TABLE_OR_VIEW_NOT_FOUND] there is no t\nmore")
    assert reason(plain) == "PySparkException: [TABLE_OR_VIEW_NOT_FOUND] there is no t"


@pytest.mark.slow
def test_a_job_whose_jvm_is_killed_says_so(enmasse: Run, tmp_path: Path) -> None:
    program = "import os, signal\nfrom enmasse.spark import session\nspark = session.session('killed')\n"
    kill = "os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)\nspark.range(3).count()\n"
    (tmp_path / "killed.py").write_text(program + kill)
    found = enmasse("run", "killed.py")
    said = found.stderr.splitlines()[-1]
    assert said.startswith("killed failed: the JVM of Spark was killed by SIGKILL. If it had too little memory")
    assert "Traceback" not in found.stderr


def test_a_job_that_was_killed_is_listed_with_the_time(enmasse: Run, state: Path) -> None:
    state.mkdir(parents=True)
    query = replace(spark_jobs.Query.begun("counted"), batch=3, rows=9)
    job = spark_jobs.Job("counting", 1 << 30, "local[*]", "count.py", "2026-01-02T03:04:05Z", [query])
    spark_jobs.write(state / "counting.json", job)
    os.utime(state / "counting.json", (1767323105, 1767323105))
    shown = enmasse("status").stdout.splitlines()
    assert shown[1].split() == ["counting", "local[*]", "killed"]
    assert shown[3].startswith("counting: killed at 2026-01-02T03:05:05Z (kill -9, lack of memory")
    (listed,) = json.loads(enmasse("status", "--json").stdout)["items"]
    assert not listed["running"] and listed["ended"].startswith("killed at 2026-01-02T03:05:05Z")
    assert not enmasse("stop", "counting").returncode
    assert enmasse("status").stderr == "no job runs\n"


def test_the_first_of_several_faults_of_a_job_is_listed(enmasse: Run, state: Path) -> None:
    state.mkdir(parents=True)
    job = spark_jobs.Job(
        "wrong", 1 << 30, "local[*]", "w.toml", "2026-01-02T03:04:05Z", ended="w.toml:1: a\nw.toml:2: b"
    )
    spark_jobs.write(state / "wrong.json", job)
    assert enmasse("status").stdout.splitlines()[-1] == f"wrong: w.toml:1: a; and 1 more, see {state}/wrong.log"


def test_a_running_job_has_notes_about_messages_without_ids_and_bad_ones(enmasse: Run, state: Path) -> None:
    query = replace(spark_jobs.Query.begun("counted"), batch=3, rows=9, without_id=2, bad=4)
    job = spark_jobs.Job("counting", 1 << 30, "local[*]", "count.py", "2026-01-02T03:04:05Z", [query])
    held = spark_jobs.lock(state / "counting.json")
    spark_jobs.write(state / "counting.json", job)
    shown = enmasse("status").stdout.splitlines()
    os.close(held)
    assert shown[-2:] == [
        "counted: 2 messages without a message-id: a redelivered copy is a second row",
        "counted: 4 messages that are no readings: see `spark.readings.bad` in its log",
    ]


def test_a_first_batch_that_runs_is_no_lack_of_messages(
    enmasse: Run, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is behind is known before Spark states it."""
    writer = SpoolWriter(tmp_path / "spool")
    for ms in range(5):
        writer.append(b"message", ms)
    writer.sync()
    writer.close()
    sources = state / "counting.sources"
    sources.mkdir(parents=True)
    monkeypatch.setenv(spark_jobs.SOURCES, str(sources))
    spark_jobs.note_processed(spark_jobs.ProcessedSpool(str(tmp_path / "spool"), [2]))
    status = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}
    query = SimpleNamespace(name="counted", lastProgress=None, status=status)
    job = spark_jobs.Job("counting", os.getpid(), "local[*]", "count.py", "2026-01-02T03:04:05Z")
    report = Report(state / "counting.json", job)
    assert report._listed(query, alone=False).behind is None, "the spool may be that of another query"
    found = report._listed(query, alone=True)
    assert found.behind == 3 and found.oldest_seconds is not None
    held = spark_jobs.lock(state / "counting.json")
    spark_jobs.write(state / "counting.json", replace(job, queries=[found]))
    shown = enmasse("status").stdout.splitlines()
    os.close(held)
    assert shown[-1] == "counted: its first batch runs"


def test_without_java_or_a_known_master_nothing_starts(enmasse: Run, tmp_path: Path, state: Path) -> None:
    (tmp_path / "job.py").write_text("raise AssertionError")
    missing = enmasse("run", "job.py", JAVA_HOME=str(tmp_path))
    assert missing.returncode == 2 and "Java 17" in missing.stderr and "spark.java.missing" in missing.stderr
    wrong = enmasse("run", "--master", "mesos://here", "job.py")
    assert wrong.returncode == 2 and "spark://HOST:PORT" in wrong.stderr
    assert not state.exists()


def test_a_suite_with_a_wrong_pipeline_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('[source]\nadress = "a"\n')
    words = ["up", "--config", str(tmp_path / "config"), "--data", str(tmp_path / "data"), "--with", f"spark={file}"]
    subprocess.run([ENMASSE, "init", str(tmp_path / "config")], check=True, stdout=subprocess.DEVNULL)
    found = subprocess.run([ENMASSE, *words], capture_output=True, text=True)
    assert found.returncode == 2
    assert "there is no such field; did you mean address?" in found.stderr and "start.spark.invalid" in found.stderr
    assert not (tmp_path / "data").exists()
