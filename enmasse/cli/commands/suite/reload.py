"""`enmasse reload`: have the running suite read its options again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from enmasse.cli.common import FAILED, UNREACHABLE, done, end, port_offset, report
from enmasse.cli.same_suite import typed
from enmasse.errors import marked

NEEDS_RESTART: Final = 3
SECONDS: Final = 60.0
"""For the answer: the suite waits up to 20 s for its processes."""
_Source = click.core.ParameterSource


@click.command(name="reload", short_help="Have the running suite read its options file again.")
@click.option("--data", "data", type=click.Path(path_type=Path), metavar="DIR",
              help="The suite that runs with this data folder, unless --port-offset is given too.")  # fmt: skip
@port_offset
@click.pass_context
def command(context: click.Context, /, data: Path | None, offset: int) -> None:
    """Have the running suite read its options file again: up.json in its configuration folder, or the file of `enmasse
    up --options`. No connection ends.

    Listeners, origins, limits of MQTT clients, log levels and numbers of processes take effect; the others need a
    restart. If anything in the file is wrong, nothing changes. SIGHUP does the same.

    Exit status 0: what has changed is in force. 1: refused, and nothing was changed, or a process has not done it in
    time. 3: some options need a restart; the others are in force. 4: no suite is running.
    """
    from enmasse.cli.contexts.http import NotRunning, request
    from enmasse.supervisor.plan.datadir import offset_of

    sources = context.get_parameter_source("data"), context.get_parameter_source("offset")
    if data is not None and (sources[1] is _Source.DEFAULT or sources == (_Source.COMMANDLINE, _Source.ENVIRONMENT)):
        found = offset_of(data)
        if found is None:
            text = f"no suite has run with the data folder {data}: name that of `enmasse up`, or leave --data out"
            end("suite.http.unreachable", text, UNREACHABLE)
        offset = found
        _check_suite_of(data, offset)
    try:
        _, answer = request(offset, "POST", "/api/reload", {}, timeout=SECONDS)
    except NotRunning as error:
        end("suite.http.unreachable", str(error), UNREACHABLE)
    if not isinstance(answer, dict):
        end("suite.http.unexpected", "unexpected answer to the order", UNREACHABLE)
    if not answer.get("accepted"):
        end("suite.reload.refused", f"nothing was changed: {answer.get('message')}")
    done(
        typed(str(answer["message"])),
        "reloaded",
        message=answer["message"],
        waiting=answer["waiting"],
        later=answer["later"],
    )
    if answer["waiting"]:
        report(marked("suite.reload.unfinished", "; ".join(answer["waiting"])))
        sys.exit(FAILED)
    if answer["later"]:
        sys.exit(NEEDS_RESTART)


def _check_suite_of(data: Path, offset: int) -> None:
    """End the command unless the suite at the port offset runs with this data folder."""
    from enmasse.cli.contexts.http import NotRunning, suite_info
    from enmasse.text import offset_option

    try:
        used = Path(suite_info(offset)["data_dir"])
    except NotRunning as error:
        end("suite.http.unreachable", f"no suite runs with the data folder {data}: {error}", UNREACHABLE)
    if used.resolve() != data.resolve():
        other = f"At its former ports runs that of {used}, which `enmasse reload{offset_option(offset)}` means."
        text = f"no suite runs with the data folder {data}; nothing was changed. {other}"
        end("suite.http.unreachable", text, UNREACHABLE)
