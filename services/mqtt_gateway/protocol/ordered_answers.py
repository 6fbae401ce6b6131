"""Answers in the order of what they answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

V = TypeVar("V")


class InOrder(Generic[V]):
    """Packet ids that wait for an answer; answers come in any order and go out in the order of the ids."""

    __slots__ = ("_answers", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[int] | None = None  # made when it is needed: most connections are idle
        self._answers: dict[int, V] = {}

    def __len__(self) -> int:
        return len(self._waiting) if self._waiting else 0

    def expect(self, *packet_ids: int) -> None:
        """Wait for the answers to these packet ids, after those that are waited for already."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.extend(packet_ids)

    def is_next(self, packet_id: int) -> bool:
        """This id is the first and nothing waits behind its answer: the quick way. It is then no longer expected."""
        waiting = self._waiting
        if not self._answers and waiting and waiting[0] == packet_id:
            waiting.popleft()
            return True
        return False

    def are_next(self, packet_ids: list[int]) -> bool:
        """As `is_next`, of several ids."""
        waiting = self._waiting
        if self._answers or waiting is None or list(islice(waiting, len(packet_ids))) != packet_ids:
            return False
        for _ in packet_ids:
            waiting.popleft()
        return True

    def answer(self, packet_id: int, value: V) -> Iterator[tuple[int, V]]:
        """Return the answers that can be sent now, in order."""
        answers, waiting = self._answers, self._waiting
        answers[packet_id] = value
        while waiting and waiting[0] in answers:
            ready = waiting.popleft()
            yield ready, answers.pop(ready)
