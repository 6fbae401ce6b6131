"""A network that is cut between two machines, noticed by TCP: what was sent is not acknowledged.

A kernel acknowledges for its processes, also for one that is busy or stopped. So a peer that is merely late is never
taken for cut off, and one that is cut off need not be silent for as long as a late one may be.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

LOOK: Final = 0.25
"""Seconds between two looks."""
BEAT: Final = 0.5
"""Seconds after which something is to be sent, for there must be something to acknowledge."""
PATIENCE: Final = 1.0
"""Seconds without an acknowledgement after which the peer is cut off. A client waits meanwhile, for 2 s at most."""
ROUND_TRIPS: Final = 4
"""Round trips in which nothing is acknowledged by then, on a network that takes longer for them."""
CUT_OFF: Final = "is cut off: it acknowledges nothing"
_LATE: Final = 2 * LOOK
"""Seconds between two looks after which nothing is judged: this process, or its machine, was stopped."""
_INFO: Final[Any] = getattr(socket, "TCP_INFO", None)
_FIELDS: Final = struct.Struct("=24xII36xI48xQ")
"""Fields of Linux' struct tcp_info: tcpi_unacked, tcpi_sacked, tcpi_rtt, tcpi_bytes_acked."""


class CutLink:
    """Looks at what the peer's machine acknowledges of the bytes that were sent on a socket."""

    __slots__ = ("_acknowledged", "_looked", "_since", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._looked = self._since = float("-inf")
        self._acknowledged = (0, 0)

    def is_cut(self, now: float) -> bool:
        """Return True if what was sent is not acknowledged. `now`: monotonic seconds, LOOK after the last call."""
        late = now - self._looked > _LATE
        self._looked = now
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, _INFO, _FIELDS.size)
        except OSError:  # it is closed already
            return False
        under_way, selected, microseconds, in_order = _FIELDS.unpack(info)
        acknowledged = (selected, in_order)
        if late or not under_way or acknowledged != self._acknowledged:
            self._acknowledged = acknowledged
            self._since = now
            return False
        return bool(now - self._since >= max(PATIENCE, ROUND_TRIPS * microseconds / 1e6))


def link_of(transport: asyncio.BaseTransport) -> CutLink | None:
    """Return the link of a connected socket; None if nothing can cut it (the peer is on this machine), or the system
    does not say what is acknowledged."""
    sock, own, peer = (transport.get_extra_info(name) for name in ("socket", "sockname", "peername"))
    if _INFO is None or sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6) or not (own and peer):
        return None
    return None if own[0] == peer[0] or peer[0].startswith("127.") else CutLink(sock)
