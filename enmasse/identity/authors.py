"""Users of what the suite keeps for its clients: wills, retained messages, subscriptions. No sockets."""

from __future__ import annotations

from typing import Final, NamedTuple

from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal, named
from enmasse.model import permission_words
from enmasse.model.names import DEFAULT_SPACE


class Author(NamedTuple):
    """User that published a message. `groups`: those that a token has stated, of a user without an entry in users.json;
    None: the user has, or had, an entry."""

    user: str = ANONYMOUS
    groups: tuple[str, ...] | None = None
    space: str = DEFAULT_SPACE

    @property
    def full_name(self) -> str:
        """Return the user's name for stores and for other services: in the default space the name itself."""
        return Principal(self.user, space=self.space).full_name


NOT_STATED: Final = Author()
"""Author of messages of the time without users."""


def author(full_name: str, groups: tuple[str, ...] | None = None) -> Author:
    """Return the author with this full name."""
    user = named(full_name)
    return Author(user.name, groups, user.space)


def of_login(login: Login) -> Author:
    """Return the author of what a client with this login publishes."""
    user, groups, space = login.principal
    has_entry = login.credentials is not None or login.certified
    return Author(user, None if has_entry or user == ANONYMOUS else groups, space)


def rights(permissions: Permissions, author: Author) -> Rights | None:
    """Return what an author may do now; None: there is no such user in the space of these permissions."""
    if author.space != permissions.space:
        return None
    if not permissions.anonymous and author.groups is None and not permissions.knows(author.user):
        return None
    return permissions.rights(Principal(author.user, author.groups or (), author.space))


def refusal(permissions: Permissions, author: Author, address: str) -> str:
    """Return why an author's message may not be published to `address` now; empty if it may."""
    found = rights(permissions, author)
    if found is None:
        return f"there is no user {author.user}"
    if found.allows("send", address):
        return ""
    return permission_words.refusal(author.user, "send", address[:200])
