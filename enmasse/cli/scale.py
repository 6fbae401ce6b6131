"""`enmasse scale SERVICE=N`: how many processes a service shall have."""

from __future__ import annotations

import click

from enmasse.cli.common import end, port_offset


@click.command(name="scale", short_help="Say how many processes a service shall have.")
@click.argument("wish", metavar="SERVICE=N")
@port_offset
def command(wish: str, offset: int) -> None:
    """Say how many processes a service of the running suite shall have.

    Status 0 when the service has that many, 1 with the reason on stderr when it cannot, 4 when nothing runs.
    """
    from enmasse.cli.http import order

    service, equals, count = wish.partition("=")
    if not equals or not service or not (count.isascii() and count.isdigit()):
        raise click.BadParameter(f"expected SERVICE=N such as router=1, got {wish!r}")
    accepted, message = order(offset, "/api/scale", {"service": service, "count": int(count)})
    if not accepted:
        end(f"{wish}: {message}")
    click.echo(f"{wish}: {message}")
