"""`enmasse scale SERVICE=N`: the number of processes of a service."""

from __future__ import annotations

from typing import Any

import click

from enmasse.cli.common import UNREACHABLE, end, port_offset, say
from enmasse.cli.contexts.contexts import in_force


@click.command(name="scale", short_help="Set the number of processes of a service.")
@click.argument("service_count", metavar="SERVICE=N")
@port_offset
def command(service_count: str, offset: int) -> None:
    """Set the number of processes of a service of the running suite.

    Exit status 0: the service has that many. 1: refused, with the reason on stderr. 4: no suite is running.
    """
    service, equals, count = service_count.partition("=")
    if not equals or not service or not (count.isascii() and count.isdigit()):
        raise click.BadParameter(f"expected SERVICE=N such as router=1, got {service_count!r}")
    accepted, message = _order(offset, {"service": service, "count": int(count)})
    if not accepted:
        end("suite.scale.refused", f"{service_count}: {message}")
    say(f"{service_count}: {message}")


def _order(offset: int, body: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the order is accepted, and the message. Ends the command with status 4 if no suite runs."""
    from enmasse.cli.contexts.console import console
    from enmasse.cli.contexts.http import NotRunning, request

    try:
        if in_force() is not None:
            _, answer = console(offset).request("POST", "/api/scale", body)
        else:  # the supervisor answers without the console, too
            _, answer = request(offset, "POST", "/api/scale", body)
    except NotRunning as error:
        end("suite.http.unreachable", str(error), UNREACHABLE)
    if not isinstance(answer, dict):
        end("suite.http.unexpected", "unexpected answer to the order", UNREACHABLE)
    return bool(answer.get("accepted")), str(answer.get("message") or answer.get("detail") or "")
