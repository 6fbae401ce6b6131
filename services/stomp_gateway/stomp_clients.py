"""All clients of the gateway: logins, rights and limits of their connections."""

from __future__ import annotations

from typing import Final

from enmasse.bridge.client_logins import LoginAttempt
from enmasse.bridge.client_refused import ClientRefused
from enmasse.identity.login import Login
from enmasse.model.tenants.spaces import meant_host
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_errors import StompError, of_refusal
from services.stomp_gateway.stomp_peers import StompPeer, StompWire
from services.stomp_gateway.stomp_shared import StompShared
from services.stomp_gateway.stomp_transactions import StompSpace

LOGIN_SECONDS: Final = 10.0
"""Seconds from the connection to CONNECTED."""


class StompClients(StompShared):
    """Logs clients in, and looks after them."""

    def __init__(self, most: int, memory: int) -> None:
        super().__init__(most, memory, LOGIN_SECONDS)
        self.clients: dict[str, StompClient] = {}

    def connected(self, wire: StompWire, peer: StompPeer) -> StompClient:
        """Return a new client."""
        return StompClient(self, wire, peer)

    def review(self, name: str) -> None:
        """Apply the permissions that are in force now to a client."""
        client = self.clients.get(name)
        if client is None or client.login is None:
            return
        access = self.bridge.access
        if loss := access.users.loss(client.login):
            client.fail(StompError("access refused", loss))
            return
        client.rights = access.rights(client.login)
        for each in list(client.subscriptions.values()):
            if (
                each.made_address is None
                and client.rights is not None
                and not client.rights.covers("recv", each.local)[0]
            ):
                text = f"no longer a permission to receive from {each.local[:100]!r}"
                client.fail(StompError("access refused", text, condition="amqp:unauthorized-access"))
                return

    def in_use(self) -> set[str]:
        """Return the address spaces that have clients."""
        return {client.space for client in self.clients.values()}

    async def enter(self, client: StompClient, headers: dict[str, str]) -> tuple[Login, StompSpace]:
        """Log a client in. Raises StompError."""

        def take(login: Login, lanes: StompSpace) -> bool:
            client.rights = self.bridge.access.rights(login)
            if not client.ended:
                client.login = login
                self.clients[client.name] = client
            return not client.ended

        try:
            attempt = self._attempt(client, headers)
            return await self.bridge.enter(attempt, client.name, lambda: not client.ended, take)
        except ClientRefused as refused:
            raise of_refusal(refused) from None

    def leave(self, client: StompClient) -> None:
        """Forget a client whose connection has ended."""
        if self.clients.pop(client.name, None) is None or client.login is None:
            return
        self.bridge.access.enforcer.leave(client.name, client.login)
        self.bridge.rates.forget(client)

    def _attempt(self, client: StompClient, headers: dict[str, str]) -> LoginAttempt:
        peer = client.peer
        hosts = self.bridge.access.users.hosts
        named = meant_host(headers.get("host", ""))
        username, passcode = headers.get("login"), headers.get("passcode")
        if not username and passcode:
            username = ""  # a token
        elif not username and not passcode:
            username = None
        return LoginAttempt(
            peer=peer.name,
            space=peer.space,
            host=peer.host if peer.host in hosts or named not in hosts else named,
            username=username,
            password=None if username is None or passcode is None else passcode.encode(),
            certificate=peer.certificate,
            any_site=peer.any_site,
        )
