"""Bodies of requests that come in blocks (RFC 7959, Block1), until they are complete. Their number and bytes are
bounded: what makes no progress goes first."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final

from enmasse.wire_formats.coap_messages import SIZE1, CoapBlock, uint
from services.coap_gateway.coap_answers import LATER, CoapAnswer

IDLE: Final = 60.0
"""Seconds without a block after which a body is given up."""
OF_UPLOAD: Final = 600
"""Bytes that an upload has beside its blocks."""
OF_ENDPOINT: Final = 16
"""Uploads of an endpoint."""
UNPROVEN: Final = 1000
"""Uploads of endpoints that have not proved their address; from half of it on they prove it first."""
_LOOK: Final = 32
"""Uploads among which one of an endpoint that has not proved its address is looked for, to give way."""


UploadKey = tuple[int, bytes]
"""Number of an endpoint, and a digest of what is the same for all blocks of a body."""


class _Upload:
    __slots__ = ("at", "body", "proven")

    def __init__(self, proven: bool) -> None:
        self.body = bytearray()
        self.at = 0.0
        self.proven = proven


class CoapUploads:
    """`memory`: bytes of all. `now`: a clock in seconds."""

    def __init__(self, memory: int, now: Callable[[], float]) -> None:
        self.kept = 0
        self.given_up = 0
        self._memory = memory
        self._now = now
        self._uploads: OrderedDict[UploadKey, _Upload] = OrderedDict()
        self._of_endpoints: Counter[int] = Counter()
        self._unproven = 0

    def __len__(self) -> int:
        return len(self._uploads)

    @property
    def pressed(self) -> bool:
        """Half of the memory is used, or half of UNPROVEN: endpoints prove their address first."""
        return self.kept > self._memory // 2 or self._unproven >= UNPROVEN // 2

    def take(self, key: UploadKey, block: CoapBlock, payload: bytes, most: int, *, proven: bool) -> bytes | None:
        """Return the body, if this block is its last one; None: the next one is asked for. Raises CoapAnswer."""
        if block.more and len(payload) != block.size:
            raise CoapAnswer("4.00", f"a block that is not the last has {block.size} bytes")
        if not block.number:
            self._drop(key)
            if not block.more:
                return payload
            found = self._begin(key, proven)
        else:
            upload = self._uploads.get(key)
            if upload is None:
                raise CoapAnswer("4.08", "blocks before this one are not there: begin again")
            found = upload
        offset = block.number * block.size
        if offset + len(payload) > most:
            self._drop(key)
            raise CoapAnswer("4.13", f"a message has at most {most} bytes", options=((SIZE1, uint(most)),))
        if offset != len(found.body):
            if found.body[offset : offset + len(payload)] == payload and block.more:
                return None  # it came before, under another id
            self._drop(key)
            raise CoapAnswer("4.08", "a block is missing: begin again")
        if not block.more:
            body = bytes(found.body) + payload
            self._drop(key)
            return body
        found.body += payload
        found.at = self._now()
        self.kept += len(payload)
        self._uploads.move_to_end(key)
        while self.kept > self._memory and len(self._uploads) > 1:
            self._give_way()
        return None

    def _begin(self, key: UploadKey, proven: bool) -> _Upload:
        endpoint, _ = key
        if self._of_endpoints[endpoint] >= OF_ENDPOINT:
            text = f"a client has at most {OF_ENDPOINT} bodies that come in blocks: complete some first"
            raise CoapAnswer("4.29", text, retry=LATER)
        if not proven and self._unproven >= UNPROVEN:
            raise CoapAnswer("5.03", "the gateway has too many bodies that come in blocks", retry=LATER)
        made = self._uploads[key] = _Upload(proven)
        self._of_endpoints[endpoint] += 1
        self._unproven += not proven
        self.kept += OF_UPLOAD
        return made

    def _give_way(self) -> None:
        oldest = islice(self._uploads.items(), min(_LOOK, len(self._uploads) - 1))
        unproven = next((key for key, each in oldest if not each.proven), None)
        self._drop(next(iter(self._uploads)) if unproven is None else unproven)
        self.given_up += 1

    def _drop(self, key: UploadKey) -> None:
        if (found := self._uploads.pop(key, None)) is not None:
            self.kept -= OF_UPLOAD + len(found.body)
            self._unproven -= not found.proven
            self._of_endpoints[key[0]] -= 1
            if not self._of_endpoints[key[0]]:
                del self._of_endpoints[key[0]]

    def tick(self) -> None:
        """Give up what no block has come of for too long."""
        before = self._now() - IDLE
        while self._uploads:
            key, first = next(iter(self._uploads.items()))
            if first.at > before:
                return
            self._drop(key)
            self.given_up += 1
