"""A broker as the controller knows it. Pure."""

from __future__ import annotations

from enmasse.engines.engine import BrokerEngine
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from services.storage_controller.brokers.address_metrics import Traffic
from services.storage_controller.brokers.broker_contents import BrokerContents, Holding


class ManagedBroker:
    """State of one broker as far as the controller has read it. Decisions read this object and do not change it.

    The inventory sets `contents` and `connected`, `Quiet` sets `cut`, the controller sets `notice` (and `detail` while
    the broker is not connected). The methods below record findings about single addresses.
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
        "held",
        "looks",
        "marked",
        "name",
        "notice",
        "refused",
        "settled",
        "traffic",
    )

    def __init__(self, name: str, flavor: str, engine: BrokerEngine, fresh: bool) -> None:
        self.name = name
        self.flavor = flavor
        self.engine = engine
        self.fresh = fresh
        """Requested during this controller's life, so it cannot hold earlier messages."""
        self.contents: BrokerContents | None = None
        """None until the broker has delivered a complete listing during this controller's life."""
        self.looks = 0
        """Number of listings, or of answers that nothing has changed since the last one."""
        self.traffic: dict[str, Traffic] = {}
        """Counters by address as last listed, of a broker that has no metrics of its own."""
        self.connected = False
        self.cut = False
        """Producers are kept away because the broker is about to end or to be restarted."""
        self.detail = "it has not been reached yet"
        self.refused: dict[AddressName, str] = {}
        """Address → why the broker refused an operation."""
        self.settled: dict[AddressName, Address] = {}
        """Address → the definition that its settings on the broker correspond to, as of this connection."""
        self.held: dict[AddressName, int] = {}
        """Topic that is about to leave the broker → `looks` when new durable subscriptions to it began to wait."""
        self.marked: set[AddressName] = set()
        """Topics that carry our mark, as far as marks were read."""
        self.foreign: set[AddressName] = set()
        """Topics without our mark."""
        self.notice = ""
        """Notice for users about this broker, although it works; empty: none."""

    @property
    def is_known(self) -> bool:
        """Return True if the broker's contents are known."""
        return self.fresh or self.contents is not None

    def holding(self, name: AddressName) -> Holding | None:
        """Return what the broker holds under the name of an address, as last listed; None if nothing."""
        return self.contents.held.get(name) if self.contents is not None else None

    def disconnect(self, detail: str) -> None:
        """Record the end of the conversation: settings read so far may be out of date."""
        self.connected, self.detail = False, detail
        self.settled.clear()
        self.held.clear()
        self.refused.clear()

    def settle(self, name: AddressName, address: Address) -> None:
        """Record that the address has the settings of this definition on the broker, a topic our mark included."""
        self.settled[name] = address
        if address.traits.levels and name not in self.foreign:
            self.marked.add(name)

    def unsettle(self, name: AddressName) -> None:
        """Record that the broker is being given other settings: until it has answered either may be in force, also if
        the change is undone meanwhile."""
        self.settled.pop(name, None)
        self.held.pop(name, None)

    def hold(self, name: AddressName) -> None:
        """Record that new durable subscriptions to the topic wait, or attach where its product cannot have them wait:
        the next listing has the others."""
        self.held[name] = self.looks

    def has_looked(self, name: AddressName) -> bool:
        """Return whether the broker was listed while no durable subscription to the topic could be made."""
        return self.looks > self.held.get(name, self.looks)

    def looked_up(self, name: AddressName, *, ours: bool) -> None:
        """Record whether this topic carries our mark."""
        (self.marked if ours else self.foreign).add(name)

    def deleted(self, name: AddressName) -> None:
        """Record that the address and its settings were deleted, or that the deletion was requested."""
        self.unsettle(name)
        self.marked.discard(name)

    def vanished(self, name: AddressName) -> None:
        """Record that the broker no longer holds this name: a later holder of the name may not be ours."""
        self.marked.discard(name)
        self.foreign.discard(name)
