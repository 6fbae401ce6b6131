"""Feeds of the configuration service as typed objects (docs/contracts.md, "configserv"; enmasse/model/feeds.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from enmasse.control import jsonmessage
from enmasse.control.connection import ControlConnection
from enmasse.control.errors import DECODE_ERROR, ControlError
from enmasse.control.link import ControlReceiver, Delivery
from enmasse.logs import log
from enmasse.storage.decoding import decode

T = TypeVar("T")


def follow(connection: ControlConnection, feed: str, received: Callable[[T], None], kind: type[T]) -> ControlReceiver:
    """Subscribe to a feed; `received(body)` gets each message, one at a time.

    `kind` is the body's type, one of enmasse.model.feeds. A message that cannot be decoded, or at which `received`
    raises ValueError, is rejected and changes nothing.
    """
    logger = log.get(feed=feed, peer=connection.peer)

    def on_message(delivery: Delivery) -> None:
        try:
            received(decode_body(delivery, kind))
        except (ControlError, ValueError) as error:
            logger.error("feed.snapshot.refused", reason=str(error))
            delivery.reject(DECODE_ERROR, str(error)[:200])
        else:
            delivery.accept()

    receiver = connection.receiver(feed, window=1)
    receiver.on_message = on_message
    return receiver


def decode_body(delivery: Delivery, kind: type[T]) -> T:
    """Decode the JSON object in a message of the configuration service. Raises ControlError, ValueError."""
    return decode(jsonmessage.body(delivery), kind)


def encode_message(subject: str, body: Any) -> bytes:
    """Encode a message of the configuration service: JSON in an amqp-value string."""
    return jsonmessage.encode(subject, msgspec.json.encode(body))
