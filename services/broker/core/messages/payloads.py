"""Payloads of messages: in memory as long as there is room, otherwise in the store or the pager."""

from __future__ import annotations

from collections.abc import Sequence

from enmasse.logs import log
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.messages.stored_message import PARTLY, STORED, StoredMessage
from services.broker.core.persistence import MessageStore, PageStore

_log = log.get()


class Payloads:
    """Payloads of messages: in memory, in the store, or in the pager."""

    def __init__(self, ledger: BrokerTotals, store: MessageStore | None, pager: PageStore | None) -> None:
        self._ledger = ledger
        self._store = store
        self._pager = pager

    def load(self, message: StoredMessage) -> bytes | None:
        """Return the payload of a message, from disk if it is not in memory; None if it is gone for good: there is no
        such record, or its checksum is wrong. Raises OSError if it cannot be read now, which states nothing of the
        message: it stays where it is (see `Queue.read`)."""
        if message.payload is not None:
            return message.payload
        try:
            if message.place is not None and self._pager is not None:
                return self._pager.read(message.place)
            if self._store is not None:
                return self._store.load(message.id)
        except LookupError:
            pass
        return None

    def put_out(self, message: StoredMessage) -> None:
        """Remove the payload from memory if it is on disk or can be written there."""
        payload = message.payload
        if payload is None:
            return
        if message.flags & (STORED | PARTLY) != STORED:
            if self._pager is None:
                return
            try:
                message.place = self._pager.write(payload)
            except OSError as error:
                _log.warning(
                    "broker.paging.failed",
                    address=message.owner.name,
                    reason=str(error),
                    space=message.owner.tenant,
                )
                return
        message.payload = None
        self._ledger.put_out(message.size)

    def make_room(self, messages: Sequence[StoredMessage]) -> None:
        """Put out the payloads of messages of one owner that are still held, if there is too much in memory."""
        if messages and self.pressed_by(messages[0]):
            for message in messages:
                if message.refs:
                    self.put_out(message)

    def pressed_by(self, message: StoredMessage) -> bool:
        """Return whether payloads of messages such as this should leave memory."""
        ledger, owner = self._ledger, message.owner
        return ledger.resident > ledger.memory_limit or owner.size > owner.limit

    def bring_in(self, messages: list[StoredMessage], size: int) -> None:
        """Read payloads of the next messages, up to `size` bytes and as far as there is memory."""
        ledger = self._ledger
        size = min(size, ledger.memory_limit - ledger.resident)
        count = 0
        for message in messages:
            size -= message.size
            if size < 0:
                break
            count += 1
        wanted = [message for message in messages[:count] if message.payload is None]
        stored = self._store.load_many([m.id for m in wanted if m.place is None]) if self._store is not None else {}
        for message in wanted:
            payload = stored.get(message.id)
            if message.place is not None:
                try:
                    payload = self.load(message)
                except OSError:
                    break  # reported when it is about to be sent
            if payload is None:
                continue
            self._release_place(message)
            message.payload = payload
            ledger.bring_in(message.size)

    def change(self, message: StoredMessage, payload: bytes) -> None:
        """Another payload, in memory until it is put out; the caller has stored it if it is to be durable."""
        size = message.size if message.payload is not None else 0
        self._ledger.change(message.owner, len(payload) - message.size, len(payload) - size)
        self._release_place(message)
        message.payload = payload
        message.size = len(payload)

    def drop(self, message: StoredMessage) -> None:
        """A queue's reference is gone; with the last one, the message."""
        message.refs -= 1
        if not message.refs:
            self.release(message)

    def release(self, message: StoredMessage) -> None:
        """The last reference is gone."""
        size = message.size
        self._ledger.remove(message.owner, 1, size, size if message.payload is not None else 0)
        self._release_place(message)

    def _release_place(self, message: StoredMessage) -> None:
        if message.place is not None and self._pager is not None:
            self._pager.release(message.place)
            message.place = None
