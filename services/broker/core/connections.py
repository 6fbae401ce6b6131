"""The connections of clients as management shows them, with their sessions, producers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.owned import space_of_queue
from enmasse.identity.refused import Refusals
from enmasse.model.names import DEFAULT_SPACE, space_of


@dataclass(eq=False)
class ProducerInfo:
    """A link to the broker, as management shows it."""

    id: str
    session: str
    address: str  # "" = anonymous relay
    created: int  # ms since 1970
    sent: int = 0
    last_id: str = ""


@dataclass(eq=False)
class ConsumerInfo:
    """A link from the broker, as management shows it."""

    id: str
    session: str
    queue: str
    address: str
    browse: bool
    filter: str
    created: int
    delivering: Callable[[], int]
    sent: int = 0
    words: tuple[str, int] = ("", 0)
    """Container-id of the client, and words of the selector."""


@dataclass(eq=False)
class ConnectionInfo:
    """One connection. `close(description)` ends it with `amqp:connection:forced`."""

    id: str
    remote: str  # "host:port"
    container: str
    user: str
    created: int
    close: Callable[[str], None]
    router: bool = False
    role: str = ""  # of a process of the suite
    octets: Callable[[], tuple[int, int]] = lambda: (0, 0)  # bytes received and sent
    sessions: dict[str, int] = field(default_factory=dict)  # id -> creation time
    producers: dict[str, ProducerInfo] = field(default_factory=dict)
    consumers: dict[str, ConsumerInfo] = field(default_factory=dict)

    def note_refused(
        self, refusals: Refusals, what: str, error: AmqpError, address: str = "", of: Sequence[str] | None = None
    ) -> None:
        """Note that this client was refused something. `of`: user, container-id and host:port of the client behind a
        router; empty: a process, which logs it itself."""
        if of is not None and not of:
            return
        user, container, remote = of or (self.user, self.container, self.remote)
        refusals.note(
            what,
            condition=str(error.condition),
            reason=error.description,
            peer=remote,
            user=user,
            client=container,
            address=address,
            names=[address.partition("::")[0]] if address else (),
            space=_space(address),
        )

    def traffic(self) -> tuple[int, int, int]:
        """Return the number of links, and the bytes received and sent."""
        return len(self.producers) + len(self.consumers), *self.octets()


def _space(address: str) -> str:
    """Return the address space of what a router asks for: of a session's queue, that of its client."""
    return space_of_queue(address) or DEFAULT_SPACE if address.startswith("$sub/") else space_of(address)


def _nothing(_: str) -> None: ...


class Connections:
    """Clients connected now, by connection id."""

    def __init__(self) -> None:
        self.all: dict[str, ConnectionInfo] = {}
        self.total = 0
        self._next = 0

    def new_id(self, prefix: str = "") -> str:
        """Return an id that no other connection of this process has."""
        self._next += 1
        return f"{prefix}{self._next:08x}"

    def add(self, client: ConnectionInfo) -> None:
        """Enter a connection that was opened."""
        self.all[client.id] = client
        self.total += 1

    def remove(self, client: ConnectionInfo) -> None:
        """Remove a connection that has ended."""
        self.all.pop(client.id, None)
        client.close = _nothing  # whoever closes it refers to it
