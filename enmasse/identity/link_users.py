"""Users of links that routers pass on to services."""

from __future__ import annotations

from enmasse.amqp.termini import passed_on_parts
from enmasse.identity.authors import NOT_STATED, Author
from enmasse.identity.owned import owner


def of_link(name: str) -> Author:
    """Return the user of the client for which a router has passed on a link of this name. The groups of a user without
    an entry are not known."""
    parts = passed_on_parts(name)
    if parts is None:
        return NOT_STATED
    found = owner(parts[1])
    return Author(found.user, space=found.space)
