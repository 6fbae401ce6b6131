"""Bounds of what one connection may make this process hold."""

from __future__ import annotations

from dataclasses import dataclass

MOST_REFUSED = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one connection may make this process hold. Sizes in bytes, times in milliseconds."""

    max_sessions: int = 256
    """Sessions at a time; channel-max is one less (2.7.1)."""
    max_links: int = 1024
    """Links at a time over all sessions. A further one is refused; a peer that makes `MOST_REFUSED` more without
    taking note of it loses the session."""
    max_link_state: int = 8 * 1024 * 1024
    """Encoded size of all attach frames that are remembered."""
    max_message_size: int = 100 * 1024 * 1024
    """A message of several frames on a link that is not streaming (2.7.3)."""
    max_partial: int = 256 * 1024 * 1024
    """All begun and unfinished messages of the connection together."""
    max_streamed: int = 8 * 1024 * 1024
    """Pieces that came on streaming links and were not taken: beyond it the socket is not read."""
    max_buffered: int = 16 * 1024 * 1024
    """Output the peer does not read: beyond it the connection is dropped."""
    max_unsettled: int = 65536
    """Sent and unsettled deliveries per session: at it `Sender.credit` is 0."""
    incoming_window: int = 2048
    """Transfer frames a peer may send per session before we restore its window (2.5.6)."""
    streaming_window: int = 4 * 1024 * 1024
    """Bytes of the session window while pieces of a streamed delivery are not taken."""
    max_sasl_frame: int = 8192
    """A SASL frame; the specification wants 512 (5.3.1), tokens are longer."""
    handshake_timeout_ms: int = 10_000
    """From the first byte to the peer's open."""
    close_timeout_ms: int = 5_000
    """From our close to the peer's, before the socket is dropped."""


INNER_LIMITS = Limits(max_links=65536, max_link_state=64 << 20)
"""Between a router and a broker, or two routers: one connection carries the links of all clients, and two for each
queue."""
