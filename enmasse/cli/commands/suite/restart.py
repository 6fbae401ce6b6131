"""`enmasse restart COMPONENT…`: processes of the suite end, and start again."""

from __future__ import annotations

import click

from enmasse.cli.common import done, end, port_offset, tell
from enmasse.cli.contexts import suite_orders
from enmasse.cli.contexts.contexts import in_force
from enmasse.text import did_you_mean, named_as

ITSELF = "enmasse"
"""Name of the supervisor, as `enmasse logs` takes it."""


@click.command(name="restart", short_help="Restart a component of the suite.")
@click.argument("components", metavar="COMPONENT...", nargs=-1, required=True)
@port_offset
def command(components: tuple[str, ...], offset: int) -> None:
    """Restart components of the running suite, one after the other: each COMPONENT is a name that `enmasse status`
    shows, or a kind: `router`, `broker`, `mqtt_gateway`. Waits until each is ready again. Ctrl-C ends the wait, and
    what comes after it is not restarted.

    Routers and gateways hand their clients on first, if another one serves the same ports; otherwise clients connect
    again. What brokers store stays, and clients get it when they are ready again.

    Exit status 0: all are ready again. 1: refused, with the reason on stderr, or not within 200 s. 4: no suite is
    running.
    """
    running = suite_orders.components(offset)
    if not running:  # the caller may not see them: the answer to an order says why
        end("suite.restart.refused", suite_orders.order(offset, "/api/restart", {"component": components[0]})[1])
    chosen = _chosen(running, components)
    for found in chosen:
        name = found["name"]
        accepted, message = suite_orders.order(offset, "/api/restart", {"component": name})
        if not accepted:
            end("suite.restart.refused", message)
        tell(message)
        if found["kind"] != "console" or in_force() is None:  # it passes on what a context asks
            _wait(offset, found)
            tell(f"{name} is ready again")
    done("", "restarted", components=[each["name"] for each in chosen])


def _chosen(running: list[suite_orders.Component], words: tuple[str, ...]) -> list[suite_orders.Component]:
    """Return the processes of these names and kinds, each once."""
    names = {each["name"]: each for each in running if not each.get("leaving")}
    kinds = {each["kind"] for each in names.values()}
    chosen = {}
    for given in words:
        word = named_as(given, [*names, *kinds])
        found = [each for each in names.values() if word in (each["name"], each["kind"])]
        if word == ITSELF:
            end("suite.restart.refused", f"{ITSELF} is the suite itself: `enmasse down`, and `enmasse up` again")
        if not found:
            known = f"there are {', '.join(sorted({*names, *kinds}))}.{did_you_mean(word, [*names, *kinds])}"
            end("suite.restart.refused", f"there is no component {word!r}; {known}")
        chosen.update({each["name"]: each for each in found})
    return list(chosen.values())


def _wait(offset: int, before: suite_orders.Component) -> None:
    """Wait until another process of this name is ready."""

    def missing(found: list[suite_orders.Component]) -> str | None:
        now = next((each for each in found if each["name"] == before["name"]), None)
        if now is None:
            return f"{before['name']} is gone"
        is_back = now["ready"] and not now.get("leaving") and now["pid"] != before["pid"]
        return None if is_back else suite_orders.stage(now)

    line = suite_orders.wait(offset, missing)
    if line is not None:
        end("suite.restart.unfinished", line)
