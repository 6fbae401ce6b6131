"""Commands that texts propose, with the options by which the running command has named its suite and address space."""

from __future__ import annotations

import os
import re

import click

NAMED, SPACE_NAMED = "enmasse.cli.contexts.contexts.named", "enmasse.cli.contexts.contexts.space"
"""Keys of the values of --context and --space in the `meta` of click's first context."""
WITHOUT = frozenset({"init", "up", "restore", "deploy", "spark", "help", "context"})
"""Commands that work on no running suite, so no context applies to them."""
WITH_SPACE = frozenset(
    {
        "address", "user", "connection", "subscription", "retained", "mqtt", "send", "receive", "request", "reply",
        "publish", "subscribe", "bench", "top", "events", "token", "plan",
    }
)  # fmt: skip
"""Commands that work on what one address space has."""
_PROPOSED = re.compile(r"`enmasse (\w+)[^`]*`")


def context_of_option(running: click.Context) -> str | None:
    """Return the context that the command line names by --context; None if only ENMASSE_CONTEXT does."""
    named: str | None = running.find_root().meta.get(NAMED)
    return named if named and os.environ.get("ENMASSE_CONTEXT") != named else None


def typed(text: str) -> str:
    """Return a text in which each `enmasse …` command works on the suite and the address space that the running command
    works on: with the same --context or --port-offset, and --space, unless it states them, or variables of the
    environment do."""
    running = click.get_current_context(silent=True)
    if running is None or "`enmasse " not in text:
        return text
    meta = running.find_root().meta
    suite = ""
    if named := context_of_option(running):
        suite = f" --context {named}"
    elif running.get_parameter_source("offset") is click.core.ParameterSource.COMMANDLINE:
        suite = f" --port-offset {running.params['offset']}"
    space = meta.get(SPACE_NAMED)
    if space and os.environ.get("ENMASSE_SPACE") == space:
        space = None

    def completed(found: re.Match[str]) -> str:
        command, proposed = found[1], found[0][:-1]
        if command in WITHOUT:
            return found[0]
        if suite and "--context" not in proposed and "--port-offset" not in proposed:
            proposed += suite
        if space and command in WITH_SPACE and "--space" not in proposed:
            proposed += f" --space {space}"
        return f"{proposed}`"

    return _PROPOSED.sub(completed, text)
