"""What exists: addresses, queues bound to them, settings by match, and the way from a name to its queues."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

from services.broker.core import errors
from services.broker.core.broker_address import BrokerAddress
from services.broker.core.duplicates import DuplicateIds
from services.broker.core.persistence import MessageStore
from services.broker.core.queue import Queue
from services.broker.core.routes import Route
from services.broker.core.settings import SettingsRepository, Value
from services.broker.core.stored_message import STORED, StoredMessage
from services.broker.core.wildcards import ANY, SEPARATOR, NameTree, PatternTree, is_pattern, parents
from services.broker.selector import compile_selector

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
MANAGEMENT = "activemq.management"
_MAX_ROUTES = 20_000
_MAX_NAME = 1024


class Topology:
    """The part of a Broker that is not about messages. Definitions of what is durable are kept in the store."""

    def __init__(self, store: MessageStore | None, defaults: dict[str, Any] | None) -> None:
        self.store = store
        self.settings = SettingsRepository(defaults)
        self.addresses: dict[str, BrokerAddress] = {}
        self.queues: dict[str, Queue] = {}
        self.version = 0  # of the bindings
        self.max_subscriptions = -1  # durable ones that a client may have, -1 = no limit
        self._subscriptions: Counter[str] = Counter()  # durable ones by client
        self.duplicates = DuplicateIds()
        self.settings_ids: dict[str, int] = {}  # of the definitions in the store
        self._bindings: PatternTree[Queue] = PatternTree()
        self._names = NameTree()  # of the addresses
        self._routes: dict[tuple[str, str | None], Route] = {}

    # What a Broker adds to it.
    def next_id(self) -> int:
        raise NotImplementedError

    def new_queue(self, id: int, name: str, address: BrokerAddress, routing_type: str, **attributes: Any) -> Queue:
        raise NotImplementedError

    def release(self, message: StoredMessage) -> None:
        raise NotImplementedError

    def acknowledged_some(self) -> None:
        raise NotImplementedError

    def ask_commit(self, urgent: bool) -> None:
        raise NotImplementedError

    def forget_queue(self, queue: Queue) -> None:
        raise NotImplementedError

    def forget_address(self, address: BrokerAddress) -> None:
        raise NotImplementedError

    def check_blocked(self) -> None:
        raise NotImplementedError

    # -- addresses -----------------------------------------------------------------------------------------------------
    def create_address(self, name: str, routing_types: frozenset[str], *, auto_created: bool = False) -> BrokerAddress:
        """Raises BrokerError where it exists or the name cannot be used."""
        existing = self.addresses.get(name)
        if existing is not None and existing.explicit:
            raise errors.address_exists(name)
        check_name(name)
        if is_pattern(name):
            raise errors.bad_name(name)
        address = existing or BrokerAddress(name, routing_types, self.settings.get(name))
        address.routing_types |= routing_types
        address.auto_created = auto_created
        address.explicit = True
        address.root = address
        address.apply(self.settings.get(name))
        self.take_in(address)
        self._define_address(address)
        self._find_roots(name)
        self._changed()
        return address

    def update_address(self, name: str, routing_types: frozenset[str]) -> BrokerAddress:
        address = self.addresses.get(name)
        if address is None:
            raise errors.no_address(name)
        in_use = {queue.routing_type for queue in address.queues.values()}
        if not in_use <= routing_types:
            raise errors.address_in_use(name)
        address.routing_types = routing_types
        self._define_address(address)
        self._find_roots(name)
        self._changed()
        return address

    def _define_address(self, address: BrokerAddress) -> None:
        if self.store is None or not address.explicit:
            return
        if not address.id:
            address.id = self.store.new_id()
        value = {
            "kind": "address",
            "name": address.name,
            "routingTypes": sorted(address.routing_types),
            "autoCreated": address.auto_created,
        }
        self.store.define(address.id, json.dumps(value).encode())
        self.store.limit_duplicates(address.id, max(1, address.settings.id_cache_size))
        self.ask_commit(True)

    def delete_address(self, name: str, *, force: bool = False) -> None:
        """Raises BrokerError where it does not exist, or has queues and `force` is not set."""
        address = self.addresses.get(name)
        if address is None:
            raise errors.no_address(name)
        below = self._below(address)
        bound = [queue for a in (address, *below) for queue in list(a.queues.values())]
        if bound and not force:
            raise errors.address_in_use(name)
        for queue in bound:
            self.destroy_queue(queue.name, remove_consumers=True, auto_delete_address=False)
        for gone in (*below, address):
            self._drop_address(gone)

    def _drop_address(self, address: BrokerAddress) -> None:
        if self.addresses.get(address.name) is not address:
            return
        del self.addresses[address.name]
        self._names.remove(address.name)
        self.forget_address(address)
        self.duplicates.forget(address)
        if address.id and self.store is not None:
            self.store.undefine(address.id)
            self.ask_commit(True)
        self._find_roots(address.name)
        self._changed()
        for producer in list(address.producers):
            producer.closed("amqp:resource-deleted", f"address {address.name} was deleted")
        address.producers.clear()

    def root_of(self, name: str) -> BrokerAddress | None:
        """The configured address that covers `name`: itself, or the nearest topic above it."""
        address = self.addresses.get(name)
        if address is not None:
            return address.root
        for parent in parents(name):
            above = self.addresses.get(parent)
            if above is not None and _is_topic(above):
                return above
        return None

    def take_in(self, address: BrokerAddress) -> None:
        """The address is there from now on."""
        self.addresses[address.name] = address
        self._names.add(address.name)

    def _implicit(self, pattern: str) -> list[BrokerAddress]:
        """Those that the pattern covers and nobody made: they come and go with their queues."""
        return [a for a in map(self.addresses.__getitem__, self._names.covered(pattern)) if not a.explicit]

    def _below(self, address: BrokerAddress) -> list[BrokerAddress]:
        """Those whose settings and limits are this address's."""
        below = self._implicit(address.name + SEPARATOR + ANY)
        return [a for a in below if a.root is address and a is not address]

    def _find_roots(self, name: str) -> None:
        """After the address was made or deleted: what lies below it and is not explicit may have another root."""
        for address in self._implicit(name + SEPARATOR + ANY):
            root = next((a for a in map(self.addresses.get, parents(address.name)) if a and _is_topic(a)), address)
            if root is not address.root:
                address.root = root
                address.apply(self.settings.get(root.name))

    def address_for_queue(self, name: str, routing_type: str, *, create: bool, temporary: bool) -> BrokerAddress:
        """The address a queue is to be bound to; below a topic, levels and patterns come to be by themselves."""
        address = self.addresses.get(name)
        if address is not None:
            if routing_type not in address.routing_types:
                if not create:
                    raise errors.wrong_routing_type(name, routing_type, address.routing_types)
                address.routing_types |= {routing_type}
                self._define_address(address)
            return address
        root = self.root_of(name) if routing_type == MULTICAST else None
        if root is None and create and not temporary and not is_pattern(name):
            return self.create_address(name, frozenset({routing_type}), auto_created=True)
        if root is None and not create:
            raise errors.no_address(name)
        check_name(name)
        settings = self.settings.get(root.name if root is not None else name)
        address = BrokerAddress(name, frozenset({routing_type}), settings, root=root, auto_created=True)
        self.take_in(address)
        return address

    def create_temporary(self, name: str, routing_type: str, user: str) -> None:
        """An address for the life of a link: a queue that outlives its consumers, or a topic, which stores nothing
        while it has no subscribers. `delete_address` ends it. Raises BrokerError where the name cannot be used."""
        address = self.address_for_queue(name, routing_type, create=True, temporary=True)
        address.held = True
        if routing_type == ANYCAST:
            self.create_queue(name, name, ANYCAST, durable=False, temporary=True, user=user)
        self._changed()

    # -- queues --------------------------------------------------------------------------------------------------------
    def create_queue(
        self,
        address_name: str,
        name: str,
        routing_type: str,
        *,
        durable: bool,
        filter: str | None = None,
        max_consumers: int | None = None,
        purge_on_no_consumers: bool | None = None,
        exclusive: bool | None = None,
        temporary: bool = False,
        auto_created: bool = False,
        auto_delete: bool = False,
        auto_create_address: bool = False,
        no_local: str | None = None,
        user: str = "",
        subscription: tuple[Any, ...] | None = None,
        client: str | None = None,
    ) -> Queue:
        """Raises BrokerError (it exists, no such address, wrong routing type, bad name, too many of this client) and
        SelectorError."""
        check_name(name)
        if client is not None and 0 <= self.max_subscriptions <= self._subscriptions[client]:
            raise errors.too_many_subscriptions(client, self._subscriptions[client])
        existing = self.queues.get(name)
        if existing is not None:
            raise errors.queue_exists(name, existing.address.name)
        selector = compile_selector(filter) if filter else None
        address = self.address_for_queue(address_name, routing_type, create=auto_create_address, temporary=temporary)
        settings = address.settings
        stored = durable and not temporary
        queue = self.new_queue(
            self.next_id(),
            name,
            address,
            routing_type,
            durable=stored,
            temporary=temporary,
            filter=selector,
            no_local=no_local,
            max_consumers=settings.default_max_consumers if max_consumers is None else max_consumers,
            purge_on_no_consumers=(
                settings.default_purge_on_no_consumers if purge_on_no_consumers is None else purge_on_no_consumers
            ),
            exclusive=settings.default_exclusive if exclusive is None else exclusive,
            auto_created=auto_created,
            auto_delete=auto_delete,
            user=user,
            client=client,
        )
        queue.subscription = subscription
        self.bind(queue)
        self.define_queue(queue)
        return queue

    def bind(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        if queue.client is not None:
            self._subscriptions[queue.client] += 1
        queue.address.queues[queue.name] = queue
        if queue.routing_type == MULTICAST:
            self._bindings.add(queue.address.name, queue)
        self._changed()

    def define_queue(self, queue: Queue) -> None:
        """Writes a durable queue's definition, at its making and after a change of it."""
        if self.store is None or not queue.durable:
            return
        value = {
            "kind": "queue",
            "name": queue.name,
            "address": queue.address.name,
            "routingType": queue.routing_type,
            "filter": queue.filter.text if queue.filter else None,
            "noLocal": queue.no_local,
            "maxConsumers": queue.max_consumers,
            "purgeOnNoConsumers": queue.purge_on_no_consumers,
            "exclusive": queue.exclusive,
            "autoCreated": queue.auto_created,
            "autoDelete": queue.auto_delete,
            "user": queue.user,
            "paused": queue.paused,
            "subscription": queue.subscription,
            "client": queue.client,
        }
        self.store.define(queue.id, json.dumps(value).encode())
        self.ask_commit(True)

    def update_queue(self, queue: Queue, changes: dict[str, Any]) -> None:
        """Changes attributes by the names of `create_queue`. Raises SelectorError."""
        if "filter" in changes:
            queue.filter = compile_selector(changes["filter"]) if changes["filter"] else None
        for name in ("max_consumers", "exclusive", "purge_on_no_consumers", "auto_delete", "auto_created", "user"):
            if name in changes:
                setattr(queue, name, changes[name])
        queue.settle_mode()
        self._changed()
        self.define_queue(queue)
        queue.dispatch()

    def pause_queue(self, queue: Queue, paused: bool) -> None:
        """While paused a queue takes messages and gives none; a durable queue is still paused after a restart."""
        queue.paused = paused
        queue.settle_mode()
        self.define_queue(queue)
        queue.dispatch()

    def destroy_queue(self, name: str, *, remove_consumers: bool = False, auto_delete_address: bool = False) -> None:
        """Raises BrokerError where it does not exist, or has consumers and they are not to be removed."""
        queue = self.queues.get(name)
        if queue is None:
            raise errors.no_queue(name)
        if queue.consumers and not remove_consumers:
            raise errors.queue_in_use(name, len(queue.consumers))
        queue.deleted = True
        del self.queues[name]
        if queue.client is not None:
            self._subscriptions[queue.client] -= 1
            if not self._subscriptions[queue.client]:
                del self._subscriptions[queue.client]
        address = queue.address
        address.queues.pop(name, None)
        if queue.routing_type == MULTICAST:
            self._bindings.remove(address.name, queue)
        self._changed()
        self.forget_queue(queue)
        store = self.store if queue.durable else None
        if store is not None:
            store.undefine(queue.id)
        consumers = list(queue.consumers)
        delivering = [message for consumer in consumers for message in consumer.unsettled.values()]
        for message in chain(queue.take_all(), delivering):
            if store is not None and message.flags & STORED:
                store.discard(message.id, queue.id)
            message.refs -= 1
            if not message.refs:
                self.release(message)
        for consumer in consumers:
            consumer.unsettled.clear()
        queue.count = queue.bytes = 0
        queue.consumers.clear()
        queue.active.clear()
        for consumer in consumers:
            consumer.closed("amqp:resource-deleted", f"Queue was deleted: {name}")
        for browser in list(queue.browsers):
            browser.closed("amqp:resource-deleted", f"Queue was deleted: {name}")
        if store is not None:
            self.ask_commit(True)
        self.acknowledged_some()
        # An address that was made by itself stays when its last queue goes: a topic outlives its subscribers.
        if address.queues or address.held:
            return
        if not address.explicit or (auto_delete_address and address.auto_created):
            self._drop_address(address)

    def consumer_left(self, queue: Queue) -> None:
        """After a consumer has detached: purge, or delete, where the queue says so."""
        if queue.deleted or queue.consumers:
            return
        if queue.purge_on_no_consumers:
            queue.purge()
        if queue.address.held and queue.routing_type == ANYCAST:
            return  # it goes with the link that made it
        if queue.temporary or (queue.auto_delete and not queue.count):
            self.destroy_queue(queue.name, auto_delete_address=queue.auto_delete or queue.temporary)

    # -- settings ------------------------------------------------------------------------------------------------------
    def put_settings(self, match: str, values: dict[str, Value]) -> None:
        self.settings.put(match, values)
        if self.store is not None:
            id = self.settings_ids.get(match)
            if id is None:
                id = self.settings_ids[match] = self.store.new_id()
            self.store.define(id, json.dumps({"kind": "settings", "match": match, "values": values}).encode())
            self.ask_commit(True)
        self._apply_settings(match)

    def remove_settings(self, match: str) -> None:
        if not self.settings.remove(match):
            return
        id = self.settings_ids.pop(match, None)
        if id is not None and self.store is not None:
            self.store.undefine(id)
            self.ask_commit(True)
        self._apply_settings(match)

    def _apply_settings(self, match: str) -> None:
        """Work for the addresses that the match covers, and for those below them."""
        for name in self._names.covered(match):
            address = self.addresses[name]
            if address.root is not address:
                continue  # it goes by the settings of another
            for concerned in (address, *self._below(address)):
                concerned.apply(self.settings.get(name))
            if address.id and self.store is not None:
                self.store.limit_duplicates(address.id, max(1, address.settings.id_cache_size))
        self.check_blocked()

    # -- routes --------------------------------------------------------------------------------------------------------
    def _changed(self) -> None:
        self.version += 1
        self._routes.clear()

    def route(self, name: str, routing_type: str | None) -> Route | None:
        """Where messages to `name` (an address, or `address::queue`) go; None: there is no such address."""
        key = (name, routing_type)
        route = self._routes.get(key)
        if route is not None:
            return route
        if "::" in name:
            queue = self.queues.get(name.partition("::")[2])
            if queue is None:
                return None
            route = Route(queue.address.root, [queue], [], self.version)
        else:
            root = self.root_of(name)
            if root is None:
                return None
            address = self.addresses.get(name)
            anycast: list[Queue] = []
            multicast: list[Queue] = []
            if address is not None and routing_type != MULTICAST:
                anycast = [q for q in address.queues.values() if q.routing_type == ANYCAST]
            if routing_type != ANYCAST and MULTICAST in root.routing_types:
                multicast = self._bindings.match(name)
            route = Route(root, anycast, multicast, self.version)
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        self._routes[key] = route
        return route


def _is_topic(address: BrokerAddress) -> bool:
    return address.explicit and MULTICAST in address.routing_types


def check_name(name: str) -> None:
    """Raises BrokerError for a name that no address or queue can have."""
    if not name or len(name) > _MAX_NAME or any(c < " " or c == "\x7f" for c in name):
        raise errors.bad_name(name[:80])
