"""An address: a name with routing types, the queues bound to it, and how much it holds."""

from __future__ import annotations

from typing import Any, Protocol

from enmasse.identity.owned import space_of_queue
from services.broker.core.limits.settings import AddressSettings
from services.broker.core.limits.space_storage import UNLIMITED, SpaceTotals
from services.broker.core.limits.usage import AddressTotals


class Producer(Protocol):
    """A link that sends to an address."""

    def block(self) -> None:
        """Grant no more credit: the address is full."""

    def unblock(self) -> None:
        """Grant credit again."""

    def closed(self, condition: str, description: str) -> None:
        """Detach the link with this error: the address ends the producer."""


class BrokerAddress(AddressTotals):
    """`explicit`: made by management or by auto-creation; others come and go with their queues (levels and patterns
    below a topic, temporary queues). `root` is the address that settings and size limits come from: a topic's for what
    is below it, else itself. `held`: a link made it and keeps it, with or without queues, until it ends.
    `ring_bytes`: what each of its queues keeps of messages that diverts bring, the newest. `tenant`: whose turns the
    work for its queues takes."""

    __slots__ = (
        "auto_created",
        "blocked",
        "cache",
        "dead_letter_address",
        "expiry_address",
        "expiry_rules",
        "explicit",
        "held",
        "id",
        "name",
        "paused",
        "producers",
        "ring_bytes",
        "root",
        "routing_types",
        "settings",
        "sorting",
        "special",
        "tenant",
    )

    def __init__(
        self,
        name: str,
        routing_types: frozenset[str],
        settings: AddressSettings,
        *,
        id: int = 0,
        explicit: bool = False,
        root: BrokerAddress | None = None,
        auto_created: bool = False,
        touched: set[Any] | None = None,
        space: SpaceTotals | None = None,
    ) -> None:
        super().__init__(touched, space)
        self.name = name
        self.tenant = space_of_queue(name)
        self.routing_types = routing_types
        self.id = id  # of its definition in the store, 0 = not stored
        self.cache = 0  # id of its cache of duplicate ids in the store, 0 = none yet
        self.explicit = explicit
        self.root = root or self
        self.auto_created = auto_created
        self.producers: dict[Producer, None] = {}
        self.blocked = False
        self.paused = False
        self.held = False
        self.sorting = False
        self.apply(settings)

    def apply(self, settings: AddressSettings) -> None:
        """Put settings into force."""
        self.settings = settings
        self.limit_to(settings.max_size_bytes, settings.max_size_messages)
        limit = -1
        if settings.full_policy == "DROP":
            limit = settings.max_size_bytes
        elif settings.full_policy == "PAGE" and settings.page_full_policy == "DROP":
            limit = settings.page_limit_bytes
        self.ring_bytes = limit if limit >= 0 else UNLIMITED
        # None also if it names this address itself.
        self.dead_letter_address = self._elsewhere(settings.dead_letter_address)
        self.expiry_address = self._elsewhere(settings.expiry_address)
        self.expiry_rules = (
            settings.no_expiry
            or settings.expiry_delay >= 0
            or settings.min_expiry_delay >= 0
            or settings.max_expiry_delay >= 0
        )
        self.set_sorting(self.sorting)

    def set_sorting(self, sorting: bool) -> None:
        """Note whether messages wait until their queues are chosen (`Sorting`)."""
        self.sorting = sorting
        self.special = sorting or self.expiry_rules or self.settings.duplicates_by_message_id

    def _elsewhere(self, target: str | None) -> str | None:
        return target if target != self.name else None

    def expiry(self, now: int, asked: int) -> int:
        """Return when a message that arrives now expires (ms of the clock, 0 = never). `asked`: expiry that the
        message states, 0 = no expiry."""
        settings = self.settings
        if settings.no_expiry:
            return 0
        if not asked:
            if settings.expiry_delay >= 0:
                return now + settings.expiry_delay
            if settings.max_expiry_delay >= 0:
                return now + settings.max_expiry_delay
            if settings.min_expiry_delay >= 0:
                return now + settings.min_expiry_delay
            return 0
        if settings.min_expiry_delay >= 0:
            asked = max(asked, now + settings.min_expiry_delay)
        if settings.max_expiry_delay >= 0:
            asked = min(asked, now + settings.max_expiry_delay)
        return asked
