"""Refusals of peers, as log events."""

from __future__ import annotations

from enmasse import log
from enmasse.identity.roles import Peer


def log_refusal(peer: Peer | None, address: str, reason: str, *, claimed: str = "") -> None:
    """Log that the process `peer` at `address` (host:port) was refused something. `claimed`: the name that a peer has
    stated without proof."""
    name, role = peer or (claimed, "")
    log.get().warning("identity.peer.refused", peer=address, name=name[:100], role=str(role), reason=reason[:300])
