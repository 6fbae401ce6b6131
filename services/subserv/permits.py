"""Permissions of users, as the configuration service publishes them."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from msgspec import UnsetType

from enmasse.identity import authors
from enmasse.identity.authors import Author
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.identity.user_directory import UserDirectory
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE, AddressName, split_name
from services.subserv.retained.tree import Retained

SKEW = 2000
"""Milliseconds in which a message is new: its gateway has just allowed it, perhaps by newer permissions than ours."""


class Permits:
    """Decides what users of `$subctrl` may do, and whether retained messages are given to new subscriptions."""

    def __init__(self) -> None:
        self.known = asyncio.Event()
        """The permissions are known."""
        self.plans = SpacePlans()
        self.ending = EndingSpaces()
        self._spaces: Set[str] | None = None
        """The address spaces beside the default one; None: not stated, perhaps as their file is missing."""
        self.carried: Set[str] = frozenset()
        """Address spaces with addresses that brokers carry, perhaps as messages wait there."""
        self._users = UserDirectory()

    def take(self, body: feeds.PermissionChanges) -> None:
        """Put other users and permissions in force."""
        self._spaces = None if isinstance(body.spaces, UnsetType) else body.spaces.keys()
        self.ending.take(body)
        self._users.take(body)
        self.plans.configure(body.spaces or {})
        self.known.set()

    def space_removed(self, space: str) -> bool:
        """Return whether there is no such address space any longer; never because spaces are not stated."""
        return space != DEFAULT_SPACE and self._spaces is not None and space not in self._spaces

    def terminating(self, space: str) -> bool:
        """Return whether a removed space still has addresses, so that it keeps what waits there. A space that the
        configuration service asks about has none: the storage controller has confirmed that."""
        return self.space_removed(space) and space in self.carried and space not in self.ending.now

    @property
    def anonymous(self) -> bool:
        """True if there are no users, in whatever address space: everything is allowed."""
        return self._users.anonymous and not self._users.hosts

    def is_open(self, space: str) -> bool:
        """Return whether everything is allowed in an address space, because there are no users."""
        return self._users.is_open(space)

    def is_empty(self, space: str) -> bool:
        """Return whether an address space has no users, as one that is being restored: nothing there is ended for want
        of its user."""
        return self._users.is_empty(space)

    def rights(self, author: Author) -> Rights | None:
        """Return what a user may do now; None: there is no such user."""
        return authors.rights(self._users.permissions_of(author.space), author)

    def removed(self, user: Principal) -> bool:
        """Return whether there is no such user any longer. The anonymous user may be of the time without users, and
        one without an entry may have a token."""
        users = self._users
        if self.space_removed(user.space):
            return not self.terminating(user.space)
        return self.known.is_set() and not (
            users.is_open(user.space)
            or users.is_empty(user.space)
            or users.may_lack_entry(user.space)
            or user.name == ANONYMOUS
            or users.permissions_of(user.space).knows(user.name)
        )

    def refusal(self, entry: Retained, now: int) -> str:
        """Return why a message is not given to subscribers; empty if it is. `now`: milliseconds since 1970."""
        if entry.author is None or entry.since + SKEW > now:
            return ""
        return authors.refusal(
            self._users.permissions_of(entry.author.space), entry.author, split_name(AddressName(entry.name)).local
        )
