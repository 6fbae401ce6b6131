"""Refusals of peers, as log events."""

from __future__ import annotations

import time

from enmasse import log
from enmasse.audit import Repeats
from enmasse.identity.roles import Peer

_refused: Repeats[tuple[Peer | None, str, str]] = Repeats(time.monotonic)


def log_refusal(peer: Peer | None, address: str, reason: str, *, claimed: str = "") -> None:
    """Log that the process `peer` at `address` (host:port) was refused something. `claimed`: the name that a peer has
    stated without proof."""
    matter = peer, address.rpartition(":")[0], reason
    if count := _refused.count(matter):
        name, role = (None, None) if peer is None else (peer.name, str(peer.role))
        log.audit(
            "audit.peer.refused",
            who=name, role=role, from_=address, what=reason[:300], outcome="refused", count=count,
        )  # fmt: skip
    name, role = peer or (claimed, "")
    log.get().warning("identity.peer.refused", peer=address, name=name[:100], role=str(role), reason=reason[:300])
