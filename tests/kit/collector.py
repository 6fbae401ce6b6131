"""A collector of OpenTelemetry's traces: an OTLP/HTTP receiver that decodes and keeps the spans."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.waiting import wait_for


@dataclass(frozen=True)
class Received:
    """A span: ids in hexadecimal digits, `service` of its resource, seconds of its beginning and end."""

    trace: str
    id: str
    parent: str
    service: str
    name: str
    attributes: dict[str, str]
    begin: float
    end: float
    error: bool


class Collector:
    """Listens on loopback. While `hanging` is set, requests get no answer. `authorizations`: values of that header of
    the requests; None: without it."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.authorizations: set[str | None] = set()
        self.requests = 0
        self.hanging = False
        self._go_on = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                collector.authorizations.add(self.headers["Authorization"])
                if collector.hanging:
                    collector._go_on.wait()
                    return
                collector.spans += _decoded(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def of(self, trace: str) -> list[Received]:
        """Return the spans of a trace, the oldest first."""
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.begin)

    def wait(self, trace: str, *names: str) -> list[Received]:
        """Wait until the trace has a span `service: name` for each of `names`, and return all that it has."""
        wanted = sorted(names)

        def there() -> bool:
            found = [f"{span.service}: {span.name}" for span in self.of(trace)]
            return all(found.count(name) >= wanted.count(name) for name in wanted)

        wait_for(there, f"spans {wanted} of {trace}")
        return self.of(trace)

    def release(self) -> None:
        """Answer the requests that hang, and later ones."""
        self.hanging = False
        self._go_on.set()

    def close(self) -> None:
        """End it."""
        self.release()
        self._server.shutdown()
        self._server.server_close()


def _decoded(body: bytes) -> list[Received]:
    found = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(
                    Received(
                        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), service, span.name,
                        {each.key: each.value.string_value for each in span.attributes},
                        span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9, span.status.code == 2,
                    )
                )  # fmt: skip
    return found
