"""Ports for what a test starts, which nobody else on the machine is given in the meantime."""

from __future__ import annotations

import os
import socket
from collections import deque

FIRST, LAST = 20_000, 31_999
"""Below the ephemeral range (32768 on Linux), so that no outgoing connection takes one either."""
HELD = 128
"""Ports kept at a time: whoever wants one has long taken it when so many later ones have been given away."""

_held: deque[socket.socket] = deque()
_next = os.getpid() % (LAST - FIRST + 1)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has. Raises AssertionError where there is none.

    It stays bound by a socket that does not listen. With SO_REUSEADDR on both, as all our servers and Proton's have it,
    another socket may bind and listen beside it; a connect before that is refused as on any free port; and another test
    run that looks for a port, which binds without the option, gets another one.
    """
    global _next
    for _ in range(LAST - FIRST + 1):
        port = FIRST + _next
        _next = (_next + 1) % (LAST - FIRST + 1)
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.append(probe)
        if len(_held) > HELD:
            _held.popleft().close()
        return port
    raise AssertionError("no free port")
