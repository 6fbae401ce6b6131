"""Creating, changing and ending diverts, which bring messages sent to one address into another as well."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from services.broker.core import errors
from services.broker.core.legal_names import check_name
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.condition import Condition
from services.broker.core.persistence import MessageStore
from services.broker.core.routing.bindings import ROUTING_TYPES, Divert
from services.broker.core.routing.definitions import divert_definition
from services.broker.core.routing.route_table import RouteTable

_LONGEST = 2048  # characters of a name, which may be made of two others


class Diverts:
    """One is durable if its destination is. Methods raise BrokerError and SelectorError; nothing is done then."""

    def __init__(
        self,
        table: RouteTable,
        addresses: Mapping[str, BrokerAddress],
        store: MessageStore | None,
        written: Callable[[], None],
    ) -> None:
        """`written`: called after definitions were written to the store."""
        self._table = table
        self._bindings = table.bindings
        self._addresses = addresses
        self._store = store
        self._written = written

    @property
    def by_name(self) -> Mapping[str, Divert]:
        """Return all diverts by name."""
        return self._bindings.diverts

    def to(self, address: BrokerAddress) -> Collection[Divert]:
        """Return the diverts to an address, in the order in which they were made."""
        return self._bindings.diverts_to(address)

    def create(
        self,
        name: str,
        pattern: str,
        forwarding: str,
        *,
        filter: str | None = None,
        routing_type: str = "STRIP",
        routing_name: str = "",
    ) -> Divert:
        """Create a divert: messages to addresses that `pattern` covers also go where messages to `forwarding` go.

        Each queue gets a message once, however many diverts lead there; the message counts to the address it was sent
        to. The divert lasts as long as the address `forwarding`. An existing divert of this name stays unchanged.
        Raises BrokerError without a name.
        """
        if not name:
            raise errors.no_divert_name()
        existing = self.by_name.get(name)
        if existing is not None:
            return existing
        check_name(name, _LONGEST)
        check_name(pattern)
        condition = Condition.of(filter)
        divert = Divert(
            name,
            pattern,
            self._address(forwarding),
            condition,
            routing_type=_known(routing_type),
            routing_name=routing_name,
        )
        self._bindings.add_divert(divert)
        self._table.changed(pattern)
        self._define(divert)
        return divert

    def update(
        self, name: str, *, filter: str | None, forwarding: str | None = None, routing_type: str | None = None
    ) -> Divert:
        """Change the filter (None: no filter), and destination and routing type if given, in one step. Raises
        BrokerError if the divert does not exist."""
        divert = self.by_name.get(name)
        if divert is None:
            raise errors.no_such_divert(name)
        condition = Condition.of(filter)
        address = self._address(forwarding) if forwarding is not None else divert.address
        kind = _known(routing_type) if routing_type is not None else divert.routing_type
        self._bindings.remove_divert(divert)
        divert.address, divert.condition, divert.routing_type = address, condition, kind
        self._bindings.add_divert(divert)
        self._table.changed(divert.pattern)
        self._define(divert)
        return divert

    def destroy(self, name: str) -> None:
        """Remove a divert. Raises BrokerError if it does not exist."""
        divert = self.by_name.get(name)
        if divert is None:
            raise errors.no_divert(name)
        self._remove(divert)

    def end_all_to(self, address: BrokerAddress) -> None:
        """End all diverts to an address that is about to be deleted."""
        for divert in list(self._bindings.diverts_to(address)):
            self._remove(divert)

    def restore(self, divert: Divert) -> None:
        """Restore a divert that was found in the store at the start."""
        self._bindings.add_divert(divert)
        self._table.changed(divert.pattern)

    def _remove(self, divert: Divert) -> None:
        self._bindings.remove_divert(divert)
        self._table.changed(divert.pattern)
        if divert.id and self._store is not None:
            self._store.undefine(divert.id)
            self._written()

    def _address(self, name: str) -> BrokerAddress:
        address = self._addresses.get(name)
        if address is None:
            raise errors.no_address(name)
        return address

    def _define(self, divert: Divert) -> None:
        if self._store is None or not divert.address.id:
            return
        if not divert.id:
            divert.id = self._store.new_id()
        self._store.define(divert.id, divert_definition(divert))
        self._written()


def _known(routing_type: str) -> str:
    if routing_type not in ROUTING_TYPES:
        raise errors.bad_divert_type(routing_type, ROUTING_TYPES)
    return routing_type
