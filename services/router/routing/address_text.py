"""Address text: its class, its hash key, and the canonical spelling of patterns.

Address syntax and matching are those of Qpid Dispatch 1.19: separators `.` and `/` are the same, `*` stands for exactly
one word, `#` for any number of them, and at every word a literal beats `*`, which beats `#`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from enmasse.amqp.codec.errors import NOT_FOUND, AmqpError

MOBILE = "M"
LOCAL = "L"
TOPOLOGICAL = "T"
ROUTER = "R"
AREA = "A"
EDGE = "H"

SINGLE = "*"  # in patterns
OWN_TEMPORARY = "_$temp."
"""Beginning of the names of the router's own temporary addresses for senders."""


class ParsedAddress(NamedTuple):
    """An address without its decoration: class letter and name (for class `R`, the router's id)."""

    kind: str
    name: str

    def key(self, phase: str = "0") -> str:
        """Return the hash key: `M0queue`, `M1queue`, `Ltemp.x`, `Rother` …"""
        return f"M{phase}{self.name}" if self.kind == MOBILE else self.kind + self.name


def not_found(text: str) -> AmqpError:
    """Return the error of a link to an address that there is not, with the name that its peer has stated."""
    return AmqpError(NOT_FOUND, f"Node not found: there is no address {text[:100]!r}; `enmasse address add` adds one")


def strip(text: str) -> str:
    """Return `text` without scheme, host, leading separator and one trailing separator."""
    if text.startswith(("amqp:", "amqps:")):
        text = text[text.index(":") + 1 :]
        if text.startswith("//"):
            slash = text.find("/", 2)
            text = "" if slash < 0 else text[slash + 1 :]
    if text.startswith("/"):
        text = text[1:]
    if text.endswith((".", "/")):
        text = text[:-1]
    return text


def parse(text: str, router_id: str, prefix: str = "") -> ParsedAddress:
    """Return class and name of an address for the router `router_id`. `prefix`: of the address space of the client that
    states it, which a mobile address gets; nodes of services and temporary addresses are those of all spaces."""
    text = strip(text)
    if not text.startswith("_"):
        return ParsedAddress(MOBILE, prefix + text if prefix and not text.startswith("$") else text)
    if text.startswith("_local/"):
        return ParsedAddress(LOCAL, text[7:])
    if text.startswith("_topo/"):
        area, _, rest = text[6:].partition("/")
        if area == "all":
            return ParsedAddress(TOPOLOGICAL, rest)
        if area != "0":
            return ParsedAddress(AREA, area)
        router, _, name = rest.partition("/")
        return ParsedAddress(LOCAL, name) if router == router_id else ParsedAddress(ROUTER, router)
    if text.startswith("_edge/"):
        return ParsedAddress(EDGE, text[6:].partition("/")[0])
    return ParsedAddress(MOBILE, prefix + text if prefix and not text.startswith(OWN_TEMPORARY) else text)


def temporary(prefix: str) -> str:
    """Return the beginning of the names of the router's own temporary addresses for receivers of an address space: each
    router tells the space by it. `prefix`: of the space."""
    return f"temp.{_mark(prefix)}"


def temporary_target(prefix: str) -> str:
    """Return the beginning of those for senders."""
    return OWN_TEMPORARY + _mark(prefix)


def _mark(prefix: str) -> str:
    return f"{sha256(prefix.encode()).hexdigest()[:16]}." if prefix else ""


def is_foreign(text: str, parsed: ParsedAddress, prefix: str) -> bool:
    """Return whether an address is outside the names of the address space with this `prefix`: of a router, and not a
    temporary one that a router has made for the space."""
    if not prefix:
        return False
    if parsed.kind == MOBILE:
        return parsed.name.startswith(OWN_TEMPORARY) and not parsed.name.startswith(temporary_target(prefix))
    node = strip(text).split("/", 3)[-1] if parsed.kind == ROUTER else parsed.name
    return parsed.kind not in (LOCAL, ROUTER) or not node.startswith(temporary(prefix))


def tokens(text: str) -> list[str]:
    """Split `text` at its separators, without empty tokens at the ends."""
    return text.strip("./").replace(".", "/").split("/")


def canonical(pattern: str) -> str:
    """Return the canonical spelling of a pattern: `/` between tokens, `#/#` as `#`, `#/*` as `*/#`.

    Raises ValueError for a pattern without tokens.
    """
    parts = tokens(pattern)
    if parts == [""]:
        raise ValueError("no tokens")
    for i in range(1, len(parts)):
        j = i
        while j and parts[j] == "*" and parts[j - 1] == "#":
            parts[j - 1], parts[j] = "*", "#"
            j -= 1
    return "/".join(t for i, t in enumerate(parts) if not (t == "#" and i and parts[i - 1] == "#"))
