"""`enmasse scale SERVICE=N`: the number of processes of a service."""

from __future__ import annotations

import click

from enmasse.cli.common import end, port_offset


@click.command(name="scale", short_help="Set the number of processes of a service.")
@click.argument("service_count", metavar="SERVICE=N")
@port_offset
def command(service_count: str, offset: int) -> None:
    """Set the number of processes of a service of the running suite.

    Exit status 0: the service has that many. 1: refused, with the reason on stderr. 4: no suite is running.
    """
    from enmasse.cli.http import order

    service, equals, count = service_count.partition("=")
    if not equals or not service or not (count.isascii() and count.isdigit()):
        raise click.BadParameter(f"expected SERVICE=N such as router=1, got {service_count!r}")
    accepted, message = order(offset, "/api/scale", {"service": service, "count": int(count)})
    if not accepted:
        end("suite.scale.refused", f"{service_count}: {message}")
    click.echo(f"{service_count}: {message}")
