"""What several subcommands share: the exit statuses, the --port-offset option, endings with a message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

OK, FAILED, NOT_RUNNING = 0, 1, 2
"""Exit statuses of commands about the suite: done or ready; refused or not ready; nothing runs there (or bad usage)."""

AMQP_PORT, HTTP_PORT = 5672, 8080
MAX_OFFSET = 65535 - HTTP_PORT

F = TypeVar("F", bound=Callable[..., Any])


def port_offset(function: F) -> F:
    """The option --port-offset."""
    return click.option(
        "--port-offset",
        "offset",
        type=click.IntRange(0, MAX_OFFSET),
        default=0,
        metavar="N",
        help="Added to every public port; chooses between suites on one machine.",
    )(function)


def end(message: str, status: int = FAILED) -> NoReturn:
    """Say why on stderr and end with `status`."""
    click.echo(message, err=True)
    sys.exit(status)
