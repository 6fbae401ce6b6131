"""A year of hourly temperatures: MQTT devices → telemetry topic → Spark → results, compared with plain Python."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import json
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paho.mqtt.packettypes import PacketTypes
from proton.utils import BlockingConnection

from demo.mqtt import Device, make_properties
from demo.report import Report
from enmasse.testing import Suite, wait_for

WINDOW, WATERMARK = "1 day", "10 days"
PATIENCE = 300.0  # seconds that a slow machine is given for the next step; nothing is measured by it
WEEK = dt.timedelta(days=7)
UTC = dt.UTC
INFLIGHT = 500  # readings of a device that are not acknowledged yet
JSON = make_properties(PacketTypes.PUBLISH, ContentType="application/json")


class Reading(NamedTuple):
    """Temperature that a device has measured."""

    device: str
    time: dt.datetime
    temperature: float

    def body(self) -> str:
        """Return the body of its message, as JSON."""
        return json.dumps({"device": self.device, "time": self.time.isoformat(), "temperature": self.temperature})


class Window(NamedTuple):
    """Result for one device and one day."""

    maximum: float
    minimum: float
    mean: float
    readings: int


def readings(device: str, dataset: Any) -> list[Reading]:
    """Return the series of the package in order of time; its two files spell the time differently."""
    with Path(dataset.filepath).open(newline="") as file:
        rows = [
            Reading(
                device, dt.datetime.fromisoformat(row["date"].replace("/", "-")).replace(tzinfo=UTC), float(row["temp"])
            )
            for row in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda reading: reading.time)


def expected_windows(series: dict[str, list[Reading]]) -> dict[tuple[str, dt.datetime], Window]:
    """Compute the aggregation of the pipeline in plain Python."""
    days: dict[tuple[str, dt.datetime], list[float]] = defaultdict(list)
    for device, rows in series.items():
        for reading in rows:
            days[device, reading.time.replace(hour=0, minute=0, second=0)].append(reading.temperature)
    return {key: Window(max(v), min(v), sum(v) / len(v), len(v)) for key, v in days.items()}


class Replay:
    """Replay of all devices at once, each an MQTT client, week by week, so that they stay together."""

    def __init__(self, suite: Suite, series: list[list[Reading]], accepted: Callable[[int], None]) -> None:
        self.tell = accepted
        self.series = series
        self.total = sum(map(len, series))
        self.accepted = 0
        self.trouble = ""
        self._news = threading.Condition()
        self._devices = [Device(suite, f"device-{rows[0].device}", inflight=INFLIGHT) for rows in series]
        for device in self._devices:
            device.client.on_publish = self._on_publish
            device.client.on_disconnect = self._on_disconnect

    def run(self) -> None:
        """Send all readings; return when all are accepted, or with `trouble` set."""
        until = min(rows[0].time for rows in self.series) + WEEK
        sent = [0] * len(self.series)
        while not self.trouble and sum(sent) < self.total:
            for i, (device, rows) in enumerate(zip(self._devices, self.series, strict=True)):
                while sent[i] < len(rows) and rows[sent[i]].time < until:
                    device.client.publish("telemetry", rows[sent[i]].body(), qos=1, properties=JSON)
                    sent[i] += 1
            self._all_accepted(sum(sent))
            self.tell(self.accepted)
            until += WEEK
        for device in self._devices:
            device.client.on_disconnect = None
            device.close()

    def _all_accepted(self, count: int) -> None:
        with self._news:
            if not self._news.wait_for(lambda: self.trouble or self.accepted >= count, PATIENCE):
                self.trouble = f"no answer within {PATIENCE:g} s"

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._news:
            self.accepted += not reason.is_failure
            if reason.is_failure:
                self.trouble = f"refused: {reason}"
            self._news.notify()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._news:
            self.trouble = f"disconnected: {reason}"
            self._news.notify()


def send(suite: Suite, series: list[list[Reading]], accepted: Callable[[int], None] = lambda count: None) -> int:
    """Replay every list by a device of its own; return how many readings were accepted.

    Raises RuntimeError unless all were.
    """
    replay = Replay(suite, series, accepted)
    replay.run()
    if replay.trouble or replay.accepted != replay.total:
        raise RuntimeError(f"{replay.accepted} of {replay.total} readings accepted; {replay.trouble}")
    return replay.accepted


def replay(suite: Suite, series: dict[str, list[Reading]], report: Report) -> int:
    """Replay the readings, then one of a later time that closes every window; return how many were accepted."""
    total = sum(map(len, series.values()))
    with report.progress("readings accepted", total) as progress:
        shown = progress.task_ids[0]
        accepted = send(suite, list(series.values()), lambda count: progress.update(shown, completed=count))
    last = max(rows[-1].time for rows in series.values())
    send(suite, [[Reading("clock", last + dt.timedelta(days=60), 0.0)]])  # closes every window
    return accepted


@contextlib.contextmanager
def pipeline(suite: Suite, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield the process of the Spark job, which is ended afterwards."""
    log = (folder / "spark.log").open("w")
    options = ["--url", suite.url, "--address", "telemetry", "--subscription", "pipeline", "--results", "results"]
    options += ["--window", WINDOW, "--watermark", WATERMARK, "--work", str(folder / "spark")]
    process = subprocess.Popen(
        [sys.executable, "-m", "spark.pipeline", *options], stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)  # until its Java, which has the same standard output, is gone too
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def wait_running(process: subprocess.Popen[str], folder: Path, seconds: float = PATIENCE) -> None:
    """Until the Spark job says that it runs. Raises RuntimeError: why it does not, and what to do."""
    assert process.stdout is not None
    log = folder / "spark.log"
    if not select.select([process.stdout], [], [], seconds)[0]:
        raise RuntimeError(
            f"Spark has not started within {seconds:g} s; see {log}. It looks up the name of this machine: without a "
            "network, put the name into /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1"
        )
    if process.stdout.readline().strip() != "pipeline running":
        raise RuntimeError(f"the Spark pipeline did not start; see {log}")


