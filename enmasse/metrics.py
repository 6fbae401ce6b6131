"""Metrics for Prometheus: families that a service makes from its state when they are asked for.

Nothing is counted for them on the way of a message. prometheus-client is imported with the first scrape: it would cost
each start 16 ms, and many a suite is never scraped. docs/metrics.md has the meaning of each metric.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from enmasse.model.names import DEFAULT_SPACE, AddressName, split_name

if TYPE_CHECKING:
    from prometheus_client.core import Metric

T = TypeVar("T")
OTHERS: Final = "(others)"
"""Label of what has no series of its own."""
MAX_USERS: Final = 200
"""Users with series of their own."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[dict[str, str], float]]
"""Labels and value of each series."""


def gauge(name: str, help_text: str, samples: Samples) -> Metric:
    """Return a family of values that rise and fall."""
    return _family(name, name, help_text, "gauge", samples)


def counter(name: str, help_text: str, samples: Samples) -> Metric:
    """Return a family of values that only rise while the process lives. Raises ValueError for a name without
    `_total`."""
    if not name.endswith("_total"):
        raise ValueError(f"the counter {name} must be named {name}_total")
    return _family(name.removesuffix("_total"), name, help_text, "counter", samples)


class Histogram:
    """Counts of observations in buckets. `bounds`: their upper bounds, ascending. One observation is a bisection."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    @property
    def total(self) -> float:
        """The sum of what was observed."""
        return self._sum

    def family(self, name: str, help_text: str) -> Metric:
        """Return the family, a histogram of Prometheus."""
        from prometheus_client.core import Metric

        family, count = Metric(name, help_text, "histogram"), 0
        for bound, more in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            count += more
            family.add_sample(f"{name}_bucket", {"le": bound}, count)
        family.add_sample(f"{name}_count", {}, count)
        family.add_sample(f"{name}_sum", {}, self._sum)
        return family


def largest(values: Mapping[str, T], most: int, size: Callable[[T], float]) -> list[tuple[str, list[T]]]:
    """Return the `most` largest values with their names, and OTHERS with the rest of them, if there are more: series
    are bounded, and their sums stay right."""
    if len(values) <= most:
        return [(name, [value]) for name, value in values.items()]
    names = sorted(values, key=lambda name: (-size(values[name]), name))
    found = [(name, [values[name]]) for name in names[:most]]
    return [*found, (OTHERS, [values[name] for name in names[most:]])]


def connections(protocol: str, users: Mapping[str, int]) -> Metric:
    """Return the connections of clients of a protocol. `users`: full name → number."""
    shown = largest(users, MAX_USERS, float)
    series = [({"protocol": protocol, **labelled("user", user)}, sum(numbers)) for user, numbers in shown]
    return gauge("enmasse_connections", "Connections of clients, by protocol and user.", series)


def labelled(label: str, full: str) -> dict[str, str]:
    """Return the label of something with a full name, as clients of its address space call it, and that of the space;
    the default one has none."""
    space, local = split_name(AddressName(full))
    return {label: local, **of_space(space)}


def of_space(space: str) -> dict[str, str]:
    """Return the label of an address space; the default one has none."""
    return {} if space == DEFAULT_SPACE else {"space": space}


def by_space(total: float, of_spaces: Mapping[str, float]) -> Samples:
    """Return the series of each address space. `total`: of all; `of_spaces`: without the default one."""
    own = total - sum(of_spaces.values())
    return [({}, own), *((of_space(space), value) for space, value in of_spaces.items())]


def single(value: float) -> Samples:
    """Return the one series of a family without labels."""
    return [({}, value)]


def select(families: Iterable[Metric], names: Collection[str]) -> list[Metric]:
    """Return the families of these names. Families behind the last of them are not computed."""
    found: list[Metric] = []
    for family in families:
        if family.name in names:
            found.append(family)
            if len(found) == len(names):
                break
    return found


def parse(data: bytes) -> list[Metric]:
    """Return the families in a text format of Prometheus. Raises ValueError."""
    from prometheus_client.parser import text_string_to_metric_families

    return list(text_string_to_metric_families(data.decode()))


def text(families: Iterable[Metric]) -> bytes:
    """Return the families in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return generate_latest(registry)


def _family(name: str, sample: str, help_text: str, kind: str, samples: Samples) -> Metric:
    from prometheus_client.core import Metric

    family = Metric(name, help_text, kind)
    for labels, value in samples:
        family.add_sample(sample, labels, value)
    return family


class _Collected:
    """A collector (prometheus_client.registry) of what has been collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
