"""Hierarchical names, with the wildcards of `enmasse.name_tries`."""

from __future__ import annotations

from collections.abc import Iterator

from enmasse.name_tries import ANY, SEPARATOR, SINGLE

MAX_NAME = 1024
"""Characters of the name of an address or queue."""


def is_pattern(name: str) -> bool:
    """Return whether `name` has a wildcard level (a `+` or `#` inside a longer level is an ordinary character)."""
    if SINGLE not in name and ANY not in name:
        return False
    return any(level in (SINGLE, ANY) for level in name.split(SEPARATOR))


def specificity(pattern: str) -> tuple[int, int, int]:
    """Return a key that sorts patterns from the most general to the most specific (exact names last)."""
    levels = pattern.split(SEPARATOR)
    any_count = levels.count(ANY)
    single_count = levels.count(SINGLE)
    return (-any_count, -single_count, len(levels)) if any_count else (1, -single_count, len(levels))


def parents(name: str) -> Iterator[str]:
    """`a/b/c` gives `a/b`, then `a`; none that is longer than a name may be."""
    cut = name.rfind(SEPARATOR, 0, MAX_NAME + 1)
    while cut >= 0:
        yield name[:cut]
        cut = name.rfind(SEPARATOR, 0, cut)
