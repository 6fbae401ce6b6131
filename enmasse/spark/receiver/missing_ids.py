"""Number of messages without a message-id, of which a redelivered copy cannot be recognised."""

from __future__ import annotations

from collections.abc import Sequence

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Sections
from enmasse.amqp.messages.scan import PROPERTIES

SHORT_LIST, NULL = 0xC0, 0x40


class MissingIds:
    """Counter. Most messages of an address begin alike up to their properties: that beginning is remembered, so that a
    message costs two comparisons."""

    __slots__ = ("_at", "_begin", "count")

    def __init__(self) -> None:
        self.count = 0
        self._begin, self._at = b"\xff", 0

    def add(self, payloads: Sequence[bytes]) -> None:
        """Count those of the messages that have no message-id, or do not decode."""
        for payload in payloads:
            if not payload.startswith(self._begin) or len(payload) <= self._at + 2:
                self._remember(payload)
            elif payload[self._at + 2] == NULL or not payload[self._at + 1]:  # null, or a list without fields
                self.count += 1

    def _remember(self, payload: bytes) -> None:
        """Count a message that begins unlike the one before it."""
        try:
            sections = Sections(payload)
            at = sections.value_at(PROPERTIES)
            if at >= 0 and payload[at] == SHORT_LIST:
                self._begin, self._at = payload[: at + 1], at + 1
            if sections.message_id is None:
                self.count += 1
        except (AmqpError, IndexError):
            self.count += 1
