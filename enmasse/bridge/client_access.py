"""Users and their permissions, as the configuration service publishes them, and the clients of a gateway.

No sockets. While there are no users a client has no Rights (None), and nothing is asked for a message.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.identity.allowances import MOVING, Reservation
from enmasse.identity.enforcer import Enforcer
from enmasse.identity.login import Login
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.names import DEFAULT_SPACE

NOBODY: Final = Login(Principal(ANONYMOUS))
"""A client that states no user name."""


class ClientAccess:
    """Users, the live logins of clients by their client identifiers, and what was refused. `enabled` False: users are
    not followed, every client may do everything. `review`: called with the identifier of a client whose login or rights
    may be others now."""

    def __init__(self, enabled: bool, review: Callable[[str], None] = lambda _: None) -> None:
        self.users = UserDirectory(open_to_all=not enabled)
        self.enforcer: Enforcer[str] = Enforcer(self.users, review, _later, time.monotonic)
        self.refused: Counter[str] = Counter()
        """Number of refusals for want of permission, by operation; connect: for a limit."""
        self.dropped = 0
        """Messages that were acknowledged and dropped, because they were not allowed."""

    def rights(self, login: Login) -> Rights | None:
        """Return what a client may do; None: everything. The same object as before if nothing has changed for it."""
        return self.users.rights(login.principal)

    def space_of(self, space: str | None, host: str) -> str:
        """Return the address space that a client means. `space`: of its listener; None: of all."""
        return space or self.users.hosts.get(host) or DEFAULT_SPACE

    async def room(self, login: Login, patience: float = MOVING) -> None:
        """Wait until it is known whether there is room for a connection of this user, and then call `hold` at once.
        `patience`: seconds in which a connection that ends elsewhere may make room."""
        allowances, principal = self.enforcer.allowances, login.principal
        found: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def answered() -> None:
            if not found.done():
                found.set_result(allowances.reserve(principal))

        if allowances.wait(principal, answered, patience=patience):
            (await found).release()

    def hold(self, login: Login, client_id: str) -> None:
        """Count the connection of a client before its session is there; it takes the place of one with the same
        `client_id`. Raises ClientRefused if the user has reached a limit."""
        for reason, text in (
            (Refusal.QUOTA, self.enforcer.too_many(login, client_id)),
            (Refusal.RATE, self.enforcer.too_often(login)),
        ):
            if text:
                self.refused["connect"] += 1
                raise ClientRefused(reason, text)
        self.enforcer.hold(client_id, login)


def _later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)
