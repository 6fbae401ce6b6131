"""Refusals of peers, as log events."""

from __future__ import annotations

import time

from enmasse.identity.processes.roles import Peer
from enmasse.identity.refused import Refusals
from enmasse.logs import log
from enmasse.logs.audit import RepeatedEvents
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network.tls_failures import failure

_refused: RepeatedEvents[tuple[Peer | None, str, str]] = RepeatedEvents(time.monotonic)


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
    name, role = (claimed, "") if peer is None else peer[:2]
    log.get().warning("identity.peer.refused", peer=address, name=name[:100], role=str(role), reason=reason[:300])


def log_handshake(address: str, error: OSError) -> None:
    """Log that the peer at `address` did not get through TLS, unless it just left."""
    if (why := failure(error)) is not None:
        log_refusal(None, address, f"TLS: {why.reason}")


def note_handshake(refusals: Refusals, space: str | None, peer: str, error: OSError) -> None:
    """Note that a client did not get through TLS, unless it just left. `space`: of the listener; None: of all."""
    if (why := failure(error)) is not None:
        refusals.note("connect", **why._asdict(), peer=peer, space=space or DEFAULT_SPACE)
