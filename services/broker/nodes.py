"""Nodes: finds the address, queue or subscription that an attach names, or makes it if settings allow."""

from __future__ import annotations

import uuid

from enmasse.amqp.codec import errors as amqp
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.logs import log
from enmasse.model.names import router_form, space_of
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.connections import ConnectionInfo
from services.broker.core.errors import BrokerError
from services.broker.core.legal_names import ANYCAST, MANAGEMENT, MULTICAST
from services.broker.core.messages.condition import Condition
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.subscription import Identity, queue_name
from services.broker.core.wildcards import is_pattern

_log = log.get()


class Nodes:
    """The nodes of the broker as one client may use them. Methods raise BrokerError, whose condition is the link's."""

    def __init__(self, broker: Broker, client: ConnectionInfo, admission: PeerCheck | None = None) -> None:
        """`admission`: what the client may do; None: everything."""
        self.broker = broker
        self._admission = admission
        self.catalogue = broker.catalogue
        self.client = client

    # -- rights; these raise AmqpError ---------------------------------------------------------------------------------
    def check_manage(self) -> None:
        """Check that the client may use management."""
        if self._admission is not None:
            self._admission.check_manage(MANAGEMENT)

    def check_send(self, address: str) -> None:
        """Check that the client may send to `address`."""
        if self._admission is not None:
            self._admission.check_send(_owner(address))

    def check_receive(self, address: str) -> None:
        """Check that the client may receive from `address`; "": from a subscription that only its name identifies."""
        if self._admission is not None:
            self._admission.check_receive(_owner(address))

    # -- to send to ----------------------------------------------------------------------------------------------------
    def check_name(self, address: str) -> None:
        """Check that `address` names one level of a topic, not several. Raises BrokerError."""
        if is_pattern(address.partition("::")[0]):
            raise BrokerError(f"a sender needs an address without wildcards, not {address}", "amqp:invalid-field")

    def check_target(self, address: str, kind: str | None) -> None:
        """Check that messages may be sent to `address`, and make the address if that is allowed. Raises BrokerError."""
        self.check_name(address)
        if "::" in address:
            name, _, queue = address.partition("::")
            known = self.catalogue.queues.get(queue)
            if known is None or known.address.name != name:
                raise BrokerError(f"AMQ119002: target address {address} does not exist", "amqp:not-found")
            return
        root = self.catalogue.root_of(address)
        if root is None:
            if not self.auto_create(address, kind):
                hint = self._of_levels(address)
                raise BrokerError(f"AMQ119002: target address {address} does not exist{hint}", "amqp:not-found")
            return
        _check_kind(address, kind, root.routing_types if root.name != address else self._kinds(address))

    def _of_levels(self, address: str) -> str:
        """Return what to write for a name with dots, if it is one of an address with `/` in their place."""
        levels = router_form(address)
        if levels == address or self.catalogue.root_of(levels) is None:
            return ""
        return f"; its levels are separated by /: {levels}"

    def auto_create(self, address: str, kind: str | None) -> bool:
        """Make an address (and its queue) if settings allow it and the client is no router. False: it may not."""
        settings = self.catalogue.settings.get(address)
        kind = kind or settings.default_address_routing_type
        if self.client.router or address.startswith(MANAGEMENT) or "::" in address:
            return False
        if not settings.auto_create_addresses:
            return False
        if kind == ANYCAST:
            if not settings.auto_create_queues:
                return False
            self.catalogue.create_queue(
                address,
                address,
                ANYCAST,
                durable=True,
                auto_created=True,
                auto_delete=settings.auto_delete_queues,
                auto_create_address=True,
                user=self.client.user,
            )
        else:
            self.catalogue.create_address(address, frozenset({MULTICAST}), auto_created=True)
        return True

    def _kinds(self, address: str) -> frozenset[str]:
        return self.catalogue.addresses[address].routing_types

    # -- to receive from -----------------------------------------------------------------------------------------------
    def temporary_queue(self, kind: str, prefix: str) -> Queue:
        """Make the queue of a dynamic source, with a name of its own, on an address of the same name. `prefix`: of the
        address space of the client."""
        name = prefix + str(uuid.uuid4())
        return self.catalogue.create_queue(name, name, kind, durable=False, temporary=True, auto_create_address=True)

    def is_subscription(self, address: str, kind: str | None) -> bool:
        """Return whether to receive from `address` is to subscribe; makes the address if that is allowed.

        Raises BrokerError.
        """
        known = self.catalogue.addresses.get(address)
        root = self.catalogue.root_of(address)
        if known is None and self.catalogue.queue_by_name(address) is not None:
            return False
        if known is not None and known.explicit:
            _check_kind(address, kind, known.routing_types)
            if kind is None:
                return known.routing_types == {MULTICAST}
            return kind == MULTICAST
        if known is not None and any(
            queue.routing_type == ANYCAST for queue in self.catalogue.queues_of(known).values()
        ):
            return False
        if root is not None:
            _check_kind(address, kind, root.routing_types)
            return True
        if is_pattern(address):
            if self.client.router or kind == ANYCAST or not self.catalogue.settings.get(address).auto_create_addresses:
                raise BrokerError(f"AMQ119010: source address does not exist: {address}", "amqp:not-found")
            return True
        if not self.auto_create(address, kind):
            text = f"AMQ119010: source address does not exist: {address}{self._of_levels(address)}"
            raise BrokerError(text, "amqp:not-found")
        return MULTICAST in self._kinds(address)

    def queue_of(self, address: str) -> Queue:
        """Return the queue to receive from: of this name (no subscription), or the first anycast one of the address of
        this name. Raises BrokerError.
        """
        queue = self.catalogue.queue_by_name(address)
        if queue is not None:
            return queue
        known = self.catalogue.addresses.get(address)
        for candidate in self.catalogue.queues_of(known).values() if known is not None else ():
            if candidate.routing_type == ANYCAST:
                return candidate
        raise BrokerError(f"AMQ119010: source address does not exist: {address} has no queue", "amqp:not-found")

    def qualified_queue(self, address: str) -> Queue:
        """Return the queue of `address::queue`, or of `::queue` if it is no subscription. Raises BrokerError."""
        name, _, queue_part = address.partition("::")
        queue = self.catalogue.queues.get(queue_part) if name else self.catalogue.queue_by_name(queue_part)
        if queue is None or (name and queue.address.name != name):
            raise BrokerError(f"AMQ119010: source address does not exist: {address}", "amqp:not-found")
        return queue

    # -- subscriptions -------------------------------------------------------------------------------------------------
    def anonymous_subscription(self, address: str, condition: Condition, subscriber: str) -> Queue:
        """Neither durable nor shared: it has no name for others and ends with its link."""
        return self.catalogue.create_queue(
            address,
            str(uuid.uuid4()),
            MULTICAST,
            durable=False,
            temporary=True,
            condition=condition,
            user=self.client.user,
            subscriber=subscriber,
        )

    def subscription(
        self, name: str, address: str, condition: Condition, *, durable: bool, shared: bool, client: str
    ) -> Queue:
        """Find the queue of a durable or shared subscription of a client, or make it, also in place of one that selects
        otherwise. Raises BrokerError."""
        about = (address, *condition.parts)
        queue = self._subscription_of(name)
        if queue is not None and not queue.identity:
            if queue.address.name != address:
                raise errors.queue_exists(name, queue.address.name)
            return queue
        if queue is not None and not shared:
            # The same subscriber over another connection takes over from its old link.
            for consumer in list(queue.consumers):
                _log.warning(
                    "broker.subscription.taken-over",
                    queue=name,
                    client=client,
                    by=self.client.remote,
                    consumer=consumer.id,
                    space=space_of(address),
                )
                queue.detach(consumer)
                consumer.closed(str(amqp.STOLEN), "the subscription is used by a newer link")
        if queue is not None and queue.subscription != about:
            if queue.consumers:
                raise BrokerError(
                    f"AMQ119005: error creating consumer, subscription {name} is in use with another address or filter",
                    "amqp:illegal-state",
                )
            self.catalogue.user_limits.check(client, condition.weight, address, durable=durable, instead_of=queue.id)
            self.catalogue.destroy_queue(queue.name, remove_consumers=True)
            queue = None
        if queue is None:
            queue = self.catalogue.create_queue(
                address,
                name,
                MULTICAST,
                durable=durable,
                temporary=not durable,
                condition=condition,
                user=self.client.user,
                subscription=about,
                client=client if durable else None,
                subscriber=client,
            )
        return queue

    def has_subscription(self, name: str) -> bool:
        """Return whether there is a subscription of this name."""
        return self._subscription_of(name) is not None

    def _subscription_of(self, identity: str) -> Queue | None:
        """Return the queue of a subscription. One without an identity was made by an administrator for the subscriber
        of this name."""
        queue = self.catalogue.subscriptions.get(identity) or self.catalogue.queues.get(identity)
        if queue is None or queue.routing_type != MULTICAST or queue.identity not in ("", identity):
            return None
        return queue if queue.identity or not queue.temporary else None

    def durable_subscription(self, who: Identity) -> Queue:
        """Find the subscription of this client and link name, whatever it selects. Raises BrokerError."""
        found = [
            queue
            for everywhere in (False, True)
            for shared in (False, True)
            if (queue := self._subscription_of(queue_name(who, durable=True, shared=shared, everywhere=everywhere)))
        ]
        if not found:
            raise BrokerError(f"AMQ119010: source address does not exist: no subscription {who.link}", "amqp:not-found")
        queue = found[0]
        if queue.consumers:  # a client that attaches like this is about to end it: not under those that use it
            raise BrokerError(
                f"subscription {who.link} is in use: close its consumers first", str(amqp.RESOURCE_LOCKED)
            )
        return queue


def _owner(address: str) -> str:
    """Return the address of `address::queue`; of `::queue` the queue, which has the name of its address or is found by
    its own."""
    name, _, queue = address.partition("::")
    return name or queue


def _check_kind(address: str, kind: str | None, known: frozenset[str]) -> None:
    if kind is not None and kind not in known:
        support = "topic" if kind == MULTICAST else "queue"
        raise BrokerError(f"Address {address} is not configured for {support} support", "amqp:illegal-state")
