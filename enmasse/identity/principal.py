"""Principal: the identity of a user, the same type in every service."""

from __future__ import annotations

from typing import NamedTuple

from enmasse.model.names import DEFAULT_SPACE

ANONYMOUS = "anonymous"
"""Name of the user of clients that have not authenticated, where the configuration allows such clients."""


class Principal(NamedTuple):
    """A user in an address space, with the groups that the user belongs to."""

    name: str
    groups: tuple[str, ...] = ()
    space: str = DEFAULT_SPACE
