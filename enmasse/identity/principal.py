"""Principal: the identity of a user, the same type in every service."""

from __future__ import annotations

from typing import NamedTuple

from enmasse.model.names import DEFAULT_SPACE, AddressName, space_prefix, split_name

ANONYMOUS = "anonymous"
"""Name of the user of clients that have not authenticated, where the configuration allows such clients."""


class Principal(NamedTuple):
    """A user in an address space, with the groups that the user belongs to."""

    name: str
    groups: tuple[str, ...] = ()
    space: str = DEFAULT_SPACE

    @property
    def full_name(self) -> str:
        """Return the name that no other user of any space has: `!!SPACE/NAME`, in the default space the name itself."""
        return space_prefix(self.space) + self.name


def named(full_name: str) -> Principal:
    """Return the user of a `full_name`. The groups are not known."""
    space, name = split_name(AddressName(full_name))
    return Principal(name, space=space)
