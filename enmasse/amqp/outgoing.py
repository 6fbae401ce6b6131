"""Output of a session: delivery-ids, the peer's window, deliveries that it has not settled (AMQP 1.0, 2.5.6, 2.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.serial import U32, known, serial_difference
from enmasse.amqp.disposition import send_dispositions
from enmasse.amqp.endpoint import SessionFault
from enmasse.amqp.output import Output

MAX_WINDOW = 0x7FFFFFFF
PATIENCE = 1 << 18
"""Outgoing ids a peer may have looked at without settling any; each that it settles gives it 16 more, up to this."""


class WindowSender(Protocol):
    """A link that sends (sender.Sender), as the window sees it."""

    def pump(self) -> bool: ...
    def failed(self, failure: Exception) -> None: ...
    def room_again(self) -> None: ...
    def outcomes(self, tokens: list[Any], state: Any, settled: bool, ids: Sequence[int] = ()) -> None: ...


S = TypeVar("S", bound=WindowSender)


class OutgoingWindow(Generic[S]):
    """Transfer-ids are delivery-ids plus `extra`: the frames beyond the first of each delivery.

    Two friends read and set these fields themselves, because they do it for every message: Sender, and the reader of
    frames (`unsettled` alone).
    """

    __slots__ = (
        "_gone",
        "_patience",
        "_pumping",
        "channel",
        "extra",
        "halted",
        "max_unsettled",
        "next_id",
        "output",
        "ready",
        "settled",
        "shut",
        "starved",
        "stop",
        "unsettled",
    )

    def __init__(self, output: Output, channel: int, max_unsettled: int) -> None:
        self.output = output
        self.channel = channel
        self.max_unsettled = max_unsettled
        self.next_id = 0
        """Delivery-id of the next delivery."""
        self.extra = 0
        self.stop = 0
        """The delivery-id at which the peer's window is full."""
        self.unsettled: dict[int, tuple[S, Any]] = {}
        """Sender and token by delivery-id, the oldest first."""
        self.ready: deque[S] = deque()
        """Senders with a frame that waits for the window or for the peer's reading."""
        self.starved: dict[S, None] = {}
        """Senders that were denied credit for want of window, reading or settlements."""
        self.halted: dict[S, None] = {}
        """Senders whose begun delivery was held back for want of window or reading."""
        self.settled: list[int] = []
        """Settled by us, to be sent at the next flush."""
        self.shut = False
        """The local end is sent, or the session has ended."""
        self._pumping = False
        self._patience = PATIENCE
        self._gone = 0

    @property
    def next_transfer_id(self) -> int:
        """Transfer-id of the next frame that is sent (next-outgoing-id, 2.5.6)."""
        return (self.next_id + self.extra) & U32

    @property
    def full(self) -> bool:
        """Return True if no transfer frame may be sent until the peer grants more."""
        return self.next_id == self.stop

    def grant(self, next_incoming_id: int, window: int) -> None:
        """The peer takes `window` frames from `next_incoming_id` on. Raises SessionFault."""
        behind = serial_difference(self.next_transfer_id, next_incoming_id)
        if behind < 0:
            raise SessionFault(errors.INVALID_FIELD, f"next-incoming-id {next_incoming_id} has not been sent yet")
        self.stop = (self.next_id + max(0, min(window - behind, MAX_WINDOW))) & U32

    def pump(self) -> None:
        """Send what waits, links in turn, until the window or the peer's reading ends it."""
        if self._pumping:
            return
        self._pumping = True
        ready, output = self.ready, self.output
        try:
            while ready and not output.blocked and self.next_id != self.stop and not self.shut:
                link = ready.popleft()
                try:
                    more = link.pump()
                except Exception as failure:
                    link.failed(failure)
                else:
                    if more:
                        ready.append(link)
        finally:
            self._pumping = False

    def resume(self) -> None:
        """Notify the senders that had no room, if there is room again: begun deliveries continue whatever the number of
        unsettled ones, in which they are counted already."""
        if self.next_id == self.stop or self.output.blocked or self.shut:
            return
        halted, self.halted = self.halted, {}
        for link in halted:
            link.room_again()
        if len(self.unsettled) <= self.max_unsettled // 2:
            starved, self.starved = self.starved, {}
            for link in starved:
                link.room_again()

    def outcomes(self, first: int, count: int, settled: bool, state: Any) -> None:
        """The peer's disposition of a range: `Sender.outcomes`, one call per run of one sender. Raises
        SessionFault if it settles nothing too often: a few bytes may name every unsettled delivery."""
        unsettled = self.unsettled
        ids = known(unsettled, first, count)
        gone = (self.next_id - len(unsettled)) & U32  # deliveries that are settled, on whichever path
        self._patience = min(PATIENCE, self._patience + 16 * ((gone - self._gone) & U32)) - min(count, len(unsettled))
        self._gone = gone
        if self._patience < 0:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, "too many dispositions that settle nothing")
        look = unsettled.pop if settled else unsettled.get
        run: list[Any] = []
        run_ids: list[int] = []
        sender: S | None = None
        for delivery_id in ids:
            entry = look(delivery_id, None)
            if entry is None:
                continue  # a callback has settled it meanwhile
            link, token = entry
            if link is not sender:
                if sender is not None:
                    sender.outcomes(run, state, settled, run_ids)
                sender, run, run_ids = link, [], []
            run.append(token)
            run_ids.append(delivery_id)
        if sender is not None:
            sender.outcomes(run, state, settled, run_ids)

    def senders_of(self, first: int, count: int) -> list[S]:
        """Return the senders of the unsettled deliveries of a range."""
        return list(dict.fromkeys(self.unsettled[id][0] for id in known(self.unsettled, first, count)))

    def settle(self, delivery_ids: Sequence[int]) -> None:
        """Let the peer know at the next flush that deliveries were settled here."""
        self.settled += delivery_ids
        self.output.touch(self.channel)

    def flush(self) -> None:
        """Send the settlements that are due."""
        if self.settled:
            ids, self.settled = self.settled, []
            send_dispositions(self.output, self.channel, ids, False, True, b"\x40")

    def close(self) -> dict[S, list[Any]]:
        """End with the session; return the tokens of unsettled deliveries, by sender."""
        self.shut = True
        lost: dict[S, list[Any]] = {}
        for link, token in self.unsettled.values():
            lost.setdefault(link, []).append(token)
        self.unsettled.clear()
        self.ready.clear()
        self.starved.clear()
        self.halted.clear()
        return lost
