"""Rates of counters. No clock, no sockets."""

from __future__ import annotations

from collections import deque

WINDOW = 4
"""Looks over which a rate is taken: processes report once a second, not in step with the looks."""
HISTORY, KEEPS = 120, 2000
"""Samples of a key, and keys of which samples are kept; those that moved last stay."""

Vector = tuple[int, ...]


class Meter:
    """Counters by key, each with `size` fields, as rates per second."""

    def __init__(self, size: int) -> None:
        self._none = (0.0,) * size
        self._touched: dict[str, Vector] = {}
        self._looks: dict[str, deque[tuple[float, Vector]]] = {}
        self._rates: dict[str, tuple[float, ...]] = {}
        self._history: dict[str, deque[tuple[float, tuple[float, ...]]]] = {}
        self._latest: dict[str, Vector] = {}
        self._since: dict[str, Vector] = {}
        """Keys that have moved since the last sample, and their counters then."""
        self._sampled = 0.0

    def note(self, key: str, counters: Vector) -> None:
        """Note the counters of a key, which have changed."""
        self._touched[key] = counters
        self._since.setdefault(key, self._latest.get(key, counters))
        self._latest[key] = counters

    def forget(self, key: str) -> None:
        """Forget a key."""
        for each in (self._touched, self._looks, self._rates, self._history, self._latest, self._since):
            each.pop(key, None)

    def rest(self) -> None:
        """Forget the rates of all keys, not the samples: the next look is the first one."""
        for each in (self._touched, self._looks, self._rates):
            each.clear()

    def rates(self, key: str) -> tuple[float, ...]:
        """Return the rates of a key."""
        return self._rates.get(key, self._none)

    def history(self, key: str) -> list[tuple[float, tuple[float, ...]]]:
        """Return the samples of a key: time and rates."""
        return list(self._history.get(key, ()))

    def look(self, now: float) -> set[str]:
        """Compute the rates of keys that move; return those whose rates have changed. Call it once a second."""
        changed = set()
        touched, self._touched = self._touched, {}
        for key in touched.keys() | self._looks.keys():
            looks = self._looks.get(key)
            if looks is None:
                self._looks[key] = deque([(now, touched[key])], WINDOW)
                continue
            looks.append((now, touched.get(key, looks[-1][1])))
            (then, before), (_, latest) = looks[0], looks[-1]
            span = max(now - then, 0.001)
            rates = tuple([round(max(0, b - a) / span, 2) for a, b in zip(before, latest, strict=True)])
            if rates != self._rates.get(key, self._none):
                self._rates[key] = rates
                changed.add(key)
            if not any(rates) and len(looks) == WINDOW:
                del self._looks[key]
                self._rates.pop(key, None)
                looks = deque([looks[-1]], WINDOW)
                if key in touched:
                    self._looks[key] = looks
        return changed

    def sample(self, wall: float) -> None:
        """Keep a sample of each key that has moved since the last one: its rates since then. `wall`: seconds since
        1970."""
        since, self._since = self._since, {}
        span = max(0.001, wall - self._sampled)
        moved = {
            key: tuple([round(max(0, b - a) / span, 2) for a, b in zip(first, self._latest[key], strict=True)])
            for key, first in since.items()
        }
        self._sampled = wall
        stopped = [key for key, each in self._history.items() if any(each[-1][1]) and key not in moved]
        for key, rates in (*moved.items(), *((key, self._none) for key in stopped)):
            history = self._history.pop(key, None) or deque(maxlen=HISTORY)
            history.append((wall, rates))
            self._history[key] = history
        while len(self._history) > KEEPS:
            del self._history[next(iter(self._history))]
