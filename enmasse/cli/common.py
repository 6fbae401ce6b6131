"""What several subcommands share: the exit statuses, the --port-offset option, endings with a message."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

OK, FAILED, NOT_RUNNING = 0, 1, 2
"""Exit statuses of commands about the suite: done or ready; refused or not ready; nothing runs there (or bad usage)."""

AMQP_PORT, HTTP_PORT = 5672, 8080
MAX_OFFSET = 65535 - HTTP_PORT

MAX_SECONDS = 4_294_967
"""The longest time that AMQP can name (milliseconds in 32 bits), 49 days: nobody waits longer."""

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A time an option takes, in seconds from `least` to `most`; `above_zero`: not none at all."""

    name = "seconds"

    def __init__(self, least: float = 0, most: float = MAX_SECONDS, *, above_zero: bool = False) -> None:
        super().__init__(least, most, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # neither below nor above any limit
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


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
