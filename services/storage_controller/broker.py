"""A broker as the controller knows it. Pure."""

from __future__ import annotations

from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from services.storage_controller.contents import Contents, Holding
from services.storage_controller.engines import Engine


class ManagedBroker:
    """What is known of one broker; decisions are made by it, and change nothing of it.

    The inventory sets `contents` and whether it is connected, `Quiet` sets `cut`, the controller `notice` (and `detail`
    while it is not connected). What was found out of single addresses is recorded by the methods below.
    """

    __slots__ = (
        "connected",
        "contents",
        "cut",
        "detail",
        "engine",
        "flavor",
        "foreign",
        "fresh",
        "marked",
        "name",
        "notice",
        "refused",
        "settled",
    )

    def __init__(self, name: str, flavor: str, engine: Engine, fresh: bool) -> None:
        self.name = name
        self.flavor = flavor
        self.engine = engine
        self.fresh = fresh
        """Asked for in this controller's life: it cannot hold what is looked for."""
        self.contents: Contents | None = None
        """None until it has delivered a complete listing in this controller's life."""
        self.connected = False
        self.cut = False
        """Producers are kept off, because it is about to end or to be restarted."""
        self.detail = "it was not reached yet"
        self.refused: dict[AddressName, str] = {}
        """Address → why the broker refused an operation."""
        self.settled: dict[AddressName, Address] = {}
        """Address → what its settings on the broker were made from, or found to hold, since it is connected."""
        self.marked: set[AddressName] = set()
        """Topics that bear our mark, as far as that was looked up."""
        self.foreign: set[AddressName] = set()
        """Topics that do not."""
        self.notice = ""
        """What people should know of it, though it works."""

    @property
    def is_known(self) -> bool:
        """Whether it is known what it holds."""
        return self.fresh or self.contents is not None

    def holding(self, name: AddressName) -> Holding | None:
        """What it holds under the name of an address, as last listed."""
        return self.contents.held.get(name) if self.contents is not None else None

    def disconnect(self, detail: str) -> None:
        """The conversation ended: what was known of settings is of the past."""
        self.connected, self.detail = False, detail
        self.settled.clear()
        self.refused.clear()

    def settle(self, name: AddressName, address: Address) -> None:
        """The settings of the address are made from this, our mark on a topic among them."""
        self.settled[name] = address
        if address.type == "topic" and name not in self.foreign:
            self.marked.add(name)

    def looked_up(self, name: AddressName, *, ours: bool) -> None:
        """Whether this topic bears our mark."""
        (self.marked if ours else self.foreign).add(name)

    def deleted(self, name: AddressName) -> None:
        """The address was deleted with its settings, or the broker was asked for that."""
        self.settled.pop(name, None)
        self.marked.discard(name)

    def vanished(self, name: AddressName) -> None:
        """It holds nothing of this name any more: what comes next may be somebody else's."""
        self.marked.discard(name)
        self.foreign.discard(name)
