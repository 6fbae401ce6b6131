"""Record of losses by damage, kept until the operator deletes it: a file of JSON lines beside the damaged files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from enmasse.identity.owned import space_of_queue
from enmasse.logs import log as logs
from enmasse.storage.decoding import decode
from enmasse.text import counted

log = logs.get(part="storage")

NAME = "report.jsonl"
MOST_LINES = 100_000  # lines read at a start


class Loss(msgspec.Struct, omit_defaults=True):
    """A damaged place, or messages of a queue that are lost; `at` is a time in ISO 8601."""

    at: str
    what: str
    queue: str = ""
    messages: int = 0


def _nothing() -> None:
    pass


class Losses:
    """`queues`: lost messages by queue name; `places`: number of damaged places. Reset when the file is deleted."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "damaged" / NAME
        self.queues: dict[str, int] = {}
        self.places = 0
        self.last = ""  # description of the last damaged place
        self.on_cleared: Callable[[], None] = _nothing
        self._written = False
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            self._written = True
            for line, _ in zip(file, range(MOST_LINES), strict=False):
                with contextlib.suppress(msgspec.DecodeError):
                    self._count(decode(line, Loss))

    def add(self, what: str, queue: str = "", messages: int = 0) -> None:
        """Count and record a loss; if it cannot be written, it is kept until the end of the process."""
        loss = Loss(datetime.now(UTC).isoformat(timespec="seconds"), what, queue, messages)
        self._count(loss)
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with self.path.open("ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(msgspec.json.encode(loss) + b"\n")
            self._written = True
        except OSError as error:
            log.warning(
                "broker.loss.not-recorded",
                file=str(self.path),
                what=what,
                queue=queue,
                reason=str(error),
                space=space_of_queue(queue),
            )

    def sync(self) -> None:
        """Make added losses durable, as far as the disk allows."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            os.fsync(file.fileno())

    def _count(self, loss: Loss) -> None:
        if loss.messages:
            self.queues[loss.queue] = self.queues.get(loss.queue, 0) + loss.messages
        else:
            self.places += 1
            self.last = loss.what

    def check(self) -> None:
        """Reset the counts if the operator has deleted the file."""
        if self._written and not self.path.exists():
            self._written = False
            self.queues.clear()
            self.places, self.last = 0, ""
            self.on_cleared()

    def __bool__(self) -> bool:
        return bool(self.places or self.queues)

    def report(self) -> str:
        """Return a sentence for users; empty if nothing was lost."""
        if not self:
            return ""
        parts = []
        if self.queues:
            some = [f"{count} of queue {name}" for name, count in list(self.queues.items())[:3]]
            parts.append("messages lost by damage: " + ", ".join(some) + (", …" if len(self.queues) > 3 else ""))
        if self.places:
            parts.append(f"{counted(self.places, 'damaged place')}, the last: {self.last}")
        return f"{'; '.join(parts)}; all are in {self.path}: delete that file when it is seen to"
