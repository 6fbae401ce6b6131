"""The parts of a console, with which the operations of the API work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from enmasse.api.types import Address, Connection, Event, Link, Retained, Session, Subscription, Token, User, Will
from enmasse.model.names import DEFAULT_SPACE, AddressName, LocalName, full_name
from services.console.door.authserv_client import Authserv
from services.console.door.gate import Gate
from services.console.door.under_way import Shares
from services.console.following.configuration import Configuration
from services.console.following.followers import Live
from services.console.following.kept import KeptForClients, space_of_client
from services.console.following.space_rows import NamedRows, PickedRows
from services.console.following.subscribers import Subscribers
from services.console.following.supervisor import Supervisor
from services.console.jobs.jobs import Jobs
from services.console.rest.listing import Lists


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a running console, and what of them one address space has. `supervisor` None: in a cluster."""

    configuration: Configuration
    gate: Gate
    authserv: Authserv
    lists: Lists
    live: Live
    subscribers: Subscribers
    supervisor: Supervisor | None
    jobs: Jobs
    browses: Shares
    kept: KeptForClients
    space: str = DEFAULT_SPACE

    def of(self, space: str) -> Components:
        """Return the same parts, with the rows of another address space."""
        return replace(self, space=space)

    def inside(self, name: str) -> AddressName:
        """Return the full name of an address of the space."""
        return full_name(self.space, LocalName(name))

    @property
    def addresses(self) -> NamedRows[Address]:
        """The addresses of the space, by their names there."""
        return NamedRows(self.configuration.addresses, self.space)

    @property
    def principals(self) -> NamedRows[User]:
        """Users and groups of the space."""
        return NamedRows(self.configuration.principals, self.space)

    @property
    def tokens(self) -> NamedRows[Token]:
        """API tokens of the space's users."""
        return NamedRows(self.configuration.tokens, self.space)

    @property
    def connections(self) -> PickedRows[Connection]:
        """Connections of the space's users; in the default space also those of the suite."""
        return PickedRows(self.live.traffic.connections, self.space, self.live.traffic.space_of)

    @property
    def links(self) -> PickedRows[Link]:
        """Links of these connections."""
        return PickedRows(self.live.traffic.links, self.space, self.live.traffic.space_of_link)

    @property
    def events(self) -> PickedRows[Event]:
        """Events of the space."""
        return PickedRows(self.live.events.rows, self.space, self.live.events.space_of)

    @property
    def sessions(self) -> PickedRows[Session]:
        """MQTT sessions of the space's users."""
        return PickedRows(self.kept.sessions, self.space, space_of_client)

    @property
    def subscriptions(self) -> PickedRows[Subscription]:
        """Subscriptions of the space."""
        return PickedRows(self.kept.subscriptions, self.space, self.kept.space_of_subscription)

    @property
    def retained(self) -> NamedRows[Retained]:
        """Retained messages of the space, by topic."""
        return NamedRows(self.kept.retained, self.space)

    @property
    def wills(self) -> PickedRows[Will]:
        """Wills of the space."""
        return PickedRows(self.kept.wills, self.space, self.kept.space_of_will)
