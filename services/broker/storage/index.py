"""Location of each live message, in 20 bytes of memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

BLOCK_BITS = 8
BLOCK_MASK = (1 << BLOCK_BITS) - 1
MANY = (1 << 64) - 1  # in `queues`: several, look into `Index.many`
ORPHAN = MANY - 1  # no queue yet: only during replay, where a reference may follow the removal of others

NO_QUEUES = array("Q", bytes(8 << BLOCK_BITS))
_ZERO4 = array("I", bytes(4 << BLOCK_BITS))


class Block:
    """256 consecutive ids. `queues[i]` == 0: the message does not exist."""

    __slots__ = ("live", "locations", "queues", "sizes")

    def __init__(self) -> None:
        self.locations = NO_QUEUES[:]  # of the message's authoritative record
        self.queues = NO_QUEUES[:]  # the one queue that refers to it
        self.sizes = _ZERO4[:]  # of that record
        self.live = 0


class Index:
    """Blocks by number, and the references of messages that have more than one."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.many: dict[int, tuple[int, ...]] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}

    def put(self, message: int, location: int, size: int, queues: tuple[int, ...]) -> None:
        """Enter a message, or its new location."""
        block = self.blocks.get(message >> BLOCK_BITS)
        if block is None:
            block = self.blocks[message >> BLOCK_BITS] = Block()
        i = message & BLOCK_MASK
        if not block.queues[i]:
            block.live += 1
        block.locations[i] = location
        block.sizes[i] = size
        self._set(block, i, message, queues)

    def put_run(self, first: int, locations: Sequence[int], sizes: Sequence[int], queue: int) -> None:
        """Enter new messages with consecutive ids, which one queue refers to."""
        done, count = 0, len(locations)
        while done < count:
            message = first + done
            block = self.blocks.get(message >> BLOCK_BITS)
            if block is None:
                block = self.blocks[message >> BLOCK_BITS] = Block()
            i = message & BLOCK_MASK
            some = min(count - done, BLOCK_MASK + 1 - i)
            block.locations[i : i + some] = array("Q", locations[done : done + some])
            block.queues[i : i + some] = array("Q", (queue,)) * some
            block.sizes[i : i + some] = array("I", sizes[done : done + some])
            block.live += some
            done += some

    def _set(self, block: Block, i: int, message: int, queues: tuple[int, ...]) -> None:
        if len(queues) == 1:
            block.queues[i] = queues[0]
            self.many.pop(message, None)
        else:
            block.queues[i] = MANY
            if len(self._tuples) > 10_000:
                self._tuples.clear()  # they are only shared to save memory
            self.many[message] = self._tuples.setdefault(queues, queues)

    def find(self, message: int) -> tuple[int, int] | None:
        """Return (location, size) of the message's record, None if the message does not exist."""
        block = self.blocks.get(message >> BLOCK_BITS)
        i = message & BLOCK_MASK
        if block is None or not block.queues[i]:
            return None
        return block.locations[i], block.sizes[i]

    def queues(self, message: int) -> tuple[int, ...]:
        """Return the queues that refer to the message; empty if the message does not exist."""
        block = self.blocks.get(message >> BLOCK_BITS)
        if block is None:
            return ()
        queue = block.queues[message & BLOCK_MASK]
        if queue == MANY:
            return self.many[message]
        return (queue,) if queue and queue != ORPHAN else ()

    def set_queues(self, message: int, queues: tuple[int, ...]) -> None:
        """Set the queues of an existing message; an empty tuple removes the message."""
        block = self.blocks[message >> BLOCK_BITS]
        i = message & BLOCK_MASK
        if queues:
            self._set(block, i, message, queues)
            return
        self.many.pop(message, None)
        block.queues[i] = 0
        block.live -= 1
        if not block.live:
            del self.blocks[message >> BLOCK_BITS]

    def relocate(self, message: int, location: int, size: int) -> None:
        """Set a new location of an existing message's record."""
        block = self.blocks[message >> BLOCK_BITS]
        block.locations[message & BLOCK_MASK] = location
        block.sizes[message & BLOCK_MASK] = size

    def orphan(self, message: int) -> None:
        """Remove the queues of an existing message but keep the message."""
        self.many.pop(message, None)
        self.blocks[message >> BLOCK_BITS].queues[message & BLOCK_MASK] = ORPHAN

    def __len__(self) -> int:
        return sum(block.live for block in self.blocks.values())
