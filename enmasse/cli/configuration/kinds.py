"""The kinds of entries that commands change: addresses, flavors, users and address spaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from enmasse.cli.common import end
from enmasse.text import did_you_mean

CONFLICTS = 10
"""Tries to change an entry that others change too."""
UNCHANGED = "nothing was changed. "


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of entries: `plural` names its file and its resource of the API."""

    plural: str
    noun: str

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"{self.plural}.json"

    @property
    def _one(self) -> str:
        return "user or group" if self is USERS else self.noun

    def in_use(self, where: str, name: str) -> NoReturn:
        """End the command: there is an entry of this name."""
        one = f"{'an' if self is ADDRESSES else 'a'} {self._one} {name!r}"
        text = f"{where}: there is {one} already; nothing was changed. Choose another name, or remove it first."
        if self is ADDRESSES:
            end("address.name.in-use", text)
        if self is FLAVORS:
            end("flavor.name.in-use", text)
        if self is SPACES:
            end("space.name.in-use", text)
        end("user.name.in-use", text)

    def unknown(self, where: str, name: str, known: Iterable[str], outcome: str = "") -> NoReturn:
        """End the command: there is no entry of this name."""
        text = f"{where}: there is no {self._one} {name!r}; {outcome}`enmasse {self.noun} list` shows them."
        text += did_you_mean(name, known)
        if self is ADDRESSES:
            end("address.name.unknown", text)
        if self is FLAVORS:
            end("flavor.name.unknown", text)
        if self is SPACES:
            end("space.name.unknown", text)
        end("user.name.unknown", text)


ADDRESSES, FLAVORS, USERS = Kind("addresses", "address"), Kind("flavors", "flavor"), Kind("users", "user")
SPACES = Kind("spaces", "space")
