"""The one loop over the bytes read: frames, with transfer and disposition in their usual encodings taken apart by hand.

What makes it fast, in the order it matters: one `unpack_from` gives size, kind and channel of a frame; kind and channel
together are one integer, compared with that of the last transfer (or disposition); the fields after the delivery-tag
hardly vary, so their bytes are looked up in a table of those met before; tokens of consecutive dispositions are
collected and handed on as one list (payloads of consecutive transfers too, if a receiver asks for it). Whatever does
not fit goes to `on_frame`, which decodes by the tables and checks everything; the fast path checks all that it relies
on, so a frame means the same on both.

This module is a stated friend of IncomingWindow, OutgoingWindow and Receiver: for each message it reads and advances
`next_id`, `stop`, `unsettled` and `receivers` of the windows and `received`, `settled`, `limit` and `topup_at` of the
receiver itself, because a call for each would cost a tenth of what a message costs. No other module does.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, cast

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Disposition, TransactionalState, Transfer
from enmasse.amqp.incoming import IncomingWindow
from enmasse.amqp.receiver import Receiver
from enmasse.amqp.sender import Sender
from enmasse.amqp.session import Session

OnFrame = Callable[[int, int, bytes, int, int], bool]
"""(type, channel, data, start, end) → True if sessions and links are unchanged and the connection has not ended."""
_HEAD = Struct(">IQBBBB").unpack_from  # size | doff, type, channel, 00 53 code c0 | list size, count | two bytes more
_IDS = Struct(">BIBB").unpack_from  # code, delivery-id, code, size of the delivery-tag
_FIRST = Struct(">IBI").unpack_from  # first, code, last
_SIZE = Struct(">I").unpack_from
_BASIC = Struct(">IBBH").unpack_from
_WIDE = Struct(">IIBB").unpack_from  # the same of a list32: list size, count | two bytes more
_FAST_BYTES = 26  # what the fixed reads of the fast path may touch
_WIDE_BYTES = 34
_TRANSFER = 0x005314C0
_DISPOSITION = 0x005315C0
_TO_WIDE = 0x10  # what a list32 adds to them
_KIND = 0xFFFF0000FFFFFFFF  # of a key: without the channel
_PLAIN = 2 << 56  # data offset 2, type 0
_TRANSFER_KINDS = (_PLAIN | _TRANSFER, _PLAIN | _TRANSFER + _TO_WIDE)
_DISPOSITION_KINDS = (_PLAIN | _DISPOSITION, _PLAIN | _DISPOSITION + _TO_WIDE)

_Tail = tuple[int, bool, int, TransactionalState | None]
"""Number of fields of a transfer, whether it is settled, message-format, transaction."""
_NO_TRANSFER: _Tail = (-1, False, 0, None)
_NO_DISPOSITION = (-1, None)
SLICE_BYTES = 64 * 1024
"""Bytes of a slice of the input (up to half as many again at the end). After a slice, after SLICE_FRAMES frames that
went by the tables, or after one that changed sessions or links, `read` returns, so that the caller can serve another
connection."""
SMALL_SLICE_BYTES = 8 * 1024
"""Bytes of a slice on a connection whose owner shares turns with others (`Connection.take_turns`)."""
SLICE_FRAMES = 8
MOST = 2048
"""Ids of a disposition looked for one by one here; longer ranges go by the tables, which keep count (`PATIENCE`)."""
_MAX_TAILS = 32
_MAX_WORK_TAIL = 96  # bytes of the end of a transfer that names a transaction
_HANDLE_SIZE = {0x43: 1, 0x52: 2, 0x70: 5}


class Reader:
    """Reads the frames of one peer, and remembers how it encodes the ends of its transfers and dispositions."""

    __slots__ = ("_disposition_tails", "_max_frame_size", "_sessions", "_transfer_tails", "_work_tails", "slice_bytes")

    def __init__(self, max_frame_size: int, sessions: dict[int, Session]) -> None:
        """`sessions` by the peer's channel."""
        self.slice_bytes = SLICE_BYTES
        self._max_frame_size = max_frame_size
        self._sessions = sessions
        self._transfer_tails: dict[bytes, _Tail] = {}
        self._work_tails: dict[bytes, _Tail] = {}
        """Ends of transfers in transactions, the last ones: those of one have the same, with its id."""
        self._disposition_tails: dict[bytes, tuple[int, Any]] = {}

    def read(self, data: bytes, pos: int, on_frame: OnFrame, is_open: Callable[[], bool]) -> int:
        """Process whole frames of `data` from `pos` on, at most one slice; returns where the next one begins.

        Raises AmqpError(amqp:connection:framing-error).
        """
        end = len(data)
        size = self.slice_bytes
        if end - pos > size + size // 2:  # a small rest goes with the last slice
            end = min(end, pos + max(size, _SIZE(data, pos)[0]))
        by_tables = SLICE_FRAMES
        max_size = self._max_frame_size
        sessions = self._sessions
        transfer_tails, disposition_tails = self._transfer_tails, self._disposition_tails
        work_tails = self._work_tails
        transfer_key = disposition_key = -1
        wide_transfer = wide_disposition = False
        window: IncomingWindow[Receiver] = cast("IncomingWindow[Receiver]", None)  # set together with transfer_key
        receivers: dict[int, Receiver] = {}
        incoming: dict[int, Receiver] = {}
        outgoing: dict[int, tuple[Sender, Any]] = {}
        link: Receiver | None = None
        link_handle = -1
        run: list[Any] = []  # tokens of one sender, all with run_state
        run_sender: Sender | None = None
        run_state: Any = None
        batch: list[bytes] = []  # payloads of consecutive deliveries, for a receiver that takes them by on_run
        batch_link: Receiver | None = None
        batch_first = batch_at = 0
        batch_settled = False
        try:
            while True:
                left = end - pos
                if left >= _FAST_BYTES:
                    size, key, list_size, count, code, byte = _HEAD(data, pos)
                elif left >= 8:
                    size = _SIZE(data, pos)[0]
                    key = -2
                else:
                    break
                frame_end = pos + size
                if size > max_size:
                    raise AmqpError(errors.FRAMING_ERROR, f"a frame of {size} bytes, {max_size} were agreed")
                if frame_end > end:
                    break

                if key == transfer_key and (not wide_transfer or left >= _WIDE_BYTES):
                    if wide_transfer:
                        list_size, count, code, byte = _WIDE(data, pos + 12)
                        payload_at = pos + 16 + list_size
                        at = pos + 21
                    else:
                        payload_at = pos + 13 + list_size
                        at = pos + 15
                    if code == 0x43:
                        handle = 0
                    elif code == 0x52:
                        handle = byte
                        at += 1
                    elif code == 0x70:
                        handle = _SIZE(data, at)[0]
                        at += 4
                    else:
                        handle = -2
                    if handle != link_handle:
                        link = receivers.get(handle)
                        link_handle = handle
                    if link is not None:
                        id_code, delivery_id, tag_code, tag_size = _IDS(data, at)
                        tag_at = at + 7
                        tail_at = tag_at + tag_size
                        tail = data[tail_at:payload_at]
                        known = transfer_tails.get(tail)
                        if known is None:
                            known = (
                                _NO_TRANSFER if link.on_transactional is None else work_tails.get(tail, _NO_TRANSFER)
                            )
                        tail_count, settled, message_format, state = known
                        received = link.received + 1
                        if (
                            tail_count == count
                            and id_code == 0x70
                            and tag_code == 0xA0
                            and tag_size <= 32
                            and payload_at <= frame_end
                            and delivery_id == window.next_id
                            and delivery_id != window.stop
                            and received <= link.limit
                        ):
                            window.next_id = delivery_id + 1
                            link.received = received
                            if settled:
                                link.settled += 1
                                if link.settled >= link.topup_at:
                                    link.want_flow()
                            else:
                                incoming[delivery_id] = link
                            if link.on_run is not None and not message_format and state is None:
                                if link is not batch_link or settled is not batch_settled:
                                    if batch_link is not None:
                                        full, batch_link, payloads, batch = batch_link, None, batch, []
                                        full.take_run(batch_first, payloads, batch_settled, data, batch_at)
                                    batch_link = link
                                    batch_settled = settled
                                    batch_first = delivery_id
                                    batch_at = pos
                                batch.append(data[payload_at:frame_end])
                                pos = frame_end
                                continue
                            if batch_link is not None:
                                full, batch_link, payloads, batch = batch_link, None, batch, []
                                full.take_run(batch_first, payloads, batch_settled, data, batch_at)
                            if state is not None:
                                payload, tag = data[payload_at:frame_end], data[tag_at:tail_at]
                                link.take_work(delivery_id, settled, payload, tag, message_format, state)
                                pos = frame_end
                                continue
                            link.bytes += frame_end - payload_at
                            try:
                                link.on_delivery(
                                    link,
                                    delivery_id,
                                    settled,
                                    data[payload_at:frame_end],
                                    data[tag_at:tail_at],
                                    message_format,
                                )
                            except Exception as failure:
                                link.failed(failure)
                            pos = frame_end
                            continue
                elif key == disposition_key and (not wide_disposition or left >= _WIDE_BYTES):
                    if wide_disposition:
                        list_size, count, code, byte = _WIDE(data, pos + 12)
                        tail_end = pos + 16 + list_size
                        at = pos + 22
                    else:
                        tail_end = pos + 13 + list_size
                        at = pos + 16
                    if code == 0x41 and byte == 0x70:
                        first, last_code, last = _FIRST(data, at)
                        if last_code == 0x70:
                            tail_at = at + 9
                        elif last_code == 0x40:
                            last = first
                            tail_at = at + 5
                        else:
                            tail_at = end
                        tail_count, state = disposition_tails.get(data[tail_at:tail_end], _NO_DISPOSITION)
                        if (
                            tail_count == count
                            and tail_end == frame_end
                            and 0 <= last - first <= MOST
                            and last - first <= len(outgoing) + 16
                        ):
                            while first <= last:
                                entry = outgoing.pop(first, None)
                                first += 1
                                if entry is not None:
                                    sender, token = entry
                                    if sender is not run_sender or state is not run_state:
                                        if run_sender is not None:
                                            run_sender.outcomes(run, run_state, True)
                                            run = []
                                        run_sender = sender
                                        run_state = state
                                    run.append(token)
                            pos = frame_end
                            continue
                elif (key >> 32) & 0xFFFF in sessions and is_open():
                    # a transfer or disposition of another session than the last one: turn to it and look again
                    kind = key & _KIND
                    if kind in _TRANSFER_KINDS and key != transfer_key:
                        transfer_key = key
                        wide_transfer = kind & 0xFF == 0xD0
                        window = sessions[(key >> 32) & 0xFFFF].incoming
                        receivers = window.receivers
                        incoming = window.unsettled
                        link = None
                        link_handle = -1
                        continue
                    if kind in _DISPOSITION_KINDS and key != disposition_key:
                        disposition_key = key
                        wide_disposition = kind & 0xFF == 0xD0
                        outgoing = sessions[(key >> 32) & 0xFFFF].outgoing.unsettled
                        continue

                # everything else, by the tables
                if batch_link is not None:
                    full, batch_link, payloads, batch = batch_link, None, batch, []
                    full.take_run(batch_first, payloads, batch_settled, data, batch_at)
                if run_sender is not None:
                    sender, run_sender, tokens, run = run_sender, None, run, []
                    sender.outcomes(tokens, run_state, True)
                size, doff, frame_type, channel = _BASIC(data, pos)
                body = pos + 4 * doff
                if doff < 2 or body > frame_end:
                    raise AmqpError(errors.FRAMING_ERROR, f"a frame of {size} bytes with data offset {doff}")
                plain = True
                if body != frame_end or frame_type != 0:
                    plain = on_frame(frame_type, channel, data, body, frame_end)
                    if not plain:  # sessions or links came or went, or the connection has ended
                        transfer_key = disposition_key = -1
                link_handle = -1
                link = None
                pos = frame_end
                by_tables -= 1
                if not plain or not by_tables:
                    break
        finally:  # also after a broken frame
            if batch_link is not None:
                batch_link.take_run(batch_first, batch, batch_settled, data, batch_at)
            if run_sender is not None:
                run_sender.outcomes(run, run_state, True)
        return pos

    def learn(self, performative: Any, data: bytes, start: int, stop: int) -> None:
        """Remember how this peer encodes the end of a frame that came by the tables and that the fast path could have
        served. `start` is where the performative begins, `stop` where its list ends."""
        if data[start + 3] == 0xC0:
            count = data[start + 5]
            first = start + 6
        elif data[start + 3] == 0xD0:
            count = _SIZE(data, start + 8)[0]
            first = start + 12
        else:
            return
        if type(performative) is Transfer:
            transfer, state = performative, performative.state
            if (
                transfer.delivery_id is None
                or transfer.delivery_tag is None
                or transfer.more
                or transfer.aborted
                or transfer.resume
                or (state is not None and not isinstance(state, TransactionalState))
                or transfer.rcv_settle_mode is not None
            ):
                return
            at = first + _HANDLE_SIZE.get(data[first], 0)
            if data[at] != 0x70 or data[at + 5] != 0xA0:
                return
            tail = data[at + 7 + data[at + 6] : stop]
            fields = (count, bool(transfer.settled), int(transfer.message_format or 0), state)
            if state is not None:
                if len(tail) <= _MAX_WORK_TAIL:
                    if len(self._work_tails) >= _MAX_TAILS:
                        self._work_tails.clear()
                    self._work_tails[tail] = fields
            elif 0 < len(tail) <= 24 and len(self._transfer_tails) < _MAX_TAILS:
                self._transfer_tails[tail] = fields
        elif type(performative) is Disposition:
            disposition = performative
            if (
                len(self._disposition_tails) < _MAX_TAILS
                and disposition.role
                and disposition.settled
                and data[first] == 0x41
                and data[first + 1] == 0x70
                and data[first + 6] in (0x70, 0x40)
                and (disposition.state is ACCEPTED or disposition.state is RELEASED)
            ):
                tail = data[first + (11 if data[first + 6] == 0x70 else 7) : stop]
                if 0 < len(tail) <= 24:
                    self._disposition_tails[tail] = (count, disposition.state)
