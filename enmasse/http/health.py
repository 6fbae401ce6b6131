"""Answers of a service over HTTP: /livez, /readyz, /healthz, /metrics (docs/contracts.md, "A service as a process").

The answers are given by a thread (enmasse.http.webserver). It fetches readiness and metrics from the event loop, and
sees by a heartbeat whether the loop turns: a blocked loop shows as not live, not as a missing answer.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from enmasse import __version__, metrics
from enmasse.http.webserver import Bounds, LoopBlocked, Request, Response, WebServer, in_loop, plain
from enmasse.identity.processes.operator import BEARER, read_line
from enmasse.model.loopback import is_loopback, may_be_rebound
from enmasse.network import tls
from enmasse.process import settings
from enmasse.process.runner import cannot_listen

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LAGS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
HEARTBEAT = 1.0
"""Seconds between two beats of the event loop."""
BLOCKED = 10.0
"""Seconds without a beat after which the process is not live."""
ANSWER_SECONDS = 5.0
"""Seconds for the event loop to answer."""

Check = Callable[[], tuple[bool, str]]
"""Return whether the service is ready, and a sentence for people."""


def no_metrics() -> Iterable[Metric]:
    """Return no metrics."""
    return ()


class Heartbeat:
    """Shows from another thread whether an event loop turns. `blocked_seconds`: without a beat it counts as blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, blocked_seconds: float = BLOCKED) -> None:
        self._loop = loop
        self._blocked_seconds = blocked_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self.lag = metrics.Histogram(LAGS)
        """How late the beats were."""
        self._beat()

    def stop(self) -> None:
        """End the beats. After it, `liveness` reports the loop as blocked."""
        if self._timer is not None:
            self._timer.cancel()

    def liveness(self) -> Response:
        """Return the answer to /livez. May be called in any thread."""
        still = time.monotonic() - self._last
        if still < self._blocked_seconds:
            return plain(200, "live")
        return plain(503, f"the event loop has been blocked for {still:.0f} s")

    def _beat(self) -> None:
        now = time.monotonic()
        if self._last:
            self.lag.observe(max(0.0, now - self._last - HEARTBEAT))
        self._last = now
        self._timer = self._loop.call_later(HEARTBEAT, self._beat)


