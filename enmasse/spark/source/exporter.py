"""Metrics of a source for Prometheus: `GET /metrics` on a port of loopback, in the process that plans batches.

Spark does not tell a source its query; a spool belongs to one query, so its folder is the label. Values are read from
the spool when they are asked for. docs/metrics.md has the meaning of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.metrics import Samples, counter, gauge
from enmasse.spark.receiver.receivers import STATES, Receivers
from enmasse.spark.source.lag import Lag

if TYPE_CHECKING:
    from prometheus_client.core import Metric

HOST = "127.0.0.1"


class MetricsExporter:
    """Server of the metrics of one source, from its construction on until `close`."""

    def __init__(
        self, port: int, name: str, folder: Path, receivers: Receivers, processed: Callable[[], Sequence[int]]
    ) -> None:
        """name: of the spool. processed: gives one past the last record of each partition that Spark has processed.

        Raises OSError if the port cannot be listened on.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        self._name, self._folder, self._receivers, self._processed = name, folder, receivers, processed
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(port, HOST, registry)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield the families. Called by prometheus-client, in a thread for each request."""
        processed, heads = self._processed(), self._receivers.heads()
        labels = [{"spool": self._name, "partition": str(n)} for n in range(len(heads))]
        now = time.time_ns() // 1_000_000
        lags = [
            Lag(self._folder, n).report([end], [head], now)
            for n, (end, head) in enumerate(zip(processed, heads, strict=True))
        ]

        def each(values: Sequence[float]) -> Samples:
            return zip(labels, values, strict=True)

        states = [
            ({**one, "state": state}, float(process.state == state))
            for one, process in zip(labels, self._receivers.processes, strict=False)  # further ones have no receiver
            for state in STATES
        ]
        yield counter("enmasse_spark_spooled_total", "Messages taken into the spool.", each(heads))
        yield counter("enmasse_spark_processed_total", "Messages in batches that have ended.", each(processed))
        yield gauge(
            "enmasse_spark_behind", "Messages spooled and not processed.", each([lag["behind"] for lag in lags])
        )
        ages = [lag["oldestSeconds"] or 0.0 for lag in lags]
        yield gauge("enmasse_spark_oldest_seconds", "Age of the oldest of them.", each(ages))
        yield gauge("enmasse_spark_spool_bytes", "Bytes of the spool.", each([lag["spoolBytes"] for lag in lags]))
        if (available := self._receivers.available) is not None:
            at_address = [({"spool": self._name}, float(available))]
            yield gauge("enmasse_spark_available", "Messages at the address and not spooled.", at_address)
        without = [({"spool": self._name}, float(self._receivers.without_id))]
        yield counter("enmasse_spark_without_id_total", "Messages received without a message-id.", without)
        yield gauge("enmasse_spark_receiver", "State of the receiver: 1 for the one it is in.", states)
        yield gauge(
            "enmasse_spark_spool_full",
            "1 while the spool is at its limit and nothing is received.",
            zip(labels, [float(process.full) for process in self._receivers.processes], strict=False),
        )
