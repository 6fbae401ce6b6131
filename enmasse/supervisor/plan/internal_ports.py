"""Internal ports, between processes of a suite: chosen, kept for the next start, and reserved."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import Collection
from pathlib import Path

from enmasse.storage.files import NO_ROOM, read_json, write_json
from enmasse.supervisor.errors import StartError

LOOPBACK = "127.0.0.1"
LISTEN, TIME_WAIT = "0A", "06"
"""States of sockets in /proc/net/tcp."""
INTERNAL = range(20000, 32768)
"""Range below Linux's range for outgoing connections, which therefore never occupy one of our ports."""


def sockets_at(port: int) -> list[tuple[str, str]]:
    """Return state and inode of each socket at a local port that listens or has, or had, a connection."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    found.append((fields[3], fields[9]))
    return found


def _remembered(port: int) -> socket.socket | None:
    """Return a socket at a port that no process has, although connections of the last run are remembered."""
    if {state for state, _ in sockets_at(port)} != {TIME_WAIT}:
        return None
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((LOOPBACK, port))
    except OSError:
        holder.close()
        return None
    return holder


class InternalPorts:
    """One port per key such as `broker-1/amqp`, the same while the suite runs and, if it is still free, in the
    next run.

    Each port is held by a bound socket that does not listen: servers set SO_REUSEADDR and can listen there beside it,
    while another suite that looks for free ports at this moment cannot get it.
    """

    def __init__(self, path: Path, avoid: Collection[int] = ()) -> None:
        self._path = path
        self._avoid = frozenset(avoid)
        self._held: dict[str, socket.socket] = {}
        known = read_json(path)
        self._known: dict[str, int] = (
            {k: v for k, v in known.items() if isinstance(v, int) and v in INTERNAL} if isinstance(known, dict) else {}
        )

    def get(self, key: str) -> int:
        """Return the port of `key` and reserve it. Raises StartError if no port is free."""
        if (holder := self._held.get(key)) is None:
            holder = self._reserve(self._known.get(key))
            self._held[key] = holder
            port = holder.getsockname()[1]
            if self._known.get(key) != port:
                self._known[key] = port
                self._write()
        return int(holder.getsockname()[1])

    def release(self, key: str) -> None:
        """Forget `key` and its port."""
        if (holder := self._held.pop(key, None)) is not None:
            holder.close()
        if self._known.pop(key, None) is not None:
            self._write()

    def close(self) -> None:
        """Release all ports; they stay recorded for the next start."""
        for holder in self._held.values():
            holder.close()
        self._held.clear()

    def _write(self) -> None:
        try:
            write_json(self._path, self._known)
        except OSError as error:
            if error.errno not in NO_ROOM:  # full disk: the next start may use other ports
                raise

    def _reserve(self, preferred: int | None) -> socket.socket:
        start = random.randrange(len(INTERNAL))
        candidates = itertools.chain((preferred,), INTERNAL[start:], INTERNAL[:start])
        for port in candidates:
            if port is None or port in self._avoid:
                continue
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                holder.bind((LOOPBACK, port))  # without SO_REUSEADDR: fails if any process holds it
            except OSError:
                holder.close()
                if port != preferred or (held := _remembered(port)) is None:
                    continue
                return held
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from now on our server may bind it as well
            return holder
        raise StartError(
            "start.ports.used-up",
            f"no free port left between {INTERNAL.start} and {INTERNAL.stop - 1}: stop some processes.",
        )
