"""Traces by OpenTelemetry, off by default (docs/metrics.md, "Traces").

`propagation`: trace context in messages. `traced_links`: sessions of the AMQP engine that report what arrives and
leaves. `spans`: the SDK of OpenTelemetry, imported by `setup.start` only, if traces are on. In a process without traces
nothing of this is on the way of a message: its connections have the engine's own sessions.
"""
