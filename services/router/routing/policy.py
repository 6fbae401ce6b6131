"""Policy: limits of open connections and of messages, and counts of what was refused. The rights of users are in
users.py, those of processes of the suite in peers.py."""

from __future__ import annotations

from services.router.routing.configuration import PolicyConfig


class Policy:
    """Bounds of the router, and counters."""

    def __init__(self) -> None:
        self.config = PolicyConfig()
        self.processed = self.denied = self.current = 0
        self.links_denied = self.size_denied = 0

    def socket_accepted(self) -> bool:
        """Count an accepted socket. Return False if there are too many connections."""
        self.processed += 1
        if self.current >= self.config.max_connections:
            self.denied += 1
            return False
        self.current += 1
        return True

    def socket_closed(self) -> None:
        """Count a client's socket that has closed."""
        self.current -= 1
