"""Shares of callers in what a console does at a time: none takes all of it from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.console.door.access import Caller
from services.console.errors import RequestError


def _unavailable(text: str) -> RequestError:
    return RequestError("console.service.unavailable", text)


class Shares:
    """Counts one kind of work that is under way: `most` in all, `of_caller` of one caller. `what`: what is counted, in
    the plural; `full`: makes the error from its text if `most` are under way."""

    def __init__(
        self, what: str, most: int, of_caller: int, full: Callable[[str], RequestError] = _unavailable
    ) -> None:
        self.count = 0
        self._what = what
        self._most = most
        self._of_caller = of_caller
        self._full = full
        self._of: Counter[tuple[str | None, str]] = Counter()

    def begin(self, caller: Caller) -> Callable[[], None]:
        """Count one more; the function returned ends it. Raises RequestError."""
        key = caller.role, caller.account
        if self._of[key] >= self._of_caller:
            text = f"{caller.name or caller.how} has {self._of_caller} {self._what}, the most of one caller"
            raise RequestError("console.caller.busy", f"{text}: wait until one has ended, or end one")
        if self.count >= self._most:
            raise self._full(f"there are {self._most} {self._what}, the most of all callers: try later")
        self.count += 1
        self._of[key] += 1

        def end() -> None:
            self.count -= 1
            self._of[key] -= 1
            if not self._of[key]:
                del self._of[key]

        return end

    @contextmanager
    def held(self, caller: Caller) -> Iterator[None]:
        """Count one more as long as the block. Raises RequestError."""
        end = self.begin(caller)
        try:
            yield
        finally:
            end()