class Health:
    """A service's state for those who operate it: `ready` and `detail` are set as they change, or `check` is asked.

    `metrics` gives the families of /metrics, `endpoints` name → host:port of what clients can reach, `counts` what the
    suite's status shows of it (name → number), `routes` how a router reaches the others (enmasse/live_state.py). All of
    them are called in the event loop. `metrics_secret`: a file with
    the line that requests for /metrics must have as a bearer token; None: all may read them.
    """

    def __init__(
        self,
        address: str,
        metrics: Callable[[], Iterable[Metric]] = no_metrics,
        *,
        check: Check | None = None,
        endpoints: Callable[[], Mapping[str, str]] = dict,
        counts: Callable[[], Mapping[str, int]] = dict,
        routes: Callable[[], Mapping[str, object]] = dict,
        metrics_secret: str | None = None,
        bounds: Bounds | None = None,
        blocked_seconds: float = BLOCKED,
    ) -> None:
        self.address = address
        self.ready = False
        self.detail = "starting"
        self.metrics = metrics
        self.check = check
        self.endpoints = endpoints
        self.counts = counts
        self.routes = routes
        self._metrics_secret = metrics_secret
        self._bounds = bounds or Bounds()
        self._blocked_seconds = blocked_seconds
        self._server: WebServer | None = None
        self._loop: asyncio.AbstractEventLoop
        self._heartbeat: Heartbeat

    async def start(self) -> None:
        """Listen on `address`. Raises process.Fatal if the port cannot be used."""
        host, port = settings.host_port(self.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise cannot_listen(self.address, error, "health") from None
        self._server = WebServer(listening, self._answer, self._bounds)
        self.address = f"{self.address.rpartition(':')[0]}:{self._server.port}"
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(self._loop, self._blocked_seconds)
        self._server.start()

    def set(self, ready: bool, detail: str = "") -> None:
        """Set whether the service is ready, and a sentence for people: why it is not."""
        self.ready = ready
        self.detail = detail

    @property
    def connections(self) -> int:
        """Return the number of peers that are connected now."""
        return self._server.connections if self._server is not None else 0

    async def close(self) -> None:
        """Stop listening and close the connections; without effect before `start`."""
        if self._server is not None:
            self._heartbeat.stop()
            self._server.close()

    # in the thread of a connection

    def _answer(self, request: Request) -> Response:
        on_this_machine = is_loopback(request.peer.rpartition(":")[0].strip("[]"))
        if on_this_machine and may_be_rebound(request.headers.get("Host", "localhost")):
            return plain(403, "the Host header must name loopback: localhost, 127.0.0.1 or [::1]")
        try:
            if request.path == "/livez":
                return self._heartbeat.liveness()
            if request.path in ("/healthz", "/readyz"):
                return in_loop(self._loop, self._readiness, ANSWER_SECONDS)
            if request.path == "/metrics":
                if self._metrics_secret is not None and not _has_secret(request, self._metrics_secret):
                    return plain(401, "needs the header `Authorization: Bearer SECRET` (docs/metrics.md)")
                names = frozenset(request.query.get("name[]", ()))
                families = in_loop(self._loop, lambda: self._families(names), ANSWER_SECONDS)
                return Response(200, metrics.CONTENT_TYPE, metrics.text(families))
        except LoopBlocked as blocked:
            return _state(False, str(blocked), {}, {})
        return plain(404, "try /livez, /readyz, /healthz or /metrics")

    # in the event loop

    async def _readiness(self) -> Response:
        if self.check is not None:
            self.set(*self.check())
        more = {"counts": self.counts(), "routes": self.routes()}
        return _state(self.ready, self.detail, self.endpoints(), more)

    async def _families(self, names: frozenset[str]) -> list[Metric]:
        """Return all families of metrics, or those of these names; a service that yields its families does not make the
        rest."""
        families = chain(self.metrics(), common(self._heartbeat.lag))
        return metrics.select(families, names) if names else list(families)


def common(lag: metrics.Histogram) -> Iterator[Metric]:
    """Yield the metrics that every process has, in the thread of its event loop. `lag`: of the loop."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    yield metrics.gauge(
        "enmasse_build_info", "1; the release and the Python that runs it.",
        [({"version": __version__, "python": version}, 1)],
    )  # fmt: skip
    yield lag.family("enmasse_loop_lag_seconds", "How late the event loop was, once a second.")
    yield metrics.counter(
        "enmasse_loop_busy_seconds_total", "Processor time of the event loop.", metrics.single(time.thread_time())
    )  # fmt: skip
    yield metrics.gauge(
        "enmasse_certificate_expiry_timestamp_seconds", "When the first certificate of a file expires.",
        [({"file": file}, at) for file, at in tls.expiries(tls.used_files())],
    )  # fmt: skip
    yield metrics.gauge(
        "enmasse_certificate_rejected", "1 if a changed file cannot be used, so what it had before stays in use.",
        [({"file": file}, int(rejected)) for file, rejected in sorted(tls.rejections().items())],
    )  # fmt: skip


def _state(ready: bool, detail: str, endpoints: Mapping[str, str], more: Mapping[str, object]) -> Response:
    body: dict[str, object] = {"ready": ready, "detail": detail, "endpoints": endpoints}
    body.update((name, value) for name, value in more.items() if value)
    return Response(200 if ready else 503, "application/json", msgspec.json.encode(body))


def _has_secret(request: Request, file: str) -> bool:
    """Return whether a request has the secret of this file, which is read each time: `enmasse up` may replace it."""
    secret = read_line(Path(file))
    stated = request.headers.get("Authorization", "").encode("utf-8", "replace")
    return secret is not None and hmac.compare_digest(stated, f"{BEARER}{secret}".encode())
