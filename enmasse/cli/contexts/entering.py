"""The address space that a command for messages works in (docs/spaces.md, "Which space a client means").

Every protocol has one way: the name of the user ends with `@SPACE`. Clients without a name state the space as the host
of AMQP: the client of a certificate, and the operator of this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import click

from enmasse.cli.common import COULD_NOT_START, end
from enmasse.cli.contexts.target_server import TargetServer
from enmasse.model.names import space_error, user_in_space

S = TypeVar("S", bound=TargetServer)


def entered(server: S, space: str | None) -> S:
    """Return the server for a client in this address space; None: in that of the user. Ends the command if it has
    neither a user nor another way into the space."""
    if space is None:
        return server
    if fault := space_error(space):
        raise click.BadParameter(f"{space!r}: {fault}", param_hint="--space")
    amqp = server.scheme.startswith("amqp")
    if server.user is None and not (amqp and (server.certified or server.offset is not None)):
        text = f"{server}: only a user of the address space {space!r} can do this: set ENMASSE_USER and "
        text += "ENMASSE_PASSWORD_FILE, or write user:password@ in the URL"
        end("space.user.missing", text, COULD_NOT_START)
    return replace(server, user=None if server.user is None else user_in_space(server.user, space), space=space)
