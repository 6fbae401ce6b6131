"""Client whose bytes a gateway passes on to the router (AMQP over WebSocket), as the gateway's Open states it.

The router believes it of processes with the role of an MQTT gateway. Once it has answered the Open with the capability
RELAY, everything on the connection is the client's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.errors import INVALID_FIELD, AmqpError
from enmasse.amqp.codec.performatives import Open
from enmasse.amqp.codec.types import Symbol
from enmasse.identity.login import Certified

RELAY: Final = Symbol("enmasse.client-relay")
"""Desired by the gateway, offered by a router that takes the client."""
_CLIENT: Final = Symbol("enmasse.client")


class ConnectedClient(NamedTuple):
    """A client by its socket. `address`: host:port."""

    address: str
    tls: tuple[str, str, int] | None = None
    """Version, cipher suite and strength in bits; None: without TLS."""
    server_name: str = ""
    """Host that it has named by TLS (SNI)."""
    certificate: Certified | None = None
    """The verified one that it has presented."""
    space: str | None = None
    """Address space of the listener; None: the client chooses."""
    any_site: bool = False
    """True for what may be a web page of any site: the client has to prove its identity."""

    @property
    def host(self) -> str:
        """Return the address without the port."""
        return self.address.rpartition(":")[0].strip("[]")


def stating(client: ConnectedClient) -> dict[Any, Any]:
    """Return the properties of an Open that state a client."""
    stated: dict[str, Any] = {"address": client.address, "server_name": client.server_name, "any_site": client.any_site}
    if client.tls is not None:
        stated["tls"] = list(client.tls)
    if client.certificate is not None:
        stated["certificate"] = list(client.certificate)
    if client.space is not None:
        stated["space"] = client.space
    return {_CLIENT: stated}


def asks_to_relay(opened: Open) -> bool:
    """Return whether the peer wants to pass on a client."""
    return RELAY in (opened.desired_capabilities or ())


def offers_to_relay(opened: Open) -> bool:
    """Return whether the router takes the client."""
    return RELAY in (opened.offered_capabilities or ())


def relayed(opened: Open) -> ConnectedClient:
    """Return the client that an Open states. Raises AmqpError if it states none."""
    stated = (opened.properties or {}).get(_CLIENT)
    if not isinstance(stated, Mapping):
        raise AmqpError(INVALID_FIELD, f"a connection with {RELAY} states its client in the property {_CLIENT}")
    tls, certificate, space = stated.get("tls"), stated.get("certificate"), stated.get("space")
    try:
        return ConnectedClient(
            str(stated["address"]),
            None if tls is None else (str(tls[0]), str(tls[1]), int(tls[2])),
            str(stated["server_name"]),
            None if certificate is None else Certified(str(certificate[0]), str(certificate[1])),
            None if space is None else str(space),
            bool(stated["any_site"]),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise AmqpError(INVALID_FIELD, f"the property {_CLIENT} states no client: {error!r}") from None
