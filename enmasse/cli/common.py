"""Shared by all subcommands: exit statuses, the --port-offset option, messages on stderr."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from enmasse.cli.same_suite import typed
from enmasse.errors import marked
from enmasse.text import printable

OK, FAILED, COULD_NOT_START, TIMED_OUT, UNREACHABLE, INTERRUPTED, NOBODY_READS = 0, 1, 2, 3, 4, 130, 141
"""The exit statuses of every command (docs/cli.md). 2 is also wrong usage, as in click; shells show 130 and 141 after
SIGINT and SIGPIPE.
"""

AMQP_PORT, OPERATORS_PORT, MQTT_PORT, HTTP_PORT, ADMIN_PORT = 5672, 5673, 1883, 8080, 8079
MAX_OFFSET = 65535 - 8883
"""8883: the highest public port without `--with stomp`, that of MQTT over TLS."""
MAX_OFFSET_STOMP = 65535 - 61617
"""61617: that of STOMP over WebSocket with TLS."""

MAX_SECONDS = 4_294_967
"""The longest time that AMQP can express (milliseconds in 32 bits): 49 days."""

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """An option in seconds, from `least` to `most`; with `above_zero` not 0."""

    name = "number of seconds"

    def __init__(self, least: float = 0, most: float = MAX_SECONDS, *, above_zero: bool = False) -> None:
        super().__init__(least, most, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of seconds; a value that is not a number within the limits is wrong usage."""
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # neither below nor above any limit
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


class Offset(click.IntRange):
    """A port offset: a whole number with which every public port exists."""

    name = "whole number"

    def __init__(self) -> None:
        super().__init__(0, MAX_OFFSET)


def port_offset(function: F) -> F:
    """The option --port-offset."""
    return click.option(
        "--port-offset",
        "offset",
        type=Offset(),
        default=0,
        metavar="N",
        help=f"Added to every public port (at most {MAX_OFFSET}, with STOMP {MAX_OFFSET_STOMP}); selects one of "
        "several suites on this machine.",
    )(function)


class TlsFiles(NamedTuple):
    """Files in PEM for TLS. `ca`: authorities that are trusted, None: those of the system. `cert`: the command's own
    certificate; `key`: its key, None: it is in the same file."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def over(self, given: TlsFiles) -> TlsFiles:
        """Return these files, with those that are given in their place."""
        return TlsFiles(given.ca or self.ca, given.cert or self.cert, given.key or self.key)


NO_FILES = TlsFiles()
_TLS_OPTIONS = {
    "ca": "Authorities (PEM) that TLS trusts, instead of the system's; that of `up --tls auto`: see `status`.",
    "cert": "Certificate (PEM) to log in with, if no user is given.",
    "key": "Its private key (PEM), if it is not in the same file.",
}


def tls_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --ca, --cert and --key; the function gets them as `tls`."""

    @functools.wraps(function)
    def wrapped(*args: Any, ca: str | None, cert: str | None, key: str | None, **others: Any) -> Any:
        if key is not None and cert is None:
            raise click.UsageError("--key is the key of a certificate: give --cert FILE too")
        if (secret := key or cert) is not None:
            warn_of_key(secret)
        return function(*args, tls=TlsFiles(ca, cert, key), **others)

    for name, text in reversed(_TLS_OPTIONS.items()):
        path = click.Path(exists=True, dir_okay=False)
        click.option(f"--{name}", type=path, metavar="FILE", help=text)(wrapped)
    return wrapped


def warn_of_key(file: str | Path) -> None:
    """Warn if a private key can be read by other users."""
    if reason := readable_by_others(file, "a private key"):
        report(f"warning: {reason}")


def readable_by_others(file: str | Path, content: str = "a password") -> str:
    """Return what is wrong with the permissions of a file that has a password or another secret; empty: nothing."""
    try:
        state = Path(file).stat()
    except OSError:
        return ""  # reading it reports that
    if not stat.S_ISREG(state.st_mode) or not state.st_mode & 0o077:
        return ""
    return f"{file} has {content}, and other users can read it: `chmod 600 {file}`"


def report(line: str) -> None:
    """Write a line, or several, to stderr. Names and texts in it may be those of others: no character of them moves the
    cursor. A failure to write it is ignored: it must not change how the command ends."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(_tame(typed(line)), err=True)


AS_JSON = "enmasse.cli.common.as_json"
"""Key of the value of --json in the `meta` of click's first context, of commands that do something."""


def done(line: str, verb: str, **facts: Any) -> None:
    """Report what the command has done: as a line, or with --json as one object."""
    if _wants_json():
        click.echo(json.dumps({"done": verb, **facts}))
    elif line:
        say(line)


def tell(line: str) -> None:
    """Write a line about what the command does: to stdout, with --json to stderr."""
    report(line) if _wants_json() else say(line)


def _wants_json() -> bool:
    running = click.get_current_context(silent=True)
    return running is not None and bool(running.find_root().meta.get(AS_JSON))


def say(line: str) -> None:
    """Write a line, or several, to stdout. As in `report` no character moves the cursor."""
    click.echo(_tame(line))


def put(content: str) -> None:
    """Write what a client has sent to stdout: unchanged to a file or a program, to a terminal with escapes as in JSON
    for characters that control it, or that show text in another order."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    click.echo(_CONTROLS.sub(_escaped, content) if terminal else content, color=True)  # click removes nothing


def put_bytes(content: bytes) -> None:
    """Write a body to stdout unchanged, which is no terminal then."""
    click.echo(content, nl=False)


_CONTROLS = re.compile("[\0-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Control characters but line ends and tabs, and those that set the direction of writing."""


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _tame(text: str) -> str:
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def end_with(faults: Sequence[str]) -> NoReturn:
    """Report what is wrong in files of the configuration, a line each, and end the command: with status 0 if nothing
    is."""
    for line in faults[:-1]:
        report(line)
    if faults:
        end("configuration.file.invalid", faults[-1])
    sys.exit(OK)


def end(id: str, message: str, status: int = FAILED) -> NoReturn:
    """Write the reason to stderr and end with `status`. `id`: an entry of enmasse/errors.py."""
    report(marked(id, message))
    sys.exit(status)


def shows_colors() -> bool:
    """Return whether colours may be written to a terminal (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
