"""State of an address space, with the address to which replies to its requests are sent."""

from __future__ import annotations

from enmasse.bridge.lanes import Counters
from enmasse.bridge.space_lanes import SpaceLanes
from services.http_gateway.api.reply_box import ReplyBox


class HttpSpace(SpaceLanes):
    """As bridge.GatewaySpace."""

    def __init__(self, space: str, counters: Counters) -> None:
        super().__init__(space, counters)
        self.replies = ReplyBox()
