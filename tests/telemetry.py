"""A device's readings for the telemetry pipeline over MQTT, and the results that must come out of it, each once."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from proton import Timeout
from proton.utils import BlockingConnection

from enmasse.testing import wait_for

TELEMETRY, RESULTS = "telemetry", "results"
QUEUES = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES = {TELEMETRY: QUEUES, RESULTS: {**QUEUES, "duplicates": "message-id"}}
"""The pipeline's sink sends a batch again, with the same ids, if it was killed before it knew that it was accepted."""
WINDOW = "10 seconds"
DEVICE = "thermometer"
Result = tuple[float, float, int]
"""Maximum, minimum and number of the readings of a window."""
_BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
PATIENCE = 800.0
"""Seconds: a Spark takes minutes to start on a machine on which much else runs."""
_SECONDS = 10
"""Readings of a window: one a second, of the device's clock."""


class Telemetry:
    """Publishes to TELEMETRY with QoS 1, in order."""

    def __init__(self, host: str, port: int) -> None:
        self._numbers = count()
        self._sent: dict[str, list[float]] = {}
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=DEVICE, protocol=MQTTv5)
        self._client.connect(host, port)
        self._client.loop_start()

    def windows(self, many: int) -> None:
        """The readings of as many windows; returns when they are acknowledged."""
        infos = [self._publish(next(self._numbers)) for _ in range(many * _SECONDS)]
        for info in infos:
            info.wait_for_publish(PATIENCE)
            assert info.is_published(), "a reading was not acknowledged"

    def _publish(self, number: int) -> Any:
        time, value = _BEGIN + dt.timedelta(seconds=number), float(number * 37 % 101)
        start = time - dt.timedelta(seconds=number % _SECONDS)
        self._sent.setdefault(start.strftime("%Y-%m-%dT%H:%M:%S"), []).append(value)
        body = json.dumps({"device": DEVICE, "time": time.isoformat(), "temperature": value})
        return self._client.publish(TELEMETRY, body, qos=1)

    def check(self, url: str, alive: Callable[[], object]) -> None:
        """Ends the windows, and the device, and takes the results: each has come once, of all its readings. `alive`
        raises if the pipeline has ended."""
        results = _Results(url)
        self._later(days=1)  # all windows before it are over
        results.wait(self._expected().keys(), alive)
        self._later(days=2)  # and so is that one, whose result comes after all that was sent before
        results.wait(self._expected().keys(), alive)
        results.close()
        self._client.disconnect()
        self._client.loop_stop()
        found, wanted = sorted(results.found), sorted(self._expected().items())
        assert found == wanted, f"expected and not found: {set(wanted) - set(found)}; found beside: {found}"

    def _later(self, days: int) -> None:
        self._publish(days * 24 * 3600).wait_for_publish(PATIENCE)

    def _expected(self) -> dict[str, Result]:
        """By the start of the window; without the newest one, which is not over."""
        return {start: (max(v), min(v), len(v)) for start, v in sorted(self._sent.items())[:-1]}


class _Results:
    """What has come of RESULTS: the start of the window, and its result."""

    def __init__(self, url: str) -> None:
        self.found: list[tuple[str, Result]] = []
        self._connection = BlockingConnection(url, timeout=PATIENCE)
        self._receiver = self._connection.create_receiver(RESULTS, credit=100)

    def wait(self, windows: Collection[str], alive: Callable[[], object]) -> None:
        def complete() -> bool:
            alive()
            with contextlib.suppress(Timeout):
                message = self._receiver.receive(timeout=1)  # limit: of one look
                row = json.loads(bytes(message.body))  # a view of the message, which must live as long
                self._receiver.accept()
                self.found.append((row["start"][:19], (row["maximum"], row["minimum"], row["readings"])))
            return {start for start, _ in self.found}.issuperset(windows)

        wait_for(f"the results of {len(windows)} windows", complete, PATIENCE)

    def close(self) -> None:
        self._connection.close()
