"""Spans by the SDK of OpenTelemetry, exported over OTLP/HTTP from a thread of the SDK's.

What is bounded: spans that are not exported yet (OTEL_BSP_MAX_QUEUE_SIZE, 2,048 by default). Further ones are dropped
and counted; so a collector that is slow or absent costs spans, never messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from enmasse import __version__
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.endpoint import Link
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.logs import log
from enmasse.metrics import counter
from enmasse.tracing.propagation import carrier
from enmasse.tracing.traced_links import TracedSession

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SAMPLER: Final = "OTEL_TRACES_SAMPLER"
ONLY_TRACED: Final = "parentbased_always_off"
"""The sampler unless the environment has one: no trace begins here."""
RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
QUEUE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
CLOSING: Final = 2.0
"""Seconds that the last spans may take; the thread that a collector holds longer ends with the process."""
MAX_TEXT: Final = 255
"""Characters of an attribute that a client has written."""
_ROOM: Final = 256  # bytes that a message may grow by, when a trace begins with it
_TYPES: Final = {"send": "send", "deliver": "process"}  # operation → messaging.operation.type; `store` has none

_log = log.get()


class TracesError(ValueError):
    """A variable of OpenTelemetry that cannot be used: its name and why."""


class Exporter(SpanExporter):
    """Exports as `inner` does. Runs in the thread of the batch processor."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.exported = 0
        self.failed = 0
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As SpanExporter.export. Logs the first failure, and the end of failures."""
        try:
            result = self._inner.export(spans)
        except Exception as error:
            result, reason = SpanExportResult.FAILURE, str(error)
        else:
            reason = "no answer that accepts them"
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            _log.warning("traces.export.failed", spans=len(spans), reason=reason)
        elif self._failing and not failing:
            _log.info("traces.export.resumed")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        """As SpanExporter.shutdown."""
        self._inner.shutdown()


class Processor(BatchSpanProcessor):
    """Counts the spans that have no room, where the SDK would only log each."""

    def __init__(self, exporter: Exporter, most: int) -> None:
        super().__init__(exporter, max_queue_size=most)
        self._exporter = exporter
        self._most = most
        self._taken = 0
        self.dropped = 0

    def has_room(self) -> bool:
        """Return whether a further span has room; otherwise count it as dropped."""
        room = self._taken - self._exporter.exported - self._exporter.failed < self._most
        self.dropped += not room
        return room

    def on_end(self, span: ReadableSpan) -> None:
        """As SpanProcessor.on_end."""
        if self.has_room():
            self._taken += 1
            super().on_end(span)


class Tracing:
    """The traces of one process: `kind` is its service, `arriving` and `leaving` the operations on its connections.
    `begins`: traces may begin with messages that arrive, in the share that the sampler states. Raises TracesError."""

    def __init__(self, kind: str, name: str, arriving: str, leaving: str, *, begins: bool = False) -> None:
        self.arriving = arriving
        self.leaving = leaving
        for each in ("opentelemetry.exporter", "opentelemetry.sdk", "opentelemetry"):
            logger = logging.getLogger(each)  # our events say it, once
            logger.propagate = False
            logger.addHandler(logging.NullHandler())
        self._ratio = _ratio() if begins else 0.0
        self._left = self._draw()
        own = {"service.name": kind, "service.namespace": "enmasse", "service.instance.id": name}
        resource = Resource({**own, "service.version": __version__}).merge(OTELResourceDetector().detect())
        try:
            self._exporter = Exporter(OTLPSpanExporter())
            self._processor = Processor(self._exporter, int(os.environ.get(QUEUE) or 2048))
        except ValueError as error:
            raise TracesError(f"OTEL_…: {error}") from None
        # The sampler of the environment is `chosen`, cheaper than the SDK's, which would be asked with a span in hand.
        self._provider = TracerProvider(ParentBased(ALWAYS_ON), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("enmasse", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def session(self, connection: Connection, channel: int) -> TracedSession:
        """Make a session: the `session_type` of a connection that is traced."""
        return TracedSession(connection, channel, self)

    # -- for sessions -------------------------------------------------------------------------------------------------

    def chosen(self) -> bool:
        """As links.Traces. Counts down to the next one; no message costs a random number."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._draw()
        return True

    def pass_over(self, messages: int) -> bool:
        """As links.Traces."""
        if self._left <= messages:
            return False
        self._left -= messages
        return True

    def _draw(self) -> float:
        """Return how many messages there are up to the next chosen one."""
        if self._ratio <= 0:
            return math.inf
        if self._ratio >= 1:
            return 1
        return 1 + int(math.log(1 - random.random()) / math.log(1 - self._ratio))

    def begin(self, operation: str, link: Link, payload: bytes) -> Span | None:
        """As links.Traces. While there is no room, a span is not begun: it would cost its time for nothing."""
        if not self._processor.has_room():
            return None
        sections = Sections(payload)
        try:
            parent = self._propagator.extract(carrier(sections))
        except AmqpError:
            return None
        if not get_current_span(parent).get_span_context().trace_flags.sampled:
            return None
        return self._start(operation, link, sections, parent)

    def begin_trace(self, link: Link, payload: bytes) -> tuple[Span | None, bytes]:
        """As links.Traces. No trace begins with messages between services."""
        if not self._processor.has_room():
            return None, payload
        sections = Sections(payload)
        try:
            address = _address(self.arriving, link)
            internal = ("$", "_")
            if address.startswith(internal) or _destination(address, sections).startswith(internal):
                return None, payload
            if 0 < link.max_message_size < len(payload) + _ROOM:
                return None, payload
            span = self._start(self.arriving, link, sections, Context())
            context: dict[str, str] = {}
            self._propagator.inject(context, set_span_in_context(span, Context()))
            annotations = {Symbol(key): value for key, value in context.items()}
            return span, sections.replace_annotations({**sections.annotations, **annotations})
        except AmqpError:  # the router or broker refuses it
            return None, payload

    def _start(self, operation: str, link: Link, sections: Sections, parent: Context) -> Span:
        attributes: dict[str, Any] = {
            "messaging.system": "enmasse",
            "messaging.operation.name": operation,
            "network.protocol.name": "amqp",
            "network.protocol.version": "1.0",
        }
        if operation in _TYPES:
            attributes["messaging.operation.type"] = _TYPES[operation]
        address, _, subscription = _address(operation, link).partition("::")
        if subscription:
            attributes["messaging.destination.subscription.name"] = subscription[:MAX_TEXT]
        destination = ""
        with contextlib.suppress(AmqpError):  # of a large message there may be less
            destination = attributes["messaging.destination.name"] = _destination(address, sections)
            properties = sections.properties
            for name, value in (
                ("messaging.message.id", properties.message_id),
                ("messaging.message.conversation_id", properties.correlation_id),
            ):
                if value is not None:
                    attributes[name] = (value.hex() if isinstance(value, bytes) else str(value))[:MAX_TEXT]
        remote = link.session.connection.remote_open
        if remote is not None:
            attributes["messaging.client.id"] = remote.container_id[:MAX_TEXT]
        kind = SpanKind.PRODUCER if operation == "deliver" else SpanKind.SERVER
        return self._tracer.start_span(f"{operation} {destination}".rstrip(), parent, kind, attributes)

    def end(self, span: Span, state: Any) -> None:
        """As links.Traces."""
        outcome = "lost" if state is None else type(state).__name__.lower()
        span.set_attribute("enmasse.outcome", outcome)
        if type(state) is Rejected:
            error = state.error
            span.set_status(Status(StatusCode.ERROR, None if error is None else str(error.description)[:MAX_TEXT]))
            if error is not None:
                span.set_attribute("error.type", str(error.condition)[:MAX_TEXT])
        span.end()

    # -- for the process ----------------------------------------------------------------------------------------------

    def families(self) -> Iterator[Metric]:
        """Yield what has become of the spans."""
        exporter = self._exporter
        yield counter(
            "enmasse_trace_spans_total",
            "Spans of traced messages: exported, failed (the collector did not take them), dropped (no room).",
            [
                ({"result": "exported"}, exporter.exported),
                ({"result": "failed"}, exporter.failed),
                ({"result": "dropped"}, self._processor.dropped),
            ],
        )

    async def close(self) -> None:
        """Export the last spans, if that takes no longer than CLOSING."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def work() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done.cancel)

        threading.Thread(target=work, name="last spans", daemon=True).start()
        await asyncio.wait((done,), timeout=CLOSING)


def _ratio() -> float:
    """Return the share of messages without context with which a trace begins, by the sampler that the environment
    names. Raises TracesError."""
    sampler = os.environ.get(SAMPLER) or ONLY_TRACED
    if sampler == ONLY_TRACED:
        return 0.0
    if sampler == "parentbased_always_on":
        return 1.0
    if sampler != "parentbased_traceidratio":
        raise TracesError(
            f"{SAMPLER}={sampler}: a message with a context is traced as its sender says, so this is one of"
            f" {ONLY_TRACED}, parentbased_traceidratio and parentbased_always_on"
        )
    text = os.environ.get(RATIO) or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise TracesError(f"{RATIO}={text}: write a number from 0 to 1")
    return ratio


def _address(operation: str, link: Link) -> str:
    """Return the address at this process's end of the link, empty for the anonymous relay."""
    terminus = link.source if operation == "deliver" else link.target
    address = getattr(terminus, "address", None)
    return str(address) if isinstance(address, str) else ""


def _destination(address: str, sections: Sections) -> str:
    """Return the address of a message: that of its link, or the one that the message states on the anonymous relay and
    on links of services (`$sub/…`, the queue of an MQTT session). Raises AmqpError."""
    if not address or address.startswith("$"):
        stated = sections.annotations.get(ORIGINAL_ADDRESS) or sections.to
        address = str(stated) if isinstance(stated, str) else address
    return address[:MAX_TEXT]
