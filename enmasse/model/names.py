"""Legal names: of addresses (design §5.2), and of flavors and brokers (they become names of processes and files)."""

from __future__ import annotations

import re

MAX_ADDRESS = 512
"""Bytes of an address's name in UTF-8."""
_SIMPLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LEGAL_ADDRESS = re.compile(r"(?!!!)[A-Za-z0-9!-][A-Za-z0-9./_!-]*")
_FORBIDDEN = ("::", "*", "+", "#", "amqp:")
_FORBIDDEN_START = ("$", "_", "!!", "/", ".")


def address_error(name: str) -> str | None:
    """Why `name` cannot be an address, None where it can."""
    if _LEGAL_ADDRESS.fullmatch(name) and len(name) <= MAX_ADDRESS:
        return None
    if not name:
        return "an address needs a name"
    for part in _FORBIDDEN_START:
        if name.startswith(part):
            return f"a name must not begin with {part!r}; rename the address"
    for part in _FORBIDDEN:
        if part in name:
            return f"a name must not contain {part!r}; rename the address"
    for character in name:
        if character.isspace() or not character.isprintable():
            return "a name must not contain white space or control characters; rename the address"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_ADDRESS:
        return f"a name may have {MAX_ADDRESS} bytes at most; shorten it"
    return None


def router_form(name: str) -> str:
    """The name as routers compare it: they take `.` for `/`."""
    return name.replace(".", "/")


def simple_error(name: str, what: str) -> str | None:
    """Why `name` cannot name a flavor or a broker, None where it can."""
    if _SIMPLE.fullmatch(name):
        return None
    return (
        f"a {what}'s name is made of letters, digits, '.', '_' and '-', 63 at most, and begins with a letter or digit"
    )