def collect(suite: Suite, expected: int, report: Report) -> tuple[dict[tuple[str, dt.datetime], Window], int]:
    """Receive results until all are there; return the windows and how many were received more than once."""
    connection = BlockingConnection(suite.url, timeout=PATIENCE)
    receiver = connection.create_receiver("results", name="demo-results", credit=200)
    found: dict[tuple[str, dt.datetime], Window] = {}
    twice = 0
    with report.progress("windows", expected) as progress:
        deadline = time.monotonic() + 2 * PATIENCE
        while len(found) < expected and time.monotonic() < deadline:
            try:
                message = receiver.receive(timeout=PATIENCE)
            except Exception as error:
                report.say(f"waiting for results ended: {type(error).__name__} {error}")
                break
            receiver.accept()
            row = json.loads(bytes(message.body))
            start = dt.datetime.fromisoformat(row["start"])
            key = row["device"], start if start.tzinfo else start.replace(tzinfo=UTC)
            twice += key in found
            found[key] = Window(row["maximum"], row["minimum"], row["mean"], row["readings"])
            progress.update(progress.task_ids[0], completed=len(found))
    connection.close()
    return found, twice


def same(a: Window, b: Window) -> bool:
    """Return whether two windows are equal, up to rounding."""
    return a.readings == b.readings and all(abs(x - y) < 1e-9 for x, y in zip(a[:3], b[:3], strict=True))


Results = tuple[dict[str, list[Reading]], dict[tuple[str, dt.datetime], Window]]


def show(suite: Suite, report: Report, folder: Path) -> Results:
    """Send a year of readings through the Spark pipeline; check each window. Return the readings and the windows."""
    from vega_datasets import local_data  # and pandas: half a second, which no other part of the demo needs

    series = {
        "seattle": readings("seattle", local_data.seattle_temps),
        "san-francisco": readings("san-francisco", local_data.sf_temps),
    }
    expected = expected_windows(series)
    total = sum(map(len, series.values()))
    report.step(f"telemetry: {total} readings of {len(series)} MQTT devices, {len(expected)} daily windows expected")
    with pipeline(suite, folder) as process:
        report.say(f"starting Spark, for {PATIENCE:g} s at most; it logs to {folder / 'spark.log'}")
        wait_running(process, folder)

        def subscribed() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"the Spark pipeline ended; see {folder / 'spark.log'}")
            return any(a["name"] == "telemetry" and a["consumers"] for a in suite.status()["addresses"])

        wait_for("Spark's durable subscription", subscribed, PATIENCE)
        report.say("Spark is subscribed; replaying the year")
        began = time.monotonic()
        accepted = replay(suite, series, report)
        seconds = time.monotonic() - began
        report.say(f"{accepted} readings accepted in {seconds:.1f} s: {accepted / seconds:,.0f} a second, on disk each")
        found, twice = collect(suite, len(expected), report)
        took = time.monotonic() - began
        report.check("every window was received", set(found) == set(expected), f"{len(found)} of {len(expected)}")
        right = sum(1 for key, window in expected.items() if key in found and same(window, found[key]))
        report.check("each equals the same aggregation in plain Python", right == len(expected), f"{right} equal")
        report.check("none came twice", twice == 0, f"{twice} twice")
        report.say(
            f"end to end in {took:.1f} s: {accepted / took:,.0f} readings a second through broker, spool and Spark"
        )
    return series, found
