"""`enmasse scale SERVICE N`: the number of processes of a service."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from enmasse.cli.common import UNREACHABLE, done, end, port_offset, tell
from enmasse.cli.contexts.contexts import in_force
from enmasse.process import process_bounds
from enmasse.process.service_table import SERVICES
from enmasse.text import did_you_mean, named_as, printable

NAMES: Final = {"gateways": "mqtt_gateway", "http-gateways": "http_gateway", "routers": "router"}
"""Word for a service on the command line → its name."""
WAIT: Final = 200.0
"""Seconds for the processes to come and to go."""
LOOK: Final = 0.5
SAY: Final = 2.0
"""Seconds between two lines about the progress."""


@click.command(name="scale", short_help="Set the number of processes of a service.")
@click.argument("service")
@click.argument("count", required=False, metavar="N")
@port_offset
def command(service: str, count: str | None, offset: int) -> None:
    """Set the number of processes of a service of the running suite: gateways (of MQTT), http-gateways, routers.

    Also in the form SERVICE=N. N as 1..4: as many, within these bounds, as their load needs from then on. Waits until
    all are ready, and those that are too many have handed their clients on and ended. Ctrl-C ends the wait, not what it
    waits for.

    Exit status 0: the service has that many. 1: refused, with the reason on stderr, or not within 200 s. 4: no suite is
    running.
    """
    if count is None:
        service, _, count = service.partition("=")
    try:
        bounds = process_bounds.parse(count)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; write a service and a number, such as gateways 2 or gateways 1..4"
        ) from None
    if not service:
        raise click.BadParameter("there is no service in front of the =; write it, such as gateways=2")
    service = named_as(service, [*NAMES, *SERVICES])
    kind = NAMES.get(service, service)
    most = {} if bounds.fixed else {"most": bounds.most}
    accepted, message = _order(offset, {"service": kind, "count": bounds.least, **most})
    if not accepted:
        hint = "" if kind in SERVICES else f".{did_you_mean(service, NAMES)}"
        end("suite.scale.refused", f"{service}={count}: {message}{hint}")
    tell(f"{service}={count}: {message}")
    _wait(offset, kind, bounds.least)
    done("", "scaled", service=service, count=count, message=message)


def _wait(offset: int, kind: str, count: int) -> None:
    """Wait until the processes are there, and those that leave have ended; show the progress."""
    ends, says = time.monotonic() + WAIT, 0.0
    shown = ""
    while True:
        found = [each for each in _components(offset) if _is_of(each, kind)]
        waits = [each for each in found if each.get("leaving") or not each.get("ready")]
        ready = len(found) - len(waits)
        if not waits and ready >= count:
            return
        line = "; ".join(f"{each['name']} {_stage(each)}" for each in waits)
        if line and line != shown and time.monotonic() >= says:
            tell(printable(line))
            shown, says = line, time.monotonic() + SAY
        if time.monotonic() >= ends:
            end("suite.scale.unfinished", f"{ready} of {count} processes of {kind} are ready: {line or 'others start'}")
        time.sleep(LOOK)


def _stage(component: dict[str, Any]) -> str:
    return str(component["detail"]) or ("leaving" if component.get("leaving") else "not ready")


def _is_of(component: dict[str, Any], kind: str) -> bool:
    """Return whether a process is of those that the number counts: address spaces may have some of their own."""
    if component.get("kind") != kind:
        return False
    service = SERVICES.get(kind)
    return service is None or not service.numbered or str(component.get("name")).removeprefix(f"{kind}-").isdigit()


def _components(offset: int) -> list[dict[str, Any]]:
    if in_force() is not None:
        from enmasse.cli.contexts.console import API, console

        _, answer = console(offset).request("GET", f"{API}components?limit=1000")
        return list(answer["items"]) if isinstance(answer, dict) else []
    _, answer = _asked(offset, "GET", "/api/components")
    return list(answer.get("components", ())) if isinstance(answer, dict) else []


def _order(offset: int, body: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the order is accepted, and the message. Ends the command with status 4 if no suite runs."""
    if in_force() is not None:
        from enmasse.cli.contexts.console import console

        _, answer = console(offset).request("POST", "/api/scale", body)
    else:  # the supervisor answers without the console, too
        _, answer = _asked(offset, "POST", "/api/scale", body)
    if not isinstance(answer, dict):
        end("suite.http.unexpected", "unexpected answer to the order", UNREACHABLE)
    return bool(answer.get("accepted")), str(answer.get("message") or answer.get("detail") or "")


def _asked(offset: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    from enmasse.cli.contexts.http import NotRunning, request

    try:
        return request(offset, method, path, body)
    except NotRunning as error:
        end("suite.http.unreachable", str(error), UNREACHABLE)
