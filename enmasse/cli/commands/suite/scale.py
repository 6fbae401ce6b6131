"""`enmasse scale SERVICE N`: the number of processes of a service."""

from __future__ import annotations

from typing import Final

import click

from enmasse.cli.common import done, end, port_offset, tell
from enmasse.cli.contexts import suite_orders
from enmasse.process import process_bounds
from enmasse.process.service_table import DOORS, SERVICES
from enmasse.text import did_you_mean, named_as

NAMES: Final = {
    "gateways": "mqtt_gateway",
    **{f"{part}-gateways": door.kind for part, door in DOORS.items()},
    "routers": "router",
}
"""Word for a service on the command line → its name."""


@click.command(name="scale", short_help="Set the number of processes of a service.")
@click.argument("service")
@click.argument("count", required=False, metavar="N")
@port_offset
def command(service: str, count: str | None, offset: int) -> None:
    """Set the number of processes of a service of the running suite: gateways (of MQTT), http-gateways, stomp-gateways,
    coap-gateways, routers.

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
    accepted, message = suite_orders.order(offset, "/api/scale", {"service": kind, "count": bounds.least, **most})
    if not accepted:
        hint = "" if kind in SERVICES else f".{did_you_mean(service, [*NAMES, *SERVICES])}"
        end("suite.scale.refused", f"{service}={count}: {message}{hint}")
    tell(f"{service}={count}: {message}")
    _wait(offset, kind, bounds.least)
    done("", "scaled", service=service, count=count, message=message)


def _wait(offset: int, kind: str, count: int) -> None:
    """Wait until the processes are there, and those that leave have ended; show the progress."""

    def missing(found: list[suite_orders.Component]) -> str | None:
        of_kind = [each for each in found if _is_of(each, kind)]
        waits = [each for each in of_kind if each.get("leaving") or not each.get("ready")]
        if not waits and len(of_kind) >= count:
            return None
        return "; ".join(map(suite_orders.stage, waits))

    line = suite_orders.wait(offset, missing)
    if line is not None:
        end("suite.scale.unfinished", f"{count} processes of {kind} are not ready: {line or 'others start'}")


def _is_of(component: suite_orders.Component, kind: str) -> bool:
    """Return whether a process is of those that the number counts: address spaces may have some of their own."""
    if component.get("kind") != kind:
        return False
    service = SERVICES.get(kind)
    return service is None or not service.numbered or str(component.get("name")).removeprefix(f"{kind}-").isdigit()
