"""The link of a follower of live state (enmasse/live_state.py), on this engine."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.link import Sender


class LiveLink:
    """The context of a link that takes live state. `followers`: those that are attached."""

    def __init__(self, link: Sender, followers: set[LiveLink]) -> None:
        self.link = link
        self._followers = followers
        followers.add(self)

    @property
    def ready(self) -> bool:
        """True if the follower has given credit and nothing waits."""
        return not self.link.detached and not self.link.sending and self.link.credit > 0

    def reply(self, payload: bytes) -> None:
        """Send a message, settled."""
        self.link.send(payload, settled=True)

    def flow(self) -> None:
        """Answer a drain: nothing is sent before the next look."""
        self.link.answer_drain(nothing_waits=True)

    def outcomes(self, tokens: list[Any], state: Any, settled: bool) -> None:
        """Do nothing: messages are settled."""

    def detached(self, closed: bool) -> None:
        """The link has ended."""
        self._followers.discard(self)
