"""Logins of clients, as the authentication service states them in its Open (docs/contracts.md, "authserv").

No clock of its own, no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from enmasse.identity.principal import Principal
from enmasse.model.names import DEFAULT_SPACE

SPACES = "enmasse.spaces"
"""Capability that relays of logins desire of the authentication service if they know address spaces."""
LONGEST_WAIT = 600.0
"""Seconds after which the time is looked at again until a token expires, as the clock of the machine may be set."""


class Login(NamedTuple):
    """Identity of a client. `credentials`: as in the feed `permissions` at the login; None: the user has no entry
    there, a token proved its identity. `expires`: seconds since 1970 at which the token expires; None: never.
    `certified`: by a certificate, whatever the user's password is. `token`: name of the API token that has proved it,
    of which `credentials` is the id; empty: none. `read_only`: by it nothing can be changed."""

    principal: Principal
    credentials: str | None = None
    expires: int | None = None
    certified: bool = False
    token: str = ""
    read_only: bool = False


class Certified(NamedTuple):
    """A verified certificate. `user`: the name in it, which need not be that of a known user; empty: it names none, for
    the reason `problem`."""

    user: str
    problem: str = ""

    @property
    def refusal(self) -> str:
        """Return why its client is refused, given that no such user is known."""
        return self.problem or f"the certificate names {self.user!r}, which is no known user"


def stated(properties: Mapping[Any, Any]) -> Login | None:
    """Return the login that properties of the service's Open state; None if they state none."""
    identity = properties.get("authenticated-identity")
    name = identity.get("sub") if isinstance(identity, Mapping) else None
    groups = properties.get("groups")
    groups = groups if isinstance(groups, list | tuple) else ()
    credentials, expires = properties.get("credentials"), properties.get("exp")
    space = properties.get("space", DEFAULT_SPACE)
    if not isinstance(name, str) or not name or not all(isinstance(group, str) for group in groups):
        return None
    if not isinstance(space, str) or (expires is not None and not isinstance(expires, int)):
        return None
    known = str(credentials) if isinstance(credentials, str) else None
    return Login(Principal(str(name), tuple(map(str, groups)), str(space)), known, expires)


def may_be_token(password: str) -> bool:
    """Return whether a password has the form of a token (JWT, RFC 7519): three parts, and the first one is JSON."""
    return password.startswith("eyJ") and password.count(".") == 2  # {" in base64
