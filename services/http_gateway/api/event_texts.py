"""Texts of events, each made once for all streams that get the same message: 900 of them made it 900 times."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Final

from enmasse.amqp.messages.jsonform import to_json
from enmasse.amqp.messages.message import Message
from enmasse.bridge.message_fields import DUPLICATE_ID

KEPT: Final = 4 << 20
"""Bytes of messages and their texts that are remembered."""


class EventTexts:
    """Texts of the messages that were used last. `made`: how many were made."""

    def __init__(self) -> None:
        self.made = 0
        self.kept = 0
        """Bytes of what is remembered."""
        self._texts: OrderedDict[bytes, bytes] = OrderedDict()

    def of(self, payload: bytes) -> bytes:
        """Return the field `data` of the event of a message. Raises AmqpError."""
        found = self._texts.get(payload)
        if found is not None:
            self._texts.move_to_end(payload)
            return found
        text = self._make(payload)
        size = len(payload) + len(text)
        if size <= KEPT:
            self._texts[payload] = text
            self.kept += size
            while self.kept > KEPT:
                gone, its = self._texts.popitem(last=False)
                self.kept -= len(gone) + len(its)
        return text

    def _make(self, payload: bytes) -> bytes:
        self.made += 1
        message = Message.decode(payload)
        message.application_properties.pop(DUPLICATE_ID, None)
        return b"data: " + json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n\n"
