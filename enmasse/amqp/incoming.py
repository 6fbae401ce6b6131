"""Transfers that come by the tables: first ids, pieces, aborts, odd encodings, dead links (OASIS AMQP 1.0, 2.6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.amqp import errors
from enmasse.amqp.delivery import Partial
from enmasse.amqp.endpoint import U32, Link, LinkFault, SessionFault
from enmasse.amqp.performatives import TransactionalState, Transfer
from enmasse.amqp.receiver import Receiver

if TYPE_CHECKING:
    from enmasse.amqp.session import Session

PIECE_COST = 64  # what a received piece costs beside its bytes


def on_transfer(session: Session, transfer: Transfer, payload: bytes) -> None:
    """What the fast path has left over: first ids, pieces, aborts, odd encodings, dead links."""
    link = session._by_remote.get(int(transfer.handle))
    if link is None:
        raise SessionFault(errors.UNATTACHED_HANDLE, f"transfer on handle {transfer.handle}, which is not attached")
    if not isinstance(link, Receiver):
        raise SessionFault(errors.NOT_ALLOWED, f"transfer on link {link.name!r}, whose sender is here")
    partial = link._partial
    if partial is None:
        partial = _first_frame(session, link, transfer)
        if type(transfer.state) is TransactionalState and not partial._discard:
            link._partial = partial if transfer.more else None
            raise no_transactions(link)
    else:
        session._in_extra = (session._in_extra + 1) & U32
        session._count_frame()
        if transfer.delivery_id is not None and transfer.delivery_id != partial.delivery_id:
            raise SessionFault(
                errors.INVALID_FIELD,
                f"delivery {transfer.delivery_id} begins within {partial.delivery_id} on link {link.name!r}",
            )
        if transfer.settled and not partial.settled:
            partial.settled = True
            if session._incoming.pop(partial.delivery_id, None) is not None:
                came_settled(session, link)
    if transfer.aborted:
        _aborted(session, link, partial)
    elif partial._discard:
        link._partial = partial if transfer.more else None
    else:
        _piece(session, link, partial, payload, bool(transfer.more))
    if link._limit >= 0:
        if link._partial is None:
            session._receivers[link.remote_handle] = link
        else:
            session._receivers.pop(link.remote_handle, None)


def _first_frame(session: Session, link: Receiver, transfer: Transfer) -> Partial:
    delivery_id = transfer.delivery_id
    if delivery_id is None:
        raise SessionFault(
            errors.INVALID_FIELD, f"the first transfer of a delivery on {link.name!r} has no delivery-id"
        )
    if session._in_next < 0:
        session._in_extra = (session._in_initial - delivery_id) & U32
    elif delivery_id != session._in_next:
        raise SessionFault(
            errors.INVALID_FIELD, f"sequencing error, expected delivery-id {session._in_next}, got {delivery_id}"
        )
    session._in_next = (int(delivery_id) + 1) & U32
    session._count_frame()
    settled = bool(transfer.settled)
    partial = Partial(
        link, int(delivery_id), bytes(transfer.delivery_tag or b""), int(transfer.message_format or 0), settled
    )
    if link._limit < 0 or not link._attach_sent:  # detached here, the peer did not know yet
        partial._discard = True
        link._partial = partial
        if not link.detached:
            raise LinkFault(link, errors.TRANSFER_LIMIT_EXCEEDED, "a transfer before the attach was answered")
        link._discarded += 1
        if link._discarded > session._window:
            raise SessionFault(errors.ERRANT_LINK, f"link {link.name!r} has been detached and is used on")
        return partial
    link._partial = partial
    if link._received >= link._limit:
        partial._discard = bool(transfer.more)
        link._partial = partial if transfer.more else None
        raise LinkFault(link, errors.TRANSFER_LIMIT_EXCEEDED, f"link {link.name!r} has no credit")
    link._received += 1
    if settled:
        came_settled(session, link)
    else:
        session._incoming[partial.delivery_id] = link
    return partial


def no_transactions(link: Link) -> LinkFault:
    """Nothing built on this engine coordinates transactions: work that names one must not be done without it."""
    error = errors.no_transactions()
    return LinkFault(link, error.condition, error.description)


def came_settled(session: Session, link: Receiver) -> None:
    link._settled += 1
    if link._settled >= link._topup_at:
        link._want_flow()


def _aborted(session: Session, link: Receiver, partial: Partial) -> None:
    if session._incoming.pop(partial.delivery_id, None) is not None:
        came_settled(session, link)
    link._partial = None
    if not partial._discard:
        link._drop(partial)


def _piece(session: Session, link: Receiver, partial: Partial, payload: bytes, more: bool) -> None:
    connection = session.connection
    handler = connection.handler
    started = partial.size
    if not started and not more and not partial._frames:
        link._partial = None
        link.on_delivery(link, partial.delivery_id, partial.settled, payload, partial.tag, partial.message_format)
        return
    if not partial.settled and partial.delivery_id not in session._incoming:
        partial._discard = True  # settled by us before it was complete: the rest is of no interest
        partial._release()
        link._pieces = []
        link._partial = partial if more else None
        return
    size = len(payload)
    partial.size += size
    fits = True
    if size:
        cost = size + PIECE_COST
        partial._waiting += cost
        if link.streaming:
            partial._pieces.append(payload)
            partial._frames += 1
            session._unconsumed += 1
        else:
            link._pieces.append(payload)
        fits = connection._hold_partial(cost, link.streaming)
    if link.streaming:
        if not more:
            link._partial = None
            partial.done = True
        if not size and not partial._told:
            return  # nothing has come of it yet: it may still be a delivery of one frame to whoever takes it
        partial._told = True
        handler.on_partial(link, partial)
        if partial._frames and not session._withheld and not session._window_due:
            session._want_window()
        return
    too_large = 0 < link.max_message_size < partial.size
    if too_large or not fits:
        partial._discard = True
        partial._release()
        link._pieces = []
        link._partial = partial if more else None
        if too_large:
            raise LinkFault(link, errors.MESSAGE_SIZE_EXCEEDED, f"a message of more than {link.max_message_size} bytes")
        most = connection.limits.max_partial
        raise LinkFault(
            link, errors.RESOURCE_LIMIT_EXCEEDED, f"unfinished deliveries of more than {most} bytes on one connection"
        )
    if not more:
        pieces = link._pieces
        link._pieces = []
        link._partial = None
        partial._release()
        link.on_delivery(
            link, partial.delivery_id, partial.settled, b"".join(pieces), partial.tag, partial.message_format
        )
