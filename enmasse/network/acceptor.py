"""Acceptor: takes new sockets a few at a time, so that many connects at once do not stop open connections.

The servers of asyncio and uvloop accept until the kernel's queue is empty. Here a turn of the loop accepts a few, and
the number of peers that have connected and not opened yet is bounded; the others wait in the kernel's queue. At the
bound those give way that take long, of the host that has most of them: peers behind a load balancer, which are all of
one host, give way only then.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from enmasse.logs import log as logs
from enmasse.network.host import counted_host

log = logs.get(part="amqp")

A_TURN = 16
"""Sockets that one turn of the loop accepts."""
HANDSHAKES = 2048
"""Sockets that are accepted and whose peer has not opened yet. At it nothing is accepted until one of them has opened
or gone; of the host that has most of them, those that have taken longer than `PATIENCE` give way."""
PATIENCE = 2.0  # seconds
_RETRY = 0.2  # seconds until it is tried again after accept has failed
_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OF_PEER = frozenset(
    {
        errno.ECONNABORTED, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ENETDOWN, errno.ENETUNREACH,
        errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET, errno.EPERM, errno.ETIMEDOUT,
    }
)  # fmt: skip
"""Errors of the connection that would have been accepted (accept(2): of the network, or a rule of the firewall)."""


class OfHost(Protocol):
    """A connection of a host."""

    @property
    def host(self) -> str:
        """The peer's address."""


C = TypeVar("C", bound=OfHost)


def oldest_of_most(connections: Sequence[C]) -> C | None:
    """Return the first connection of the host that has most of them, so that one host's do not end those of others;
    None if there is no connection."""
    counts = Counter(counted_host(each.host) for each in connections)
    if not counts:
        return None
    most = max(counts.values())
    return next(each for each in connections if counts[counted_host(each.host)] == most)


class _Guest:
    """An accepted socket whose peer has not opened yet. `drop` drops it."""

    __slots__ = ("drop", "host", "since", "socket")

    def __init__(self, sock: socket.socket, host: str, since: float, drop: Callable[[], None]) -> None:
        self.socket = sock
        self.host = host
        self.since = since
        self.drop = drop


class Acceptor:
    """Listening sockets. `take(socket)` is called for each that was accepted; it returns what drops it again. The taker
    calls `done(socket)` once the peer has opened, or the socket has gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        take: Callable[[socket.socket], Callable[[], None]],
        *,
        handshakes: int | None = None,
    ) -> None:
        """`handshakes`: sockets whose peers
        have not opened yet; None: HANDSHAKES."""
        self._loop = loop
        self._sockets = sockets
        self._take = take
        self._accepting = False
        self._failing = False
        self._most = HANDSHAKES if handshakes is None else handshakes
        self._under_way: dict[socket.socket, _Guest] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._resume()

    def done(self, sock: socket.socket) -> None:
        """Note that the handshake on an accepted socket has ended, so that another socket can be accepted."""
        if self._under_way.pop(sock, None) is None:
            return
        if len(self._under_way) < self._most:
            self._resume()

    def close(self) -> None:
        """Stop listening. Accepted sockets stay open."""
        self._pause()
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    def finish(self) -> None:
        """Accept those that have connected already, as far as there is room, and stop listening."""
        before = -1
        while self._sockets and len(self._under_way) > before:
            before = len(self._under_way)
            for sock in self._sockets:
                self._readable(sock)
        self.close()

    def _resume(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._accepting and self._sockets:
            self._accepting = True
            for sock in self._sockets:
                self._loop.add_reader(sock, self._readable, sock)

    def _pause(self, seconds: float | None = None) -> None:
        """Accept nothing for `seconds`; None: until a peer has opened or has gone."""
        if self._accepting:
            self._accepting = False
            for sock in self._sockets:
                self._loop.remove_reader(sock)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._resume)

    def _readable(self, listening: socket.socket) -> None:
        for _ in range(A_TURN):
            if not self._room():
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_PEER:
                    continue
                if error.errno not in _OUT_OF:
                    raise
                if not self._failing:  # once, not for each try
                    self._failing = True
                    log.error("amqp.accept.failed", error=error.strerror)
                self._pause(_RETRY)
                return
            self._failing = False
            sock.setblocking(False)
            self._under_way[sock] = _Guest(sock, str(address[0]), self._loop.time(), self._take(sock))
            if len(self._under_way) >= self._most:
                return  # none gives way before it is known that another waits

    def _room(self) -> bool:
        """Return whether one more socket may be accepted. If not, accepting resumes when a peer has opened, or when one
        that has not is dropped."""
        if len(self._under_way) < self._most:
            return True
        guest = oldest_of_most(list(self._under_way.values()))
        assert guest is not None
        left = guest.since + PATIENCE - self._loop.time()
        if left > 0:
            self._pause(left)
            return False
        del self._under_way[guest.socket]
        guest.drop()
        return True
