"""Followers of the live state of routers, brokers and gateways (docs/contracts.md, "Live state")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from enmasse.control import jsonmessage
from enmasse.control.connection import ControlConnection
from enmasse.control.errors import DECODE_ERROR, ControlError
from enmasse.control.link import ControlReceiver, Delivery
from enmasse.live_state import NODE, Merged, Row
from enmasse.logs import log

WINDOW: Final = 20
"""Messages that may be under way: a first state of many rows comes at once, and a follower that stands still gets the
newest state when it continues."""


def follow(
    connection: ControlConnection,
    merged: Merged,
    changed: Callable[[Row], None] = lambda body: None,
    *,
    node: str = NODE,
) -> ControlReceiver:
    """Keep `merged` as the process at the other end says; `changed(body)` gets each message after it was merged.

    `node`: NODE, or of a gateway behind a router `$live/<name>`. A message that cannot be decoded, or at which
    `changed` raises ValueError, is rejected; the next one that is full makes up for it.
    """
    logger = log.get(feed=node, peer=connection.peer)

    def on_message(delivery: Delivery) -> None:
        try:
            body = msgspec.json.decode(jsonmessage.body(delivery), type=dict)
            merged.apply(body)
            changed(body)
        except (ControlError, ValueError, KeyError, TypeError) as error:
            logger.error("live.message.refused", reason=str(error))
            delivery.reject(DECODE_ERROR, str(error)[:200])
        else:
            delivery.accept()

    receiver = connection.receiver(node, window=WINDOW)
    receiver.on_message = on_message
    return receiver
