"""`enmasse up`: run everything in the foreground."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click

from enmasse.cli.common import COULD_NOT_START, port_offset, say


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
    _occupy_standard_streams()
    _run(config, data, offset, tls_cert, tls_key)


def _run(config: Path, data: Path, offset: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    from enmasse.supervisor import start
    from enmasse.supervisor.errors import StartError
    from enmasse.supervisor.plan import Options

    try:
        options = Options(
            config=config.absolute(),
            data=data.absolute(),
            offset=offset,
            tls_cert=tls_cert.absolute() if tls_cert else None,
            tls_key=tls_key.absolute() if tls_key else None,
        )
    except OSError as error:
        say(f"the directory this was called in is gone ({error.strerror}): call it in another one")
        sys.exit(COULD_NOT_START)
    try:
        start.run(options, sys.stdout or io.StringIO(), say)
    except StartError as error:
        say("\n".join(error.lines))
        sys.exit(COULD_NOT_START)


def _occupy_standard_streams() -> None:
    """Where 0, 1 or 2 is closed, the next file that is opened would be what others take for the terminal."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
