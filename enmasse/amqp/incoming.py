"""Input of a session: its window, unsettled deliveries, stated outcomes (AMQP 1.0, 2.5.6, 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.serial import U32, known, serial_difference
from enmasse.amqp.disposition import by_state, send_dispositions
from enmasse.amqp.endpoint import SessionFault
from enmasse.amqp.output import Output

_ACCEPTED = encode(ACCEPTED)


class WindowReceiver(Protocol):
    """A link that receives (receiver.Receiver), as the window sees it."""

    def count_settled(self, count: int = 1) -> None: ...
    def top_up(self) -> None: ...


R = TypeVar("R", bound=WindowReceiver)


class IncomingWindow(Generic[R]):
    """A peer may send transfer frames up to the window that we have advertised; it is restored at half.

    Transfer-ids are delivery-ids plus `extra`. Three friends read and set these fields themselves, as they do it
    for every message: Receiver, `Session.settle`, and the reader of frames.
    """

    __slots__ = (
        "_advertised",
        "_channel",
        "_furthest",
        "_half",
        "_initial",
        "_output",
        "_size",
        "_streamed",
        "_unconsumed",
        "accepted",
        "credit_due",
        "due",
        "extra",
        "next_id",
        "others",
        "receivers",
        "stop",
        "unsettled",
        "updates",
        "withheld",
    )

    def __init__(self, output: Output, channel: int, size: int, streamed: int) -> None:
        """`size` frames; `streamed` while pieces of a streamed delivery are not taken."""
        self._output = output
        self._channel = channel
        self._size = size
        self._streamed = max(1, streamed)
        self.next_id = -1
        """The delivery-id that must come next; -1: none has come yet, or the fast path is closed."""
        self.stop = -1
        """The delivery-id that the fast path must not take: accounting is due."""
        self.extra = 0
        self.unsettled: dict[int, R] = {}
        """The receivers of what we have not settled, by delivery-id, the oldest first."""
        self.receivers: dict[int, R] = {}
        """By the peer's handle: those the fast path may serve."""
        self.due = False
        """The window is to be restored at the next flush."""
        self.withheld = False
        """The window is smaller than it would be if streamed deliveries were taken."""
        self.accepted: list[int] = []
        self.others: list[tuple[int, Any]] = []
        self.updates: dict[int, Any] = {}
        """Decided, to be sent at the next flush: accepted, settled otherwise, stated without settling. An outcome is
        final (3.4): one that is stated after it for the same delivery has no effect."""
        self.credit_due: list[R] = []
        self._initial = 0  # next-incoming-id while next_id is -1
        self._advertised = size & U32  # transfer-id up to which the peer may send, as advertised last
        self._furthest = self._advertised  # ever: a smaller window crosses what is on its way
        self._half = size // 2
        self._unconsumed = 0  # frames of streamed deliveries that were not taken

    @property
    def size(self) -> int:
        """Transfer frames that the peer may send at a time."""
        return self._size

    @property
    def next_transfer_id(self) -> int:
        """Transfer-id of the next frame that comes (next-incoming-id, 2.5.6)."""
        return self._initial if self.next_id < 0 else (self.next_id + self.extra) & U32

    @property
    def crowded(self) -> bool:
        """Pieces of streamed deliveries that were not taken fill more than half of the window."""
        return 2 * self._unconsumed > min(self._size, self._streamed)

    def begin(self, next_outgoing_id: int) -> None:
        """The peer has begun, and counts its transfers from here."""
        self._initial = next_outgoing_id
        self._advertised = self._furthest = (next_outgoing_id + self._size) & U32

    # --- transfers ----------------------------------------------------------------------------------------------------

    def first_frame(self, delivery_id: int) -> None:
        """A delivery begins. Raises SessionFault if it is out of turn, or beyond the window."""
        if self.next_id < 0:
            self.extra = (self._initial - delivery_id) & U32
        elif delivery_id != self.next_id:
            raise SessionFault(
                errors.INVALID_FIELD, f"sequencing error, expected delivery-id {self.next_id}, got {delivery_id}"
            )
        self.next_id = (delivery_id + 1) & U32
        self._count_frame()

    def further_frame(self) -> None:
        """Count a further frame of a delivery. Raises SessionFault beyond the window."""
        self.extra = (self.extra + 1) & U32
        self._count_frame()

    def _count_frame(self) -> None:
        next_transfer_id = self.next_transfer_id
        if serial_difference(self._furthest, next_transfer_id) < 0:
            raise SessionFault(errors.WINDOW_VIOLATION, "more transfers than the incoming window allows")
        if serial_difference(self._advertised, next_transfer_id) <= self._half and not self.due:
            self.want_restored()
        self._set_stop()

    def _set_stop(self) -> None:
        """Set the id at which the fast path must stop: at half of the window, at the full window once a flow is due,
        at the wrap."""
        if self.next_id >= 0:
            if self.due:
                left = serial_difference(self._furthest, self.next_transfer_id)
            else:
                left = serial_difference(self._advertised, self.next_transfer_id) - self._half - 1
            self.stop = min(self.next_id + max(0, left), U32)

    def hold_frame(self) -> None:
        """A piece of a streamed delivery waits to be taken."""
        self._unconsumed += 1

    def consumed(self, frames: int) -> None:
        """Count pieces of streamed deliveries that were taken or discarded."""
        self._unconsumed -= frames
        if self.withheld and not self.due:
            self.want_restored()

    def want_restored(self) -> None:
        """Restore the window at the next flush."""
        self.due = True
        self._output.touch(self._channel)

    def restore(self) -> int:
        """Return the incoming-window for a flow that is about to be sent; it holds from now on."""
        next_transfer_id = self.next_transfer_id
        window = self._size
        if self._unconsumed:
            window = max(0, min(window, self._streamed) - self._unconsumed)
        self._advertised = (next_transfer_id + window) & U32
        if serial_difference(self._advertised, self._furthest) > 0:
            self._furthest = self._advertised
        self._half = window // 2
        self.withheld = window < self._size
        self.due = False
        self._set_stop()
        return window

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def settled_by_sender(self, first: int, count: int, report: Callable[[R, Sequence[int]], None]) -> None:
        """The peer's disposition of a range that it has sent: `report`, one call per run of one receiver."""
        unsettled = self.unsettled
        run: list[int] = []
        receiver: R | None = None
        for delivery_id in known(unsettled, first, count):
            link = unsettled.pop(delivery_id, None)
            if link is None:
                continue
            if link is not receiver:
                if receiver is not None:
                    receiver.count_settled(len(run))
                    report(receiver, run)
                receiver, run = link, []
            run.append(delivery_id)
        if receiver is not None:
            receiver.count_settled(len(run))
            report(receiver, run)

    def flush(self) -> None:
        """Send the outcomes and the credit that are due."""
        output, channel = self._output, self._channel
        if self.updates:  # before the settlements, which may be of the same deliveries
            updates, self.updates = self.updates, {}
            for state, ids in by_state(updates.items()):
                send_dispositions(output, channel, ids, True, False, state)
        if self.accepted:
            ids, self.accepted = self.accepted, []
            send_dispositions(output, channel, ids, True, True, _ACCEPTED)
        if self.others:
            others, self.others = self.others, []
            for state, ids in by_state(others):
                send_dispositions(output, channel, ids, True, True, state)

    def flush_credit(self) -> None:
        """Send the credit that is due; each such flow restores the window."""
        if self.credit_due:
            due, self.credit_due = self.credit_due, []
            for link in due:
                link.top_up()

    def shut(self) -> None:
        """Stop delivering by the fast path."""
        self.next_id = self.stop = -1

    def close(self) -> None:
        """End with the session."""
        self.shut()
        self.unsettled.clear()

    def let_go(self) -> None:
        """Release the links, which have ended too."""
        self.credit_due = []
        self.receivers.clear()
