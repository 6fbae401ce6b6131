"""Topic names and topic filters (4.7): which are valid, which filter matches which topic, and `$share` (v5 4.8.2)."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_BYTES: Final = 65535
RESERVED: Final = "$"
"""A wildcard at the first level matches no topic that begins with it (v3.1.1 MQTT-4.7.2-1, v5 MQTT-4.7.2-1)."""


def fault_of_text(text: str) -> str | None:
    """Return why `text` is not an MQTT string (v3.1.1 1.5.3, v5 1.5.4), in a few words; None if it is one."""
    if "\0" in text:
        return "holds U+0000"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds a surrogate (U+D800 to U+DFFF)"
    return f"has {size} bytes, at most {MAX_BYTES} are possible" if size > MAX_BYTES else None


def fault_of_topic(topic: str) -> str | None:
    """Return why `topic` is not a topic name, in a few words ("is empty"); None if it is one."""
    if not topic:
        return "is empty"
    if "+" in topic or "#" in topic:
        return "holds a wildcard (+ or #)"
    return fault_of_text(topic)


def fault_of_filter(filter: str) -> str | None:
    """Return why `filter` is not a topic filter, in a few words; None if it is one. `$share` is not checked."""
    if not filter:
        return "is empty"
    if "#" in filter and (filter.index("#") != len(filter) - 1 or (len(filter) > 1 and filter[-2] != "/")):
        return "has a # that is not the whole last level"
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        return "has a + that is not a whole level"
    return fault_of_text(filter)


def levels(text: str) -> int:
    """Return the number of levels of a topic or filter: one more than it has slashes."""
    return text.count("/") + 1


class Share(NamedTuple):
    """A shared subscription `$share/GROUP/FILTER`."""

    group: str
    filter: str


def is_shared(filter: str) -> bool:
    """Return True for the filter of a shared subscription, also an invalid one."""
    return filter.startswith("$share/") or filter == "$share"


def parse_share(filter: str) -> Share | None:
    """Return the parts of a shared subscription (v5 4.8.2), None for an ordinary filter. Raises ValueError, in a few
    words, for an invalid one that begins with `$share`."""
    if not is_shared(filter):
        return None
    group, slash, rest = filter[7:].partition("/")
    if not group:
        raise ValueError("has no share name after $share/")
    if "+" in group or "#" in group:
        raise ValueError("has a wildcard in its share name")
    if not slash or not rest:
        raise ValueError("has no topic filter after the share name")
    return Share(group, rest)


def matches(filter: str, topic: str) -> bool:
    """Return whether a valid filter (without `$share`) matches a valid topic. Wildcards at the first level match no
    topic that begins with `$` (v3.1.1 MQTT-4.7.2-1, v5 MQTT-4.7.2-1)."""
    if "+" not in filter and "#" not in filter:
        return filter == topic
    if topic[:1] == "$" and filter[0] in "+#":
        return False
    wanted, found = filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(found) < len(wanted):
            return False
    elif len(found) != len(wanted):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, found, strict=False))
