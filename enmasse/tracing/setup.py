"""The decision of a process, at its start, whether it traces messages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from enmasse.process.runner import Fatal
from enmasse.process.settings import ServiceSettings

if TYPE_CHECKING:
    from enmasse.tracing.spans import Tracing

PACKAGE = "opentelemetry-exporter-otlp-proto-http"
"""The package without which there are no traces; it brings the SDK."""
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
"""The module of that package which exports."""
INSTALL = "pip install '.[otel]' in the checkout"


def start(settings: ServiceSettings, kind: str, arriving: str, leaving: str, *, begins: bool = False) -> Tracing | None:
    """Return the traces of this process (parameters as those of `Tracing`); None if they are off. Raises Fatal if they
    are on and the package is missing, or a variable of OpenTelemetry cannot be used."""
    if settings.traces is None:
        return None
    for name, value in settings.traces.items():
        os.environ.setdefault(name, value)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    where = f"{kind} {settings.name}"
    try:
        from enmasse.tracing import spans
    except ImportError as error:
        raise Fatal(
            "service.traces.missing", f"{where}: traces need the package {PACKAGE} ({error}); install it: {INSTALL}"
        ) from None
    try:
        return spans.Tracing(kind, settings.name, arriving, leaving, begins=begins)
    except spans.TracesError as error:
        raise Fatal("service.traces.invalid", f"{where}: traces: {error}") from None
