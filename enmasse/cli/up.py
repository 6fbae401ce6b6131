"""`enmasse up`: run everything in the foreground."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from enmasse.cli.common import end, port_offset

CANNOT_START = 2


def _told_early(*_: object) -> NoReturn:
    """Until the suite has handlers of its own nothing runs yet that were to be ended."""
    sys.exit(0)


@click.command(name="up", short_help="Run everything in the foreground.")
@click.option("--config", "config", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Folder of addresses.json and flavors.json; `enmasse init DIR` makes one.")  # fmt: skip
@click.option("--data", "data", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Where messages, last good configuration and logs are kept; made where missing.")  # fmt: skip
@port_offset
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE",
              help="Certificate (PEM); with it AMQPS is served on 5671.")  # fmt: skip
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key (PEM).")
def command(config: Path, data: Path, offset: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    """Run everything in the foreground, every service a process of its own, on loopback.

    AMQP is on port 5672, AMQPS on 5671 with a certificate, HTTP (/healthz, /api/status, /metrics) on 8080, each plus
    the offset. Prints one line per component and then `EnMasse is ready`. Ends with status 0 on SIGINT or SIGTERM;
    status 2 means that it could not start, and why is on stderr.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _told_early)
    from enmasse.supervisor import start
    from enmasse.supervisor.errors import StartError
    from enmasse.supervisor.plan import Options

    options = Options(
        config=config.absolute(),
        data=data.absolute(),
        offset=offset,
        tls_cert=tls_cert.absolute() if tls_cert else None,
        tls_key=tls_key.absolute() if tls_key else None,
    )
    try:
        start.run(options, sys.stdout, lambda line: click.echo(line, err=True))
    except StartError as error:
        end("\n".join(error.lines), CANNOT_START)
