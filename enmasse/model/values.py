"""Checks of single values in configuration files: each gives the canonical value, or Wrong with reason and remedy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from enmasse.text import did_you_mean, whole_number

_SIZE = re.compile(r"([0-9]+)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
FULL_POLICIES = {
    "FAIL": "further messages are rejected",
    "BLOCK": "senders wait: they get no credit",
    "DROP": "further messages are deleted",
    "PAGE": "further messages are moved from memory to disk",
}


class FormField(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A field of an entry, for forms; what it accepts is decided by the checks of the entry alone. `name`: path in the
    entry, as errors have it (`messageTtl.maximum`); `group`: fields that are shown together; `choices`: value → what it
    means; `types`: the types of addresses that have it."""

    name: str
    kind: Literal["size", "milliseconds", "whole", "number", "boolean", "choice", "queue", "text"]
    label: str
    text: str = ""
    group: str = ""
    choices: dict[str, str] = {}
    types: tuple[str, ...] = ()


MOST_FAULTS = 20
"""Reported of one entry."""


class Wrong(ValueError):
    """A value that cannot be; the text has the reason and the remedy. `path` leads to it inside the entry; `others`:
    what else is wrong with the entry."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.path = path
        self.others: tuple[Wrong, ...] = ()

    def within(self, *path: str) -> list[Wrong]:
        """Return this and the others, as what is wrong with the value at a path."""
        return [Wrong(str(each), *path, *each.path) for each in (self, *self.others)]


def all_of(faults: list[Wrong]) -> Wrong:
    """Return the first of these, with the others in it."""
    first = faults[0]
    first.others = tuple(faults[1:MOST_FAULTS])
    return first


def unknown_key(key: str, known: Iterable[str], of: str = "known are") -> Wrong:
    """Return the error of a key that is not in `known`, with the one that may be meant."""
    names = tuple(known)
    return Wrong(f"unknown key; {of} {', '.join(names)}{meant(key, names)}", key)


def meant(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like `word`, in brackets after a space; empty if none is like it."""
    return _meant(word[:60], tuple(known))


@lru_cache
def _meant(word: str, known: tuple[str, ...]) -> str:
    hint = did_you_mean(word, known)
    return f" ({hint[1].lower()}{hint[2:]})" if hint else ""


def kind(value: Any) -> str:
    """Return JSON's name for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return {int: "a number", float: "a number", str: "a string", list: "an array"}.get(type(value), "an object")


def text(value: Any) -> str:
    """Return a string that is not empty. Raises Wrong."""
    if not isinstance(value, str) or not value:
        raise Wrong(f"must be a string, not {'empty' if value == '' else kind(value)}")
    return value


def names(value: Any) -> tuple[str, ...]:
    """Return an array of strings that are not empty, each once. Raises Wrong."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise Wrong(f"must be an array of names, not {kind(value) if not isinstance(value, list) else 'of others'}")
    return tuple(dict.fromkeys(value))


def members(value: Any, checks: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return what `checks` make of the members of an object, each that of its key. Raises Wrong, with the keys."""
    if not isinstance(value, dict):
        raise Wrong(f"must be an object with {', '.join(checks)}, not {kind(value)}")
    found, faults = {}, []
    for key, given in value.items():
        try:
            if key not in checks:
                faults.append(unknown_key(key, checks))
            else:
                found[key] = checks[key](given)
        except Wrong as wrong:
            faults += wrong.within(key)
    if faults:
        raise all_of(faults)
    return found


def boolean(value: Any) -> bool:
    """Return true or false. Raises Wrong."""
    if isinstance(value, bool):
        return value
    raise Wrong(f"must be true or false, not {kind(value)}")


def boolean_parameter(value: Any) -> bool:
    """Template parameters may be strings: `"true"`."""
    if value in ("true", "false"):
        return bool(value == "true")
    return boolean(value)


def whole(value: Any, minimum: int, maximum: int, unit: str = "") -> int:
    """Return a whole number from `minimum` to `maximum`; `unit` is for the message. Raises Wrong."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(
            f"must be a whole number{unit.rstrip(',')}, not {'a fraction' if isinstance(value, float) else kind(value)}"
        )
    if not minimum <= value <= maximum:
        raise Wrong(f"must be a whole number{unit} from {minimum} to {maximum}")
    return value


def whole_parameter(value: Any, minimum: int, maximum: int) -> int:
    """Template parameters may be strings: `"3"`."""
    if isinstance(value, str) and (number := whole_number(value)) is not None:
        value = number
    return whole(value, minimum, maximum)


def number(value: Any, minimum: float, maximum: float) -> float:
    """Return a number from `minimum` to `maximum`. Raises Wrong."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong(f"must be a number, not {kind(value)}")
    if not minimum <= value <= maximum:
        raise Wrong(f"must be a number from {minimum:g} to {maximum:g}")
    return float(value)


def size(value: Any) -> int:
    """Bytes: a number, or a string with a unit (`"512Mi"`, `"1Gi"`, `"10M"`). Raises Wrong."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        if not found or len(found[1]) > 18:
            raise Wrong(
                f'{value[:40]!r} is no size; write bytes, or a number with Ki, Mi, Gi, Ti, k, M, G or T: "512Mi"'
            )
        value = int(found[1]) * _UNITS[found[2]]
    return whole(value, 1, 2**62, ' of bytes, or a string such as "512Mi",')


def host(value: Any) -> str:
    """Return the name or address of a host, without a port. Raises Wrong."""
    if not isinstance(value, str) or not 0 < len(value) < 256 or not value.isprintable() or set(value) & set(" /@"):
        raise Wrong("must be the name or address of a host")
    if ":" in value:
        try:
            ipaddress.IPv6Address(value)
        except ValueError:
            raise Wrong("must be the name or address of a host; the port has a key of its own") from None
    return value


def full_policy(value: Any) -> str:
    """Return one of FULL_POLICIES, which may be written in lower case. Raises Wrong."""
    if isinstance(value, str) and value.upper() in FULL_POLICIES:
        return value.upper()
    raise Wrong(f"must be one of {', '.join(FULL_POLICIES)}")
