"""Deliveries that wait for the peer's window or its reading leave here, links in turn (OASIS AMQP 1.0, 2.5.6)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from enmasse.amqp.delivery import uint
from enmasse.amqp.endpoint import U32

if TYPE_CHECKING:
    from enmasse.amqp.sender import Sender
    from enmasse.amqp.session import Session

_FRAMES_PER_TURN = 8  # of one link, while other links of the session wait too
_HEADER = Struct(">IBBH").pack


def pump(session: Session) -> None:
    """Send what waits, links in turn, until the window or the peer's reading ends it."""
    if session._pumping:
        return
    session._pumping = True
    ready = session._ready
    connection = session.connection
    try:
        while ready and not connection.blocked and session._next_id != session._out_stop and not session.ended:
            link = ready.popleft()
            link._queued_ready = False
            if link.detached:
                continue
            _pump_link(session, link)
            if link._queue and link._queue[0]._ready():
                link._queued_ready = True
                ready.append(link)
    finally:
        session._pumping = False


def pump_link_once(session: Session, link: Sender) -> None:
    """The last frame of a link that is being detached, if the window allows one."""
    if session._next_id != session._out_stop and not session.ended:
        _pump_link(session, link)


def _pump_link(session: Session, link: Sender) -> None:
    connection = session.connection
    queue = link._queue
    handle = uint(link.handle)
    for _ in range(_FRAMES_PER_TURN):
        if not queue or not queue[0]._ready() or session._next_id == session._out_stop or connection.blocked:
            break
        outgoing = queue[0]
        if outgoing.delivery_id < 0:
            if outgoing.aborted:  # nothing of it has left: as if it had never been
                queue.popleft()
                link._sent -= 1
                link._done -= outgoing.settled
                continue
            outgoing.delivery_id = session._next_id
            session._next_id = (session._next_id + 1) & U32
            if not outgoing.settled:
                session._outgoing[outgoing.delivery_id] = (link, outgoing.token)
        else:
            session._out_extra = (session._out_extra + 1) & U32
            session._out_stop = (session._out_stop - 1) & U32
        buffers, size, last = outgoing._frame(handle, connection.remote_max_frame - 8)
        out = connection.out
        out.append(_HEADER(size + 8, 2, 0, session.channel))
        out.extend(buffers)
        if last:
            queue.popleft()
            if outgoing.aborted and session._outgoing.pop(outgoing.delivery_id, None) is not None:
                link._done += 1
        connection._spill(size)
        if not connection._dirty:
            connection.wake()
    if not queue and not link.detached:
        link._gate = link._limit
    if (not queue or not queue[0]._bytes) and not link.detached and (link._starved or link.drain):
        link._starved = False
        connection.handler.on_flow(link)
