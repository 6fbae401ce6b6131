"""How many processes of a kind there are to be: a number, or bounds within which their load decides."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?", re.ASCII)


class ProcessBounds(NamedTuple):
    """Least and most processes; both the same: their number."""

    least: int
    most: int

    @property
    def fixed(self) -> bool:
        """Return True if the load decides nothing."""
        return self.least == self.most

    def nearest(self, count: int) -> int:
        """Return the number within the bounds that is nearest."""
        return min(max(count, self.least), self.most)

    def __str__(self) -> str:
        return str(self.least) if self.fixed else f"{self.least}..{self.most}"


def parse(text: str) -> ProcessBounds:
    """Return the bounds that `N` or `N..M` states. Raises ValueError."""
    found = _FORM.fullmatch(text)
    if found is not None and found[2] is not None and int(found[2]) < int(found[1]):
        raise ValueError(f"expected the least number of processes in front of the most, got {text!r}")
    if found is None:
        raise ValueError(f"expected a number of processes, or the least and the most as 1..4, got {text!r}")
    return ProcessBounds(int(found[1]), int(found[2] or found[1]))
