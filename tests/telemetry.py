"""A device's readings for the telemetry pipeline over MQTT, and the results that must come out of it, each once."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable
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
_BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_SECONDS = 10
"""Readings of a window: one a second, of the device's clock."""


class Telemetry:
    """Publishes to TELEMETRY with QoS 1, in order."""

    def __init__(self, host: str, port: int, patience: float) -> None:
        self.patience = patience
        self._numbers = count()
        self._sent: dict[str, list[float]] = {}
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=DEVICE, protocol=MQTTv5)
        self._client.connect(host, port)
        self._client.loop_start()

    def windows(self, many: int) -> None:
        """The readings of as many windows; returns when they are acknowledged."""
        infos = [self._publish(next(self._numbers)) for _ in range(many * _SECONDS)]
        for info in infos:
            info.wait_for_publish(self.patience)
            assert info.is_published(), "a reading was not acknowledged"

    def end(self) -> None:
        """Two readings that are days later: all windows before the last one are over."""
        day = 24 * 3600
        for number in (day, 2 * day):
            self._publish(number).wait_for_publish(self.patience)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, number: int) -> Any:
        time, value = _BEGIN + dt.timedelta(seconds=number), float(number * 37 % 101)
        start = time - dt.timedelta(seconds=number % _SECONDS)
        self._sent.setdefault(start.strftime("%Y-%m-%dT%H:%M:%S"), []).append(value)
        body = json.dumps({"device": DEVICE, "time": time.isoformat(), "temperature": value})
        return self._client.publish(TELEMETRY, body, qos=1)

    def check(self, url: str, alive: Callable[[], object]) -> None:
        """Takes the results until that of the last window that is over has come: each has come once, of all its
        readings. `alive` raises if the pipeline has ended."""
        expected = {start: (max(v), min(v), len(v)) for start, v in sorted(self._sent.items())[:-1]}
        last = max(expected)
        found: list[tuple[str, tuple[float, float, int]]] = []
        connection = BlockingConnection(url, timeout=self.patience)
        receiver = connection.create_receiver(RESULTS, credit=100)

        def complete() -> bool:
            alive()
            with contextlib.suppress(Timeout):
                message = receiver.receive(timeout=1)  # whose body is a view of it: it must live as long
                row = json.loads(bytes(message.body))
                receiver.accept()
                found.append((row["start"][:19], (row["maximum"], row["minimum"], row["readings"])))
            return any(start == last for start, _ in found)

        wait_for("the last window's result", complete, self.patience)
        connection.close()
        assert sorted(found) == sorted(expected.items())
