"""Compares a client's attach with the features of its address: capabilities, filters, subscriptions.

No request is ignored silently: an unsupported one is refused with a sentence, or left out of the answer where AMQP
defines that as the refusal (2.7.3, 3.5.1).
"""

from __future__ import annotations

import copy
from typing import Any

from enmasse.amqp.codec.errors import ILLEGAL_STATE, NOT_IMPLEMENTED, AmqpError
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.source_filters import source_filters
from enmasse.amqp.termini import capabilities, subscription_kind

ANYCAST, MULTICAST, QUEUE = "anycast", "multicast", "queue"
TOPIC = "topic"
DELAYED_DELIVERY = Symbol("DELAYED_DELIVERY")
_FITS = {ANYCAST: QUEUE, QUEUE: QUEUE, MULTICAST: TOPIC}
"""The capability of a terminus that each kind of address has."""
ASKED = (QUEUE, TOPIC, "temporary-queue", "temporary-topic", "shared", "global")
"""Capabilities of sources and targets that mean something in the suite."""


def temporary_kind(terminus: Any) -> str | None:
    """Return `queue` or `topic` if a dynamic terminus requests one of a broker; None if any address will do."""
    wanted = capabilities(terminus)
    if wanted & {"temporary-queue", QUEUE}:
        return QUEUE
    return TOPIC if wanted & {"temporary-topic", TOPIC} else None


def is_selective(source: Any) -> bool:
    """Return True if the source has a filter, or browses (distribution-mode copy)."""
    return source is not None and bool(source.filter or source.distribution_mode == "copy")


def wants_delay(link: Any) -> bool:
    """Return True if the attach requests delayed delivery."""
    attach = link.remote_attach
    return attach is not None and DELAYED_DELIVERY in (attach.desired_capabilities or ())


def check(kind: str, name: str, terminus: Any, *, incoming: bool) -> None:
    """Raise AmqpError if an address of this kind lacks a requested feature and would behave differently."""
    wanted = capabilities(terminus)
    fits = _FITS[kind]
    other = TOPIC if fits == QUEUE else QUEUE
    if wanted & {other, f"temporary-{other}"} and not wanted & {fits, f"temporary-{fits}"}:
        raise AmqpError(ILLEGAL_STATE, f"Address {name} is not configured for {other} support, it is of type {kind}")
    if incoming or terminus is None:
        return
    subscription = subscription_kind(terminus)
    if subscription:
        raise AmqpError(
            NOT_IMPLEMENTED,
            f"{name} is of type {kind} and has no {subscription} subscriptions: receive from it without, "
            "or use a topic",
        )
    if kind != QUEUE and any(each.type.reads_messages for each in source_filters(terminus)):
        raise AmqpError(
            NOT_IMPLEMENTED,
            f"{name} is of type {kind}, whose messages the router does not read: selectors need a queue or a topic",
        )
    if kind == ANYCAST and terminus.distribution_mode == "copy":
        raise AmqpError(
            NOT_IMPLEMENTED, f"{name} is of type {kind}, which keeps nothing that could be browsed: use a queue"
        )


def as_it_is(kind: str | None, terminus: Any) -> Any:
    """Return the terminus for the answer, without features that have no effect here. `kind` None: one of the router's
    own addresses."""
    if terminus is None:
        return None
    given = terminus.capabilities or ()
    kept = tuple(c for c in given if kind is None or str(c).lower() not in ASKED or str(c).lower() == _FITS[kind])
    selecting = bool(getattr(terminus, "filter", None))
    browsing = getattr(terminus, "distribution_mode", None) == "copy"
    if len(kept) == len(given) and not selecting and not browsing:
        return terminus
    terminus = copy.copy(terminus)
    terminus.capabilities = kept or None
    if selecting:
        terminus.filter = {}
    if browsing and kind != MULTICAST:
        terminus.distribution_mode = "move"
    return terminus
