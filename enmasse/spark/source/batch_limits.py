"""How much of the spool a batch takes: maxRowsPerTrigger, maxBytesPerTrigger, and minRowsPerTrigger with a delay.

No clock in here: callers give seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from enmasse.spark.options import OptionError, number, size

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DELAY = "15m"


@dataclass
class BatchLimits:
    """Limits of a batch, 0: none. max_bytes: of records as the spool stores them. delay: seconds for which min_rows are
    waited for."""

    max_rows: int
    max_bytes: int
    min_rows: int
    delay: float
    since: float | None = None
    """When the last batch was admitted, or the query began."""

    def ends(
        self, starts: Sequence[int], heads: Sequence[int], within: Callable[[int, int, int, int], int], now: float
    ) -> list[int]:
        """Return the ends of the next batch in each partition of the spool, which begins with records `starts`; these
        themselves if it does not begin yet. Each partition has its share of a limit, by the records that it holds.

        heads: one past the last records. within: partition, start, end and most bytes to the end of the longest range
        (enmasse.spark.spool.segment.end_within).
        """
        if self.since is None:
            self.since = now
        there = [head - start for start, head in zip(starts, heads, strict=True)]
        if sum(there) < self.min_rows and now - self.since < self.delay:
            return list(starts)
        rows = shares(self.max_rows, there) if self.max_rows else there
        ends = [start + more for start, more in zip(starts, rows, strict=True)]
        if self.max_bytes:
            ends = [
                within(n, start, end, max(1, self.max_bytes * (end - start) // sum(rows))) if end > start else end
                for n, (start, end) in enumerate(zip(starts, ends, strict=True))
            ]
        if ends != list(starts):
            self.since = now
        return ends


def shares(most: int, wanted: Sequence[int]) -> list[int]:
    """Return numbers that are at most `wanted`, in proportion to these, and together at most `most`."""
    total = sum(wanted)
    if total <= most:
        return list(wanted)
    found = [most * each // total for each in wanted]
    for n in sorted(range(len(wanted)), key=lambda n: found[n] * total - most * wanted[n])[: most - sum(found)]:
        found[n] += 1
    return found


def admission_of(options: Mapping[str, str]) -> BatchLimits:
    """Return the limits that options set, by their names in lower case. Raises OptionError."""

    def limit(name: str) -> int:
        return number(options, name, 1) if name.lower() in options else 0

    most, least = limit("maxRowsPerTrigger"), limit("minRowsPerTrigger")
    if most and least > most:
        raise OptionError(f'amqp source: "minRowsPerTrigger" ({least}) is more than "maxRowsPerTrigger" ({most})')
    if "maxtriggerdelay" in options and not least:
        raise OptionError('amqp source: the option "maxTriggerDelay" needs the option "minRowsPerTrigger"')
    delay = seconds(options, "maxTriggerDelay", DELAY)
    most_bytes = size(options, "maxBytesPerTrigger", 1) if "maxbytespertrigger" in options else 0
    return BatchLimits(most, most_bytes, least, delay)


def seconds(options: Mapping[str, str], name: str, default: str) -> float:
    """Return an option of the source that is a time, in seconds. Raises OptionError."""
    text = options.get(name.lower(), default)
    found = re.fullmatch(r"(\d{1,9}) ?(ms|s|m|h)", text.strip(), re.ASCII)
    if found is None:
        raise OptionError(f'amqp source: option "{name}" is a time as 500ms, 30s, 15m or 1h, not {text!r}')
    return int(found[1]) * SECONDS[found[2]]
