"""The connection of a client as its protocol sees it, and facts of it."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from enmasse.identity.login import Certified

STUCK: Final = 60.0
"""Seconds that a connection whose end was decided may leave output unread."""


class StompPeer(Struct, frozen=True, kw_only=True):
    """Facts of the connection of a client. `name`: host:port; `number`: different for each connection of the process;
    `host`: named by TLS, empty: none; `space`: of its listener; `any_site`: it may be a web page of any site; `web`: it
    came by WebSocket; `tls`: what its row has of TLS, None: without."""

    name: str
    number: int
    host: str = ""
    space: str | None = None
    certificate: Certified | None = None
    any_site: bool = False
    web: bool = False
    tls: dict[str, str] | None = None


class StompWire(Protocol):
    """Bytes to the client."""

    @property
    def blocked(self) -> bool:
        """The client leaves much unread."""

    @property
    def unsent(self) -> int:
        """Bytes that wait for the client to read."""

    def write(self, data: bytes) -> None:
        """Write bytes."""

    def reading(self, wanted: bool) -> None:
        """Read from the client, or do not."""

    def trust(self) -> None:
        """The client has logged in: it is read in large pieces."""

    def recognised(self) -> None:
        """The client is known, or about to go: it is no longer one that only connects."""

    def close(self) -> None:
        """Close; what was written is sent."""

    def abort(self) -> None:
        """Close at once."""
