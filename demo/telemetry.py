"""A year of hourly temperatures: devices → telemetry topic → Spark → results, compared with plain Python."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection
from vega_datasets import local_data

from demo.report import Report
from enmasse.testing import Suite, wait_for

WINDOW, WATERMARK = "1 day", "10 days"
PATIENCE = 300.0  # seconds that a slow machine is given for the next step; nothing is measured by it
WEEK = dt.timedelta(days=7)
UTC = dt.UTC


class Reading(NamedTuple):
    device: str
    time: dt.datetime
    temperature: float

    def body(self) -> str:
        return json.dumps({"device": self.device, "time": self.time.isoformat(), "temperature": self.temperature})


class Window(NamedTuple):
    maximum: float
    minimum: float
    mean: float
    readings: int


def readings(device: str, dataset: Any) -> list[Reading]:
    """The series as it lies in the package; both files spell the time differently."""
    with Path(dataset.filepath).open(newline="") as file:
        rows = [
            Reading(
                device, dt.datetime.fromisoformat(row["date"].replace("/", "-")).replace(tzinfo=UTC), float(row["temp"])
            )
            for row in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda reading: reading.time)


def expected_windows(series: dict[str, list[Reading]]) -> dict[tuple[str, dt.datetime], Window]:
    """The same aggregation in plain Python."""
    days: dict[tuple[str, dt.datetime], list[float]] = defaultdict(list)
    for device, rows in series.items():
        for reading in rows:
            days[device, reading.time.replace(hour=0, minute=0, second=0)].append(reading.temperature)
    return {key: Window(max(v), min(v), sum(v) / len(v), len(v)) for key, v in days.items()}


class Device:
    """One device client: its connection's sender and the readings it still has to send."""

    def __init__(self, rows: list[Reading]) -> None:
        self.rows = rows
        self.sender: Any = None
        self.sent = 0

    def send(self, until: dt.datetime) -> int:
        """Send what lies before `until` as credit allows; returns how many went out."""
        before = self.sent
        while self.sent < len(self.rows) and self.rows[self.sent].time < until and self.sender.credit:
            reading = self.rows[self.sent]
            name = f"{reading.device}-{reading.time.isoformat()}"
            self.sender.send(Message(id=name, body=reading.body(), durable=True, content_type="application/json"))
            self.sent += 1
        return self.sent - before

    def done(self, until: dt.datetime) -> bool:
        return self.sent == len(self.rows) or self.rows[self.sent].time >= until


class Replay(MessagingHandler):
    """All devices at once, each on a connection of its own, week by week: none runs far ahead of the others."""

    def __init__(self, url: str, series: list[list[Reading]], accepted: Callable[[int], None]) -> None:
        super().__init__()
        self.url, self.tell = url, accepted
        self.devices = [Device(rows) for rows in series]
        self.until = min(rows[0].time for rows in series) + WEEK
        self.last = max(rows[-1].time for rows in series)
        self.open = self.accepted = 0
        self.trouble = ""

    def on_start(self, event: Any) -> None:
        for device in self.devices:
            name = f"device-{device.rows[0].device}"
            device.sender = event.container.create_sender(f"{self.url}/telemetry", name=name)

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        self.open += sum(device.send(self.until) for device in self.devices)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        self.open -= 1
        if self.open == 0 and all(device.done(self.until) for device in self.devices):
            self.tell(self.accepted)
            if self.until > self.last:
                self.close()
                return
            self.until += WEEK
            self.send()

    def on_rejected(self, event: Any) -> None:
        self.fail(f"rejected: {event.delivery.remote.condition}")

    def on_released(self, event: Any) -> None:  # also for modified
        self.fail("released: nobody took it")

    def on_transport_error(self, event: Any) -> None:
        self.trouble = str(event.transport.condition)

    def fail(self, why: str) -> None:
        self.trouble = why
        self.close()

    def close(self) -> None:
        for device in self.devices:
            device.sender.connection.close()


def send(suite: Suite, series: list[list[Reading]], accepted: Callable[[int], None] = lambda count: None) -> int:
    """Replay every list by a device client of its own; returns how many readings were accepted: all."""
    replay = Replay(suite.url, series, accepted)
    Container(replay).run()
    total = sum(map(len, series))
    if replay.trouble or replay.accepted != total:
        raise RuntimeError(f"{replay.accepted} of {total} readings accepted; {replay.trouble}")
    return replay.accepted


def replay(suite: Suite, series: dict[str, list[Reading]], report: Report) -> int:
    total = sum(map(len, series.values()))
    with report.progress("readings accepted", total) as progress:
        shown = progress.task_ids[0]
        accepted = send(suite, list(series.values()), lambda count: progress.update(shown, completed=count))
    last = max(rows[-1].time for rows in series.values())
    send(suite, [[Reading("clock", last + dt.timedelta(days=60), 0.0)]])  # closes every window
    return accepted


@contextlib.contextmanager
def pipeline(suite: Suite, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The Spark job, a process of its own."""
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


def collect(suite: Suite, expected: int, report: Report) -> tuple[dict[tuple[str, dt.datetime], Window], int]:
    """Results until all have come: (windows, how many came more than once)."""
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
    return a.readings == b.readings and all(abs(x - y) < 1e-9 for x, y in zip(a[:3], b[:3], strict=True))


Results = tuple[dict[str, list[Reading]], dict[tuple[str, dt.datetime], Window]]


def show(suite: Suite, report: Report, folder: Path) -> Results:
    series = {
        "seattle": readings("seattle", local_data.seattle_temps),
        "san-francisco": readings("san-francisco", local_data.sf_temps),
    }
    expected = expected_windows(series)
    total = sum(map(len, series.values()))
    report.step(f"telemetry: {total} readings of {len(series)} devices, {len(expected)} daily windows expected")
    with pipeline(suite, folder) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "pipeline running":
            raise RuntimeError(f"the Spark pipeline did not start; see {folder / 'spark.log'}")

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
        report.check("every window came back", set(found) == set(expected), f"{len(found)} of {len(expected)}")
        right = sum(1 for key, window in expected.items() if key in found and same(window, found[key]))
        report.check("each equals the same aggregation in plain Python", right == len(expected), f"{right} equal")
        report.check("none came twice", twice == 0, f"{twice} twice")
        report.say(
            f"end to end in {took:.1f} s: {accepted / took:,.0f} readings a second through broker, spool and Spark"
        )
    return series, found
