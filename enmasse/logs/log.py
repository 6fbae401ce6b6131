"""Logs as events: structlog, one JSON object a line, on stderr, nothing below the level asked for.

A service imports structlog in `setup`, at its start: an event may be about a lack of files, and then nothing can be
imported. Lines that cannot be written at once wait for a thread, so that a reader of stderr that stands still does not
stop the service: what does not fit into 1 MiB of waiting lines is dropped and counted (event `log.lines.dropped`).
A command, which seldom logs anything, does not call `setup` and imports structlog with its first event.

An event that concerns one tenant has the field `space`; those of the default space are written without it. Names in the
others are those that clients of the space use.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from functools import cache
from typing import Any, Protocol

from enmasse.logs.lines import LineWriter
from enmasse.model.names import DEFAULT_SPACE, SPACE, AddressName, in_space, split_name

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_threshold = 30
_common: dict[str, Any] = {}
_stream: LogStream | None = None
_writer: LineWriter | None = None
_audit_file: str | None = None
LAST_LINES = 1.0
"""Seconds for writing the last lines when a process ends, if there is a reader."""


class Log:
    """Logger with bound ids. `log.warning("agent.router.replaced", router=id)` logs an event of enmasse.logs.events."""

    __slots__ = ("_ids",)

    def __init__(self, ids: dict[str, Any]) -> None:
        self._ids = ids

    def bind(self, **ids: Any) -> Log:
        """Return this logger with further fields in every event."""
        return Log({**self._ids, **ids})

    def debug(self, event: str, **facts: Any) -> None:
        """Log an event at level debug; `facts` are its fields."""
        if _threshold <= 10:
            _emit("debug", event, self._ids, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Log an event at level info; `facts` are its fields."""
        if _threshold <= 20:
            _emit("info", event, self._ids, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Log an event at level warning; `facts` are its fields."""
        if _threshold <= 30:
            _emit("warning", event, self._ids, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Log an event at level error; `facts` are its fields."""
        _emit("error", event, self._ids, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        _emit("error", event, self._ids, {"exc_info": True, **facts})


def get(**ids: Any) -> Log:
    """Return a logger; `ids` are fields of each of its events."""
    return Log(ids)


class LogStream(Protocol):
    """Destination of lines. A line is lost if `write` raises OSError or ValueError."""

    def write(self, text: str, /) -> Any:
        """Write complete lines."""

    def flush(self) -> Any:
        """Pass on what `write` has buffered."""


def audit(event: str, **facts: Any) -> None:
    """Log an event for auditors, at any level: `who`, `from_` (the field `from`), `what`, `outcome` and other fields.

    It is appended to the audit file, if this process has one and it can be written; otherwise it is in the log.
    """
    facts["from"] = facts.pop("from_")
    _audit_logger().info(event, **_local({**_common, "audit": True, **facts}))


def setup(
    level: str = "warning",
    stream: LogStream | None = None,
    audit_file: str | os.PathLike[str] | None = None,
    **ids: Any,
) -> None:
    """Set the level, and the ids (`service=…`) of all events of this process; the library's logging joins in.

    `stream`: instead of stderr. `audit_file`: for audit events.
    """
    global _threshold, _stream, _writer, _audit_file
    _stream = stream
    _audit_file = None if audit_file is None else os.fspath(audit_file)
    if stream is None and _writer is None:
        _writer = LineWriter(sys.stderr.fileno(), _lost)
        atexit.register(_writer.flush, LAST_LINES)
    _threshold = _LEVELS[level]
    _common.clear()
    _common.update(ids)
    root = logging.getLogger()
    root.handlers[:] = [_FromLogging()]
    root.setLevel(_threshold)
    _logger()


def say(text: str) -> None:
    """Write a line of plain text, the last one of a process that ends: wait LAST_LINES for its reader, no longer."""
    if _writer is None:
        sys.stderr.write(f"{text}\n")
        return
    _writer.put(text)
    _writer.flush(LAST_LINES)


def level() -> str:
    """The level below which nothing is logged."""
    return next(name for name, number in _LEVELS.items() if number == _threshold)


def set_level(level: str) -> None:
    """Change the level while the process runs."""
    global _threshold
    _threshold = _LEVELS[level]
    logging.getLogger().setLevel(_threshold)


def _emit(level: str, event: str, ids: dict[str, Any], facts: dict[str, Any]) -> None:
    getattr(_logger(), level)(event, **_local({**_common, **ids, **facts}))


def _local(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line, with names as clients of its address space use them."""
    who, space = facts.get("who"), facts.get("space")
    if isinstance(who, str) and who.startswith(SPACE):  # USER@SPACE: a user of the default space may act in another one
        user = split_name(AddressName(who))
        facts["who"] = f"{user.local}@{user.space}"
    if space is None:
        return facts
    if space in (DEFAULT_SPACE, ""):  # empty: not known
        del facts["space"]
        return facts
    return {name: value if name == "who" else _local_value(space, value) for name, value in facts.items()}


def _local_value(space: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_local_value(space, each) for each in value]
    return in_space(space, value) if isinstance(value, str) else value


@cache
def _logger() -> Any:
    return _wrapped(_Lines())


@cache
def _audit_logger() -> Any:
    return _wrapped(_AuditLines())


def _wrapped(lines: _Lines) -> Any:
    from enmasse.logs.structured import structlog

    return structlog.wrap_logger(
        lines,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    )


class _Lines:
    """Writer of the lines that structlog makes."""

    def msg(self, line: str) -> None:
        if _stream is None and _writer is not None:
            _writer.put(line)
            return
        stream = _stream or sys.stderr
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass  # no reader: a log that cannot be written must not end the service

    debug = info = warning = error = msg


class _AuditLines(_Lines):
    """Writer of the lines for auditors. Several processes append to one file, which may be renamed meanwhile."""

    def msg(self, line: str) -> None:
        if _audit_file is not None:
            try:
                file = os.open(_audit_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    os.write(file, f"{line}\n".encode("utf-8", "backslashreplace"))
                finally:
                    os.close(file)
                return
            except OSError:
                pass  # a full disk: the log may still have a reader
        super().msg(line)

    info = msg


def _lost(count: int) -> None:
    log = get()
    log.warning("log.lines.dropped", count=count)


class _FromLogging(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= 40 else "warning" if record.levelno >= 30 else "info"
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            facts["exc_info"] = record.exc_info
        _emit(level, record.getMessage(), {}, facts)
