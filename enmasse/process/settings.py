"""A service's settings: one JSON object, read once at the start into a frozen msgspec struct."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeVar

import msgspec

from enmasse.errors import marked
from enmasse.process.places import Places
from enmasse.storage.decoding import decode
from enmasse.text import whole_number

HostPort = Annotated[str, msgspec.Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}$")]
"""`host:port`, an IPv6 host in brackets."""

METRICS_ADDRESSES = 1000
"""Addresses with metrics of their own, unless there is a setting."""

LogLevel = Literal["debug", "info", "warning", "error"]

_AT = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<field>[^`]*)`)?$", re.DOTALL)


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every service has (docs/contracts.md, "A service as a process"). Services inherit from it."""

    name: str
    health: HostPort
    log_level: LogLevel = "warning"
    credential: str | None = None
    """File with the process's own credential (enmasse/identity/processes/credentials.py); None: it authenticates
    nowhere."""
    metrics_secret: str | None = None
    """File with the line that requests for /metrics must have as a bearer token; None: every peer may read them."""
    metrics_addresses: Annotated[int, msgspec.Meta(ge=0)] = METRICS_ADDRESSES
    """Addresses with metrics of their own; the others are counted together."""
    traces: dict[str, str] | None = None
    """None: messages are not traced. Else variables of OpenTelemetry, for those that the environment lacks."""
    audit: str | None = None
    """File to which audit events are appended; None: they are in the log."""


class RoutedSettings(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the services behind the router."""

    router: HostPort | tuple[HostPort, ...]
    """The router's listener for services; of several routers those of all, of which the first one that is there is
    used."""
    configserv: HostPort

    def __post_init__(self) -> None:
        if not self.router:
            raise ValueError("router: name at least one host:port")

    @property
    def routers(self) -> Places:
        """The places of the routers."""
        given = (self.router,) if isinstance(self.router, str) else self.router
        return Places(*map(host_port, given))


NAME = "ENMASSE_NAME"
"""The variable of the environment that replaces `name` of the settings: processes that share a file, as the pods of a
Deployment do, need different names."""


class ServiceSettingsError(ValueError):
    """Error in a settings file, in one line: file, field, reason."""


T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S", bound=ServiceSettings)


def read(path: str | Path, kind: type[T]) -> T:
    """Return the settings in the file `path`. Raises ServiceSettingsError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ServiceSettingsError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return decode(data, kind)
    except msgspec.DecodeError as error:
        found = _AT.match(str(error))
        assert found is not None
        field = (found["field"] or "$").removeprefix("$").removeprefix(".")
        reason = found["reason"][:1].lower() + found["reason"][1:]
        if "matching regex" in reason:  # only HostPort has one
            reason = "expected host:port"
        raise ServiceSettingsError(f"{path}: {f'field {field}: ' if field else ''}{reason}") from None


def load(path: str | Path, kind: type[S]) -> S:
    """Return the settings in a file, with the name that ENMASSE_NAME gives.

    A bad file ends the process: one line on stderr, status 2.
    """
    try:
        return of_process(path, kind)
    except ServiceSettingsError as error:
        end(marked("service.setting.invalid", str(error)))


def of_process(path: str | Path, kind: type[S]) -> S:
    """As `load`, but raises ServiceSettingsError."""
    found = read(path, kind)
    name = os.environ.get(NAME)
    return msgspec.structs.replace(found, name=name) if name else found


def end(reason: str) -> NoReturn:
    """End the process with status 2 and one line for the person who called it."""
    sys.stderr.write(f"{reason}\n")
    raise SystemExit(2)


def host_port(text: str) -> tuple[str, int]:
    """`"127.0.0.1:5672"` → `("127.0.0.1", 5672)`; `"[::1]:5672"` → `("::1", 5672)`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    number = whole_number(port)
    if not colon or number is None or number > 65535:
        raise ValueError(f"{text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), number
