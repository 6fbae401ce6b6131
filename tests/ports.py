"""Ports for the servers that tests start."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

FIRST, LAST, BLOCK = 20_000, 32_700, 100
"""Below the ports that the kernel hands out by itself: no client's connection gets one of them meanwhile."""


def free_port() -> int:
    """A port nobody has now; never the same one twice, nor one that another run of tests on this machine was given."""
    for port in _candidates:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no free port between {FIRST} and {LAST}")


def _of_own_blocks() -> Iterator[int]:
    """Ports of blocks that are this process's own until it ends: it holds an abstract socket's name for each."""
    blocks = list(range(FIRST, LAST, BLOCK))
    random.Random().shuffle(blocks)  # not the global one, which Hypothesis seeds
    for block in blocks:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0enmasse-tests-ports-{block}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        yield from range(block, block + BLOCK)


_claims: list[socket.socket] = []
_candidates = _of_own_blocks()
