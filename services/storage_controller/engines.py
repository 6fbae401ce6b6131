"""What differs between broker products, in one table: nothing else in the controller asks which product it manages.

All are managed as Apache ActiveMQ Artemis is (`activemq.management`), with its names of settings and its error codes.
"""

from __future__ import annotations

from typing import NamedTuple


class Engine(NamedTuple):
    """One product's capabilities, as far as the controller depends on them."""

    name: str
    duplicates_by_address: bool
    """Recognises copies by their message-id for a single address, by an address setting (else for a whole acceptor)."""


EMBEDDED = Engine("embedded", duplicates_by_address=True)
ARTEMIS = Engine("artemis", duplicates_by_address=False)
