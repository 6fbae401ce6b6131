"""Questions and orders of the console to a broker, whichever product it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from enmasse.control import Artemis


class WaitingMessage(NamedTuple):
    """A waiting message. `size`: bytes, None if that is not known; `expires`: milliseconds since 1970, 0: never.

    `payload`: the message, which is `cut` if its body, which begins at `body`, has more than the bytes asked for; None:
    the broker does not show it. Then `message_id` and `created` (milliseconds since 1970) are known.
    """

    id: int
    size: int | None
    durable: bool
    priority: int
    expires: int
    attempts: int = 0
    payload: bytes | None = None
    body: int = 0
    cut: bool = False
    message_id: str | None = None
    created: int | None = None


class Order(NamedTuple):
    """Work on messages of a queue within its broker. `ids` None: those that the `selector` takes; `limit`: as many of
    them. `to`: queue of a move. Redrive sends only to these addresses: those `here`, on the broker, and `elsewhere`, on
    others."""

    queue: str
    operation: Literal["remove", "move", "redrive"]
    ids: Sequence[int] | None = None
    selector: str = ""
    limit: int | None = None
    to: str = ""
    here: Sequence[str] = ()
    elsewhere: Sequence[str] = ()


class Progress(Protocol):
    """How far work is. `done`: messages so far; the work ends soon when `stopped`."""

    done: int
    stopped: bool


class Product(Protocol):
    """Messages of queues by a broker's management."""

    @property
    def exchanges(self) -> bool:
        """Whether it takes part in moves between brokers."""

    @property
    def apart(self) -> bool:
        """Whether work needs a connection of its own, because it holds up what else is asked over it."""

    async def browse(
        self, management: Artemis, queue: str, after: int, limit: int, most: int, selector: str = ""
    ) -> tuple[list[WaitingMessage], bool]:
        """Return up to `limit` waiting messages behind the one with the id `after` that the `selector` takes, in the
        order in which the broker shows them, and whether there are more. `most`: bytes of a body. Raises
        ControlError."""

    async def work(self, management: Artemis, order: Order, progress: Progress) -> None:
        """Do the work of an order, until it is done or is to stop; an order's limit is for `progress.done`. Raises
        ControlError."""
