"""Identity of clients. UDP without DTLS proves nothing: all clients of an address space are its anonymous user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.client_logins import LoginAttempt
from enmasse.bridge.client_refused import ClientRefused
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.identity.login import Login
from enmasse.identity.permissions import Rights
from enmasse.model.names import is_temporary
from enmasse.model.permission_words import Operation
from services.coap_gateway.coap_answers import CoapAnswer, of_refusal
from services.coap_gateway.coap_memory import CoapEndpoint

WAITING: Final = 1000
"""Requests that wait for the login; further ones are refused."""


class CoapVisitor:
    """The anonymous user of an address space. `name`: of its login at this gateway."""

    def __init__(self, name: str, login: Login, lanes: SpaceLanes, rights: Rights | None) -> None:
        self.name = name
        self.login = login
        self.lanes = lanes
        self.rights = rights
        self.space = login.principal.space
        self.user = login.principal.full_name
        self.ended = ""
        """Why its login no longer holds."""

    def may(self, operation: Operation, name: str) -> bool:
        """Return whether it has the permission for a name, or a filter."""
        return self.rights is None or self.rights.covers(operation, name)[0]


class CoapVisitors:
    """Visitors by their address spaces. `reviewed` is called when the login or the rights of one may be others."""

    def __init__(self, reviewed: Callable[[CoapVisitor], None]) -> None:
        self.bridge: Bridge[SpaceLanes]
        self.waiting = 0
        self._reviewed = reviewed
        self._visitors: dict[str, CoapVisitor] = {}
        self._coming: dict[str, asyncio.Future[CoapVisitor]] = {}
        self._number = 0

    def known(self, space: str | None, host: str) -> CoapVisitor | None:
        """Return who a client of a listener is. `space`: of the listener; `host`: that its request names. None: `enter`
        finds out."""
        access = self.bridge.access
        key = access.space_of(space, host)
        found = self._visitors.get(key)
        if found is None:
            return None
        if found.ended or access.users.loss(found.login):
            self._leave(key)
            return None
        found.rights = access.rights(found.login)
        return found

    async def enter(self, endpoint: CoapEndpoint, host: str) -> CoapVisitor:
        """Log in. Raises CoapAnswer."""
        if self.waiting >= WAITING:
            raise CoapAnswer("5.03", "too many clients come at once", retry=1)
        self.waiting += 1
        try:
            await self._configured()
            found = self.known(endpoint.space, host)
            if found is not None:
                return found
            key = self.bridge.access.space_of(endpoint.space, host)
            coming = self._coming.get(key)
            if coming is None:
                coming = self._coming[key] = asyncio.ensure_future(self._enter(key, endpoint, host))
                coming.add_done_callback(lambda _: self._coming.pop(key, None))
            return await asyncio.shield(coming)
        finally:
            self.waiting -= 1

    async def _configured(self) -> None:
        try:
            await self.bridge.configured()
        except ClientRefused as refused:
            raise of_refusal(refused) from None

    async def _enter(self, key: str, endpoint: CoapEndpoint, host: str) -> CoapVisitor:
        self._number += 1
        name = f"coap#{self._number}"

        def take(login: Login, lanes: SpaceLanes) -> bool:
            self._visitors[key] = CoapVisitor(name, login, lanes, self.bridge.access.rights(login))
            return True

        attempt = LoginAttempt(peer=endpoint.name, space=endpoint.space, host=host)
        try:
            await self.bridge.enter(attempt, name, lambda: True, take)
        except ClientRefused as refused:
            raise of_refusal(refused) from None
        return self._visitors[key]

    def _leave(self, key: str) -> None:
        found = self._visitors.pop(key)
        self.bridge.access.enforcer.leave(found.name, found.login)
        found.ended = found.ended or "the login no longer holds"
        self._reviewed(found)

    def review(self, name: str) -> None:
        """Apply the permissions that are in force now."""
        for found in list(self._visitors.values()):
            if found.name == name:
                found.ended = self.bridge.access.users.loss(found.login)
                found.rights = self.bridge.access.rights(found.login)
                self._reviewed(found)

    def in_use(self) -> set[str]:
        """Return the address spaces that have clients."""
        return {each.space for each in self._visitors.values()}

    def check(self, visitor: CoapVisitor, operation: Operation, name: str, endpoint: CoapEndpoint) -> None:
        """Raise CoapAnswer unless the visitor has the permission."""
        if (operation == "send" and is_temporary(name)) or visitor.may(operation, name):
            return
        self.bridge.note_denied(operation, name, peer=endpoint.name, user=visitor.user, lanes=visitor.lanes)
        what = "send to" if operation == "send" else "receive from"
        raise CoapAnswer("4.03", f"the anonymous user has no permission to {what} {name[:100]!r}")
