"""Trace context on the wire, and the decision of a process whether it traces."""

from __future__ import annotations

import importlib.abc
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.process.runner import Fatal
from enmasse.process.settings import ServiceSettings
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.services import Options
from enmasse.supervisor.start import check_traces
from enmasse.tracing import setup as tracing
from enmasse.tracing.propagation import carrier, look, look_at_all

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BINARY = b"\0\0" + bytes.fromhex(TRACE) + b"\1" + bytes.fromhex(PARENT) + b"\2\1"
SAMPLER, RATIO = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


def encoded(
    annotations: dict[str, Any] | None = None, properties: dict[str, Any] | None = None, body: Any = "x"
) -> bytes:
    message = Message(body=body, application_properties=properties or {})
    message.annotations = {Symbol(key): value for key, value in (annotations or {}).items()}
    return message.encode()


def of_body(text: str) -> bytes:
    return encoded(body=text)


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (encoded(), None),
        (encoded(properties={"traceparent": SAMPLED}), True),
        (encoded({"traceparent": SAMPLED}), True),
        (encoded(properties={"traceparent": UNSAMPLED}), False),
        (encoded({"traceparent": UNSAMPLED}, {"traceparent": SAMPLED}), False),  # annotations come first
        (encoded({"traceparent": SAMPLED}, {"traceparent": UNSAMPLED}), True),
        (encoded(properties={"traceparent": SAMPLED}, body="x" * 5000), True),
        (of_body("x" * 5000 + "traceparent"), None),
        (of_body("traceparent"), True),  # a short message is searched as a whole: `carrier` decides
    ],
)
def test_one_look(payload: bytes, found: bool | None) -> None:
    assert look(payload) is found
    assert look_at_all([encoded(), payload]) or found is None


@pytest.mark.parametrize(
    ("annotations", "properties", "found"),
    [
        ({}, {}, {}),
        ({}, {"traceparent": SAMPLED, "tracestate": "a=b"}, {"traceparent": SAMPLED, "tracestate": "a=b"}),
        ({"traceparent": UNSAMPLED}, {"traceparent": SAMPLED, "tracestate": "a=b"}, {"traceparent": UNSAMPLED}),
        ({"traceparent": BINARY}, {}, {"traceparent": SAMPLED}),
        ({"traceparent": SAMPLED.encode()}, {}, {"traceparent": SAMPLED}),
        (
            {"traceparent": SAMPLED, "tracestate": {"a": "b", "c": "d"}},
            {},
            {"traceparent": SAMPLED, "tracestate": "a=b,c=d"},
        ),
        ({"traceparent": 7}, {"traceparent": SAMPLED}, {"traceparent": SAMPLED}),
        ({"tracestate": "a=b"}, {}, {}),
        ({}, {"traceparent": SAMPLED, "tracestate": "x" * 10_000}, {"traceparent": SAMPLED}),
    ],
)  # fmt: skip
def test_the_context_of_a_message(
    annotations: dict[str, Any], properties: dict[str, Any], found: dict[str, str]
) -> None:
    assert carrier(Sections(encoded(annotations, properties))) == found


@given(st.binary(max_size=80), st.integers(0, 200))
@example(b"traceparent", 0)
def test_no_bytes_break_the_look(noise: bytes, cut: int) -> None:
    whole = encoded({"traceparent": SAMPLED}, {"a": 1})
    for payload in (noise, whole[:cut], whole[:cut] + noise, noise + b"traceparent" + b"\0" * 3000):
        assert look(payload) in (None, False, True)


def settings(traces: dict[str, str] | None) -> ServiceSettings:
    return ServiceSettings(name="r-0", health="127.0.0.1:1", traces=traces)


def test_no_service_imports_the_sdk_unless_traces_are_on() -> None:
    program = """
import sys
from services.broker import app as broker
from services.mqtt_gateway import app as gateway
from services.router import app as router
from enmasse.process.settings import ServiceSettings
from enmasse.tracing import setup
found = setup.start(ServiceSettings(name="x", health="127.0.0.1:1"), "router", "send", "deliver")
print(found, [name for name in sys.modules if name.startswith(("opentelemetry", "google.protobuf"))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None []\n"


def test_the_sdk_can_be_disabled_by_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "TRUE")
    assert tracing.start(settings({}), "router", "send", "deliver") is None


class Missing(importlib.abc.MetaPathFinder):
    """Lets the packages of OpenTelemetry be missing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {fullname!r}")


def test_the_error_names_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "enmasse.tracing.spans"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(Fatal, match=r"opentelemetry-exporter-otlp-proto-http.*pip install '\.\[otel\]'"):
        tracing.start(settings({}), "router", "send", "deliver")


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({SAMPLER: "always_on"}, f"{SAMPLER}=always_on: .*parentbased_traceidratio"),
        ({SAMPLER: "parentbased_traceidratio", RATIO: "2"}, f"{RATIO}=2"),
        ({SAMPLER: "parentbased_traceidratio", RATIO: "x"}, f"{RATIO}=x"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "many"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "1"}, "max_export_batch_size"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Fatal, match=text):
        tracing.start(settings({}), "router", "send", "deliver", begins=True)


@pytest.mark.parametrize(("ratio", "least", "most"), [("0", 0, 0), ("1", 1000, 1000), ("0.2", 100, 320)])
def test_the_share_of_messages_with_which_a_trace_begins(
    monkeypatch: pytest.MonkeyPatch, ratio: str, least: int, most: int
) -> None:
    monkeypatch.setenv(SAMPLER, "parentbased_traceidratio")
    given = {RATIO: ratio, SAMPLER: "what the environment has goes before"}
    monkeypatch.setenv(RATIO, "")  # so that it is taken back
    monkeypatch.delenv(RATIO)
    found = tracing.start(settings(given), "router", "send", "deliver", begins=True)
    assert found is not None
    singly = sum(found.chosen() for _ in range(1000))
    together = sum(sum(found.chosen() for _ in range(10)) for _ in range(100) if not found.pass_over(10))
    assert least <= singly <= most and least <= together <= most


def test_up_ends_before_it_starts_anything_if_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = Options(config=tmp_path, data=tmp_path, traces=True)
    check_traces(options)
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    check_traces(replace(options, traces=False))
    with pytest.raises(StartError, match=r"pip install '\.\[otel\]'"):
        check_traces(options)
