"""How much of the spool a batch takes: maxRowsPerTrigger, maxBytesPerTrigger, and minRowsPerTrigger with a delay.

No clock in here: callers give seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from enmasse.spark.options import OptionError, number

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DELAY = "15m"


@dataclass
class Admission:
    """Limits of a batch, 0: none. max_bytes: of records as the spool stores them. delay: seconds for which min_rows are
    waited for."""

    max_rows: int
    max_bytes: int
    min_rows: int
    delay: float
    since: float | None = None
    """When the last batch was admitted, or the query began."""

    def end(self, start: int, head: int, within: Callable[[int, int, int], int], now: float) -> int:
        """Return the end of the next batch, which begins with record `start`; `start` if it does not begin yet.

        head: one past the last record. within: enmasse.spark.segment.end_within of the spool.
        """
        if self.since is None:
            self.since = now
        if head - start < self.min_rows and now - self.since < self.delay:
            return start
        end = head
        if self.max_rows:
            end = min(end, start + self.max_rows)
        if self.max_bytes and end > start:
            end = within(start, end, self.max_bytes)
        if end > start:
            self.since = now
        return end


def admission_of(options: Mapping[str, str]) -> Admission:
    """Return the limits that options set, by their names in lower case. Raises OptionError."""

    def limit(name: str) -> int:
        return number(options, name, 1) if name.lower() in options else 0

    most, least = limit("maxRowsPerTrigger"), limit("minRowsPerTrigger")
    if most and least > most:
        raise OptionError(f'amqp source: "minRowsPerTrigger" ({least}) is more than "maxRowsPerTrigger" ({most})')
    if "maxtriggerdelay" in options and not least:
        raise OptionError('amqp source: the option "maxTriggerDelay" needs the option "minRowsPerTrigger"')
    delay = seconds(options.get("maxtriggerdelay", DELAY))
    return Admission(most, limit("maxBytesPerTrigger"), least, delay)


def seconds(text: str) -> float:
    """Return the option maxTriggerDelay in seconds. Raises OptionError."""
    found = re.fullmatch(r"(\d{1,9}) ?(ms|s|m|h)", text.strip(), re.ASCII)
    if found is None:
        raise OptionError(f'amqp source: option "maxTriggerDelay" is a time as 500ms, 30s, 15m or 1h, not {text!r}')
    return int(found[1]) * SECONDS[found[2]]
