"""Catalogue of addresses, queues, diverts, and settings by match; it finds the queues of a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Protocol

from enmasse.model.names import space_of
from enmasse.name_tries import ANY, SEPARATOR, NameTrie
from services.broker.core import errors
from services.broker.core.legal_names import ANYCAST, MULTICAST, check_name
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.broker_limits import BrokerLimits
from services.broker.core.limits.settings import SettingsRepository, Value
from services.broker.core.limits.space_storage import StorageShare
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.limits.user_limits import UserLimits
from services.broker.core.messages.condition import Condition
from services.broker.core.persistence import MessageStore
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.bindings import Binding
from services.broker.core.routing.definitions import address_definition, queue_definition, settings_definition
from services.broker.core.routing.diverts import Diverts
from services.broker.core.routing.route_table import RouteTable
from services.broker.core.routing.routes import Route
from services.broker.core.wildcards import is_pattern, parents
from services.broker.selector import compile_selector

_ONLY = {kind: frozenset({kind}) for kind in (ANYCAST, MULTICAST)}
_NO_QUEUES: Mapping[str, Queue] = MappingProxyType({})


class CatalogueHost(Protocol):
    """The part of the broker that the catalogue uses."""

    @property
    def ledger(self) -> BrokerTotals:
        """Totals of the messages held."""

    def next_id(self) -> int:
        """Reserve an id, and return it."""

    def new_queue(self, id: int, name: str, address: BrokerAddress, routing_type: str, **attributes: Any) -> Queue:
        """Make a queue with the attributes that `Queue` takes."""

    def ask_commit(self, urgent: bool) -> None:
        """Commit the definitions that were written."""

    def forget_address(self, address: BrokerAddress) -> None:
        """Forget an address that was deleted."""

    def judge_again(self, address: BrokerAddress) -> None:
        """Judge what waits for room at an address by its new settings."""

    def check_blocked(self) -> None:
        """Block and unblock producers again after a change of limits."""


class Catalogue:
    """Definitions of what is durable are kept in the store, if there is one."""

    def __init__(
        self,
        broker: CatalogueHost,
        store: MessageStore | None,
        defaults: dict[str, Any] | None,
        limits: BrokerLimits,
    ) -> None:
        """`defaults`: address settings for `#`."""
        self.settings = SettingsRepository(defaults)
        self.addresses: dict[str, BrokerAddress] = {}
        self.queues: dict[str, Queue] = {}
        self.subscriptions: dict[str, Queue] = {}  # of clients, by identity
        self.user_limits = UserLimits(limits.max_subscriptions)
        self._broker = broker
        self._touched = broker.ledger.touched
        self._spaces = broker.ledger.spaces
        self._store = store
        self._settings_ids: dict[str, int] = {}  # of the definitions in the store
        self._held: dict[str, dict[object, Callable[[], None]]] = {}
        """Topic that is about to move → what waits to make a durable subscription to it → the function to call then."""
        self._names = NameTrie()  # of the addresses
        self._queues_by_address: dict[str, dict[str, Queue]] = {}
        self._table = RouteTable(self.addresses, self.queues, self.queues_of, self.root_of)
        self.diverts = Diverts(self._table, self.addresses, store, lambda: broker.ask_commit(True))

    def queues_of(self, address: BrokerAddress) -> Mapping[str, Queue]:
        """Return queues bound to the address, by name."""
        return self._queues_by_address.get(address.name, _NO_QUEUES)

    # -- addresses -----------------------------------------------------------------------------------------------------
    def create_address(self, name: str, routing_types: frozenset[str], *, auto_created: bool = False) -> BrokerAddress:
        """Create an address, and return it. Raises BrokerError if it exists or the name cannot be used."""
        existing = self.addresses.get(name)
        if existing is not None and existing.explicit:
            raise errors.address_exists(name)
        check_name(name)
        if is_pattern(name):
            raise errors.bad_name(name)
        address = existing or BrokerAddress(
            name, routing_types, self.settings.get(name), touched=self._touched, space=self._spaces.of(name)
        )
        if not routing_types <= address.routing_types:
            address.routing_types |= routing_types
        address.auto_created = auto_created
        address.explicit = True
        address.root = address
        address.apply(self.settings.get(name))
        self._take_in(address)
        self._define_address(address)
        self._find_roots(name)
        self._kinds_changed(address)
        return address

    def _kinds_changed(self, address: BrokerAddress) -> None:
        """Update routes after an address was made, or its routing types were changed."""
        address.touch()
        self._table.bindings.kinds_changed(address)
        self._table.changed_below(address.name)

    def _define_address(self, address: BrokerAddress) -> None:
        if self._store is None or not address.explicit:
            return
        if not address.id:
            address.id = self._store.new_id()
        self._store.define(address.id, address_definition(address))
        self._store.limit_duplicates(address.id, max(1, address.settings.id_cache_size))
        self._broker.ask_commit(True)

    def delete_address(self, name: str, *, force: bool = False) -> None:
        """Delete an address. Raises BrokerError if it does not exist, or has queues and `force` is not set."""
        address = self.addresses.get(name)
        if address is None:
            raise errors.no_address(name)
        below = self._below(address)
        bound = [queue for a in (address, *below) for queue in list(self.queues_of(a).values())]
        if bound and not force:
            raise errors.address_in_use(name)
        self.diverts.end_all_to(address)
        for queue in bound:
            self.destroy_queue(queue.name, remove_consumers=True)
        for gone in (*below, address):
            self._drop_address(gone)

    def _drop_address(self, address: BrokerAddress) -> None:
        if self.addresses.get(address.name) is not address:
            return
        del self.addresses[address.name]
        self._names.remove(address.name)
        self.diverts.end_all_to(address)
        self._broker.forget_address(address)
        if address.id and self._store is not None:
            self._store.undefine(address.id)
            self._broker.ask_commit(True)
        if address.explicit:
            self._find_roots(address.name)
            self._table.changed_below(address.name)
        else:
            self._table.changed(address.name)  # nothing below goes by it
        for producer in list(address.producers):
            producer.closed("amqp:resource-deleted", f"address {address.name} was deleted")
        address.producers.clear()
        self._let_go(address.name)

    def root_of(self, name: str) -> BrokerAddress | None:
        """Return the configured address that covers `name`: itself, or the nearest topic above it."""
        address = self.addresses.get(name)
        if address is not None:
            return address.root
        for parent in parents(name):
            above = self.addresses.get(parent)
            if above is not None and _is_topic(above):
                return above
        return None

    def _take_in(self, address: BrokerAddress) -> None:
        """Add the address to those that exist."""
        self.addresses[address.name] = address
        address.touch()
        self._names.add(address.name)

    def _implicit(self, pattern: str) -> list[BrokerAddress]:
        """Implicit addresses that the pattern covers: they exist as long as they have queues."""
        return [a for a in map(self.addresses.__getitem__, self._names.covered(pattern)) if not a.explicit]

    def _below(self, address: BrokerAddress) -> list[BrokerAddress]:
        """Return addresses that use the settings and limits of this one."""
        below = self._implicit(address.name + SEPARATOR + ANY)
        return [a for a in below if a.root is address and a is not address]

    def _find_roots(self, name: str) -> None:
        """Find the roots of implicit addresses below an address that was made or deleted."""
        for address in self._implicit(name + SEPARATOR + ANY):
            root = next((a for a in map(self.addresses.get, parents(address.name)) if a and _is_topic(a)), address)
            if root is not address.root:
                address.root = root
                address.apply(self.settings.get(root.name))

    def address_for_queue(self, name: str, routing_type: str, *, create: bool, temporary: bool) -> BrokerAddress:
        """Return the address to bind a queue to. Levels and patterns below a topic are created on demand. Raises
        BrokerError for an unknown address, or one of another routing type."""
        address = self.addresses.get(name)
        if address is not None:
            if routing_type not in address.routing_types:
                if not create:
                    raise errors.wrong_routing_type(name, routing_type, address.routing_types)
                address.routing_types |= {routing_type}
                self._define_address(address)
                self._kinds_changed(address)
            return address
        root = self.root_of(name) if routing_type == MULTICAST else None
        if root is None and create and not temporary and not is_pattern(name):
            return self.create_address(name, _ONLY[routing_type], auto_created=True)
        if root is None and not create:
            raise errors.no_address(name)
        check_name(name)
        settings = self.settings.get(root.name if root is not None else name)
        address = BrokerAddress(
            name,
            _ONLY[routing_type],
            settings,
            root=root,
            auto_created=True,
            touched=self._touched,
            space=self._spaces.of(name),
        )
        self._take_in(address)
        return address

    def create_temporary(self, name: str, routing_type: str, user: str) -> None:
        """Create an address for the life of a link: a queue that outlives its consumers, or a topic, which stores
        nothing while it has no subscribers. `delete_address` ends it. Raises BrokerError if the name cannot be used."""
        address = self.address_for_queue(name, routing_type, create=True, temporary=True)
        address.held = True
        if routing_type == ANYCAST:
            self.create_queue(name, name, ANYCAST, durable=False, temporary=True, user=user)
        self._table.changed(name)

    # -- queues --------------------------------------------------------------------------------------------------------
    def create_queue(
        self,
        address_name: str,
        name: str,
        routing_type: str,
        *,
        durable: bool,
        filter: str | None = None,
        condition: Condition | None = None,
        max_consumers: int | None = None,
        purge_on_no_consumers: bool | None = None,
        exclusive: bool | None = None,
        temporary: bool = False,
        auto_created: bool = False,
        auto_delete: bool = False,
        auto_create_address: bool = False,
        user: str = "",
        subscription: tuple[Any, ...] | None = None,
        client: str | None = None,
        subscriber: str | None = None,
        ring_size: int | None = None,
    ) -> Queue:
        """Create a queue, and return it. `filter`: the selector of messages to its address; or their `condition`.
        `client`: whose durable subscription it is; `subscriber`: whose subscription, durable or not.

        Raises SelectorError, and BrokerError: it exists, no such address, wrong routing type, bad name, too many of
        this client, too much of its user.
        """
        check_name(name)
        existing = self.queues.get(name)
        if existing is not None and not self.may_give_way(existing, address_name, routing_type):
            raise errors.queue_exists(name, existing.address.name)
        condition = condition or Condition.of(filter)
        if subscriber is not None:
            self.user_limits.check(subscriber, condition.weight, address_name, durable=client is not None)
        address = self.address_for_queue(address_name, routing_type, create=auto_create_address, temporary=temporary)
        if existing is not None:
            self._rename(existing)
        settings = address.settings
        stored = durable and not temporary
        queue = self.new_queue(
            self._broker.next_id(),
            name,
            address,
            routing_type,
            durable=stored,
            temporary=temporary,
            condition=condition,
            max_consumers=settings.default_max_consumers if max_consumers is None else max_consumers,
            purge_on_no_consumers=(
                settings.default_purge_on_no_consumers if purge_on_no_consumers is None else purge_on_no_consumers
            ),
            exclusive=settings.default_exclusive if exclusive is None else exclusive,
            auto_created=auto_created,
            auto_delete=auto_delete,
            user=user,
            client=client,
            ring_size=settings.default_ring_size if ring_size is None else ring_size,
        )
        if subscription is not None:
            queue.subscription, queue.identity = subscription, name
        self.add_queue(queue, subscriber)
        self._define_queue(queue)
        return queue

    def may_give_way(self, queue: Queue, address: str, routing_type: str) -> bool:
        """Return whether a queue may get another name because a new one is to have its name: the name of a subscription
        is its client's choice, which keeps no address or session from its queue. (A queue for the same address is that
        subscription, made by hand.)"""
        is_another = routing_type != MULTICAST or queue.address.name != address or queue.name != queue.identity
        return bool(queue.identity) and is_another

    def _rename(self, queue: Queue) -> None:
        """Give the queue of a subscription another name; its client finds it by its identity."""
        mine = self._queues_by_address[queue.address.name]
        del self.queues[queue.name], mine[queue.name]
        names = (f"%{number}.{queue.identity}" for number in count(1))
        queue.name = next(name for name in names if name not in self.queues and name not in self.subscriptions)
        self.queues[queue.name] = mine[queue.name] = queue
        queue.touch()
        self._table.queue_gone()
        self._define_queue(queue)

    def queue_by_name(self, name: str) -> Queue | None:
        """Return the queue that clients reach by its name alone, without its address. A subscription, whose name is its
        client's choice, is not among them."""
        queue = self.queues.get(name)
        return queue if queue is not None and queue.routing_type == ANYCAST else None

    def new_queue(self, id: int, name: str, address: BrokerAddress, routing_type: str, **attributes: Any) -> Queue:
        """Make a queue with the attributes that `Queue` takes; `add_queue` enters it."""
        return self._broker.new_queue(id, name, address, routing_type, **attributes)

    def add_queue(self, queue: Queue, subscriber: str | None) -> None:
        """Add the queue to those that exist, bound to its address. `subscriber`: whose subscription it is."""
        self.queues[queue.name] = queue
        if queue.identity:
            self.subscriptions[queue.identity] = queue
        queue.touch()
        if subscriber is not None:
            words, durable = queue.condition.weight, queue.client is not None
            self.user_limits.subscribed(queue.id, subscriber, words, queue.address.name, durable=durable)
        self._queues_by_address.setdefault(queue.address.name, {})[queue.name] = queue
        if queue.routing_type == MULTICAST:
            self._table.bindings.add(Binding(queue.address.name, queue, queue.condition))
        self._table.changed(queue.address.name)

    def _define_queue(self, queue: Queue) -> None:
        """Write the queue's definition to the store, after it was made or changed."""
        if self._store is not None and queue.durable:
            self._store.define(queue.id, queue_definition(queue))
            self._broker.ask_commit(True)

    def update_queue(self, queue: Queue, changes: dict[str, Any]) -> None:
        """Change attributes by the names of `create_queue`. Raises SelectorError."""
        if "filter" in changes:
            queue.condition.filter = compile_selector(changes["filter"]) if changes["filter"] else None
            self.user_limits.changed(queue.id, queue.condition.weight)
        for name in ("max_consumers", "purge_on_no_consumers", "auto_delete", "auto_created", "user"):
            if name in changes:
                setattr(queue, name, changes[name])
        if "exclusive" in changes:
            queue.dispatcher.exclusive = changes["exclusive"]
        if "ring_size" in changes:
            queue.disposal.ring_size = changes["ring_size"]
        queue.touch()
        queue.dispatcher.settle_mode()
        queue.disposal.settle_ring()
        self._table.changed(queue.address.name)
        self._define_queue(queue)
        queue.dispatcher.dispatch()
        if queue.disposal.ring:
            queue.disposal.drop_oldest()

    def pause_queue(self, queue: Queue, paused: bool) -> None:
        """While paused a queue takes messages and gives none; a durable queue is still paused after a restart."""
        queue.dispatcher.pause(paused)
        self._define_queue(queue)
        queue.dispatcher.dispatch()

    def destroy_queue(self, name: str, *, remove_consumers: bool = False, auto_delete_address: bool = False) -> None:
        """Delete a queue. Raises BrokerError if it does not exist, or has consumers and they are not to be removed."""
        queue = self.queues.get(name)
        if queue is None:
            raise errors.no_queue(name)
        if queue.consumers and not remove_consumers:
            raise errors.queue_in_use(name, len(queue.consumers))
        address = queue.address
        # An address that was made by itself stays when its last queue goes: a topic outlives its subscribers.
        last = len(self.queues_of(address)) == 1 and not address.held
        goes = last and (not address.explicit or (auto_delete_address and address.auto_created))
        if goes:
            self.diverts.end_all_to(address)  # first: who sees the queue gone after a crash has nothing left to end
        self._remove_queue(queue)
        queue.delete(f"Queue was deleted: {name}")
        if goes and not self.queues_of(address):
            self._drop_address(address)

    def _remove_queue(self, queue: Queue) -> None:
        del self.queues[queue.name]
        if queue.identity:
            del self.subscriptions[queue.identity]
        self.user_limits.ended(queue.id)
        mine = self._queues_by_address[queue.address.name]
        del mine[queue.name]
        if not mine:
            del self._queues_by_address[queue.address.name]
        self._table.changed(queue.address.name)
        self._table.queue_gone()
        self._table.bindings.remove(queue)
        if self._store is not None and queue.durable:
            self._store.undefine(queue.id)
            self._broker.ask_commit(True)

    def consumer_left(self, queue: Queue) -> None:
        """Purge or delete the queue of a consumer that has detached, if its attributes ask for it."""
        if queue.deleted or queue.consumers:
            return
        if queue.purge_on_no_consumers:
            queue.disposal.purge()
        if queue.address.held and queue.routing_type == ANYCAST:
            return  # it goes with the link that made it
        if queue.temporary or (queue.auto_delete and not queue.count):
            self.destroy_queue(queue.name, auto_delete_address=queue.auto_delete or queue.temporary)

    def hold(self, address: str, waiting: object, then: Callable[[], None]) -> bool:
        """If no durable subscription to the address may be made, because its topic is about to move, call `then` when
        one may be again, or the topic is gone. Return whether that is so."""
        root = self.root_of(address)
        if root is None or not root.settings.hold_subscriptions:
            return False
        self._held.setdefault(root.name, {})[waiting] = then
        return True

    def hold_no_more(self, waiting: object) -> None:
        """Forget what waits."""
        for held in self._held.values():
            held.pop(waiting, None)

    def _let_go(self, topic: str) -> None:
        for then in self._held.pop(topic, {}).values():
            then()

    # -- settings ------------------------------------------------------------------------------------------------------
    def put_settings(self, match: str, values: dict[str, Value]) -> None:
        """Set and store the address settings of a match; they apply at once."""
        self.settings.put(match, values)
        if self._store is not None:
            id = self._settings_ids.get(match)
            if id is None:
                id = self._settings_ids[match] = self._store.new_id()
            self._store.define(id, settings_definition(match, values))
            self._broker.ask_commit(True)
        self._apply_settings(match)

    def remove_settings(self, match: str) -> None:
        """Remove the address settings of a match, if there are any."""
        if not self.settings.remove(match):
            return
        id = self._settings_ids.pop(match, None)
        if id is not None and self._store is not None:
            self._store.undefine(id)
            self._broker.ask_commit(True)
        self._apply_settings(match)

    def _apply_settings(self, match: str) -> None:
        """Work for the addresses that the match covers, and for those below them."""
        for name in self._names.covered(match):
            address = self.addresses[name]
            if address.root is not address:
                continue  # it goes by the settings of another
            for concerned in (address, *self._below(address)):
                concerned.apply(self.settings.get(name))
                concerned.touch()
                for queue in self.queues_of(concerned).values():
                    queue.disposal.settle_ring()
                self._broker.judge_again(concerned)
            if address.id and self._store is not None:
                self._store.limit_duplicates(address.id, max(1, address.settings.id_cache_size))
            if not address.settings.hold_subscriptions:
                self._let_go(name)
        self._broker.check_blocked()

    def share_storage(self, shares: dict[str, StorageShare]) -> None:
        """Put shares in the storage of address spaces in force, and no others."""
        if changed := self._spaces.give(shares):
            for name, address in self.addresses.items():
                if address.space is not None and space_of(name) in changed:
                    address.look_closely()
        self._broker.check_blocked()

    # -- routes --------------------------------------------------------------------------------------------------------
    def route(self, name: str, routing_type: str | None) -> Route | None:
        """Find the queues for messages to `name` (an address, or `address::queue`); None: there is no such address."""
        return self._table.route(name, routing_type)

    # -- what a restart restores ---------------------------------------------------------------------------------------
    def restore_settings(self, id: int, match: str, values: dict[str, Value]) -> None:
        """Enter address settings found in the store at the start."""
        self._settings_ids[match] = id
        self.settings.put(match, values)

    def restore_address(self, id: int, name: str, routing_types: frozenset[str], *, auto_created: bool) -> None:
        """Enter an address found in the store at the start."""
        address = BrokerAddress(
            name,
            routing_types,
            self.settings.get(name),
            id=id,
            explicit=True,
            touched=self._touched,
            space=self._spaces.of(name),
        )
        address.auto_created = auto_created
        self._take_in(address)
        if self._store is not None:
            self._store.limit_duplicates(id, max(1, address.settings.id_cache_size))


def _is_topic(address: BrokerAddress) -> bool:
    return address.explicit and MULTICAST in address.routing_types
