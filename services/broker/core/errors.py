"""Refusals with Artemis' codes and texts, and the AMQP condition a link is refused with for the same reason."""

from __future__ import annotations


class BrokerError(Exception):
    """`str(error)` is the text for management; `condition` the AMQP error condition."""

    def __init__(self, text: str, condition: str = "amqp:precondition-failed") -> None:
        super().__init__(text)
        self.condition = condition


def queue_exists(queue: str, address: str) -> BrokerError:
    """Refusal: a queue of this name exists already."""
    return BrokerError(f"AMQ229019: Queue {queue} already exists on address {address}", "amqp:illegal-state")


def no_queue(queue: str) -> BrokerError:
    """Refusal: there is no queue of this name."""
    return BrokerError(f"AMQ229017: Queue {queue} does not exist", "amqp:not-found")


def no_address(address: str) -> BrokerError:
    """Refusal: there is no address of this name."""
    return BrokerError(f"AMQ229203: Address Does Not Exist: {address}", "amqp:not-found")


def address_exists(address: str) -> BrokerError:
    """Refusal: an address of this name exists."""
    return BrokerError(f"AMQ229204: Address already exists: {address}", "amqp:illegal-state")


def address_in_use(address: str) -> BrokerError:
    """Refusal: the address has queues or diverts and cannot be deleted."""
    return BrokerError(f"AMQ229205: Address {address} has bindings", "amqp:illegal-state")


def no_divert(name: str) -> BrokerError:
    """Refusal: there is no divert of this name to delete."""
    return BrokerError(f"AMQ229012: No binding for divert {name}", "amqp:not-found")


def no_such_divert(name: str) -> BrokerError:
    """Refusal: there is no divert of this name to show."""
    return BrokerError(f"AMQ229231: Divert Does Not Exist: {name}", "amqp:not-found")


def no_divert_name() -> BrokerError:
    """Refusal: a divert must have a name."""
    return BrokerError(
        "AMQ229015: Must specify a name for each divert. This one will not be deployed.", "amqp:invalid-field"
    )


def bad_divert_type(given: str, known: tuple[str, ...]) -> BrokerError:
    """Refusal: the routing type of a divert is not a `known` one."""
    return BrokerError(f"the routing type of a divert is one of {', '.join(known)}, not {given}", "amqp:invalid-field")


def queue_in_use(queue: str, count: int) -> BrokerError:
    """Refusal: the queue has `count` consumers and cannot be deleted."""
    return BrokerError(
        f"AMQ229025: Cannot delete queue {queue} on binding {queue} - it has consumers = {count}", "amqp:illegal-state"
    )


def wrong_routing_type(address: str, routing_type: str, known: frozenset[str]) -> BrokerError:
    """Refusal: the address does not support the routing type of the queue."""
    return BrokerError(
        f"AMQ229209: Can not create queue with routing type: {routing_type}, "
        f"Supported routing types for address: {address} are [{', '.join(sorted(known))}]",
        "amqp:illegal-state",
    )


def too_many_consumers(address: str, queue: str) -> BrokerError:
    """Refusal: the queue has as many consumers as it may have."""
    return BrokerError(
        "AMQ119005: error creating consumer, "
        f"AMQ229200: Maximum Consumer Limit Reached on Queue:(address={address},queue={queue})",
        "amqp:internal-error",
    )


def too_many_subscriptions(client: str, count: int) -> BrokerError:
    """Refusal: the client has as many durable subscriptions as it may have."""
    return BrokerError(
        f"client {client} has {count} durable subscriptions, its limit: unsubscribe from some, "
        "or ask the administrator for a higher MAX_SUBSCRIPTIONS",
        "amqp:resource-limit-exceeded",
    )


def too_many_subscriptions_of_user(user: str, count: int) -> BrokerError:
    """Refusal: the clients of a user have as many durable subscriptions as they may have."""
    return BrokerError(
        f"the clients of user {user!r} have {count} durable subscriptions at this broker, the limit of a user: "
        "unsubscribe from some, or ask the administrator for a higher MAX_SUBSCRIPTIONS",
        "amqp:resource-limit-exceeded",
    )


def too_many_queues(address: str, count: int) -> BrokerError:
    """Refusal: `count` durable queues get the messages of the address, which is the most."""
    return BrokerError(
        f"{count} durable queues take messages to {address}, more than can share one: spread their subscribers over "
        "several topics or brokers",
        "amqp:resource-limit-exceeded",
    )


def address_full(address: str, why: str) -> BrokerError:
    """Refusal: the address has used up its memory or its size. Users read it: it has no code."""
    return BrokerError(f'Address "{address}" is full: {why}', "amqp:resource-limit-exceeded")


def space_full(limit: int) -> BrokerError:
    """Refusal: the address space has as many bytes stored at all brokers as its plan allows."""
    return BrokerError(
        f"the {limit} bytes of storage that the plan of the space allows are used: receive or delete messages, or ask "
        "for another plan of the space",
        "amqp:resource-limit-exceeded",
    )


def larger_than_space(size: int, limit: int) -> BrokerError:
    """Refusal: the message alone is larger than what the plan of its address space allows."""
    return BrokerError(
        f"{size} bytes are more than the {limit} bytes of storage that the plan of the space allows: send smaller "
        "messages, or ask for another plan of the space",
        "amqp:resource-limit-exceeded",
    )


def no_space() -> BrokerError:
    """Refusal: the disk has no more than the reserve left."""
    return BrokerError(
        "AMQ229119: Free storage space is at or below the reserve; give the broker disk space, or remove messages",
        "amqp:resource-limit-exceeded",
    )


def store_unusable() -> BrokerError:
    """Refusal: the data directory was deleted or replaced, or cannot be read, so nothing is stored."""
    return BrokerError(
        "AMQ229119: the broker stores nothing: its data directory was deleted or replaced, or cannot be read; "
        "`enmasse status` has the reason",
        "amqp:resource-limit-exceeded",
    )


def too_general(name: str, most: int) -> BrokerError:
    """Return the error for a pattern that takes long to compare with names."""
    return BrokerError(f"the pattern {name[:80]} has more than {most} levels `#`", "amqp:invalid-field")


def bad_name(name: str) -> BrokerError:
    """Refusal: not a legal name of an address or queue."""
    return BrokerError(f"AMQ229218: Illegal address or queue name: {name!r}", "amqp:invalid-field")


def too_many_jobs(those: str) -> BrokerError:
    """Refusal: the most long operations over messages are running, `those`: their number, and whose they are."""
    return BrokerError(
        f"operations over the messages of queues are under way, {those}: ask again when one of them has been answered",
        "amqp:resource-limit-exceeded",
    )
