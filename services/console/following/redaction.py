"""Texts of the configuration service without the names of addresses that a caller may not view. No sockets."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from enmasse.api.types import Address, Fault
from enmasse.model.names import SPACE
from services.console.door.access import Caller
from services.console.following.space_rows import NamedRows

ANOTHER = "another address"
_QUOTED = {
    "'": re.compile(r"'(?:[^'\\]|\\.)*+'", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL),
}
_QUOTE = {"\"'": re.compile("[\"']"), "'": re.compile("'"), '"': re.compile('"')}
_PROPOSED = re.compile(r"`enmasse [^`]*`")
_OFFSET = re.compile(r" --port-offset [0-9]+(?=[ `])")
_OFFSET_OR_SPACE = re.compile(r" --(?:port-offset|space) [0-9a-z-]+(?=[ `])")
_CUT = 60
"""Characters of a name from which on a text may have only its beginning."""


def without_hidden(rows: NamedRows[Address], caller: Caller, text: str) -> str:
    """Return a text in which ANOTHER stands for each quoted name of an address that the caller may not view."""
    if caller.viewer or not text:
        return text
    parts: list[str] = []
    at = 0
    for start, end in quoted(text):
        if _is_hidden(rows, caller, text[start:end]):
            parts += (text[at:start], ANOTHER)
            at = end
    return "".join((*parts, text[at:]))


def quoted(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the quoted parts of a text begin and end, in time that grows with its length."""
    at, kinds = 0, "\"'"
    while kinds and (quote := _QUOTE[kinds].search(text, at)) is not None:
        found = _QUOTED[quote[0]].match(text, quote.start())
        if found is None:
            # No quote of this kind ends it, so that all behind it are escaped, and none of them would end another one.
            kinds = kinds.replace(quote[0], "")
            at = quote.end()
        else:
            yield found.span()
            at = found.end()


def _is_hidden(rows: NamedRows[Address], caller: Caller, quoted: str) -> bool:
    try:
        name = ast.literal_eval(quoted)
    except (ValueError, SyntaxError):
        return False
    if caller.views(name):
        return False
    if name.startswith(SPACE) or rows.get(name) is not None:
        return True
    if len(name) < _CUT:
        return False
    known = rows.keys()
    at = bisect_left(known, name)
    return at < len(known) and known[at].startswith(name)


def shown_address(rows: NamedRows[Address], caller: Caller, row: Address) -> Address | None:
    """Return the row as the caller may see it; None: not at all."""
    if not caller.views(row.name):
        return None
    message = typed_by(caller, without_hidden(rows, caller, row.message))
    return row if message == row.message else msgspec.structs.replace(row, message=message)


def typed_by(caller: Caller, text: str) -> str:
    """Return a text with the commands that it proposes as the caller can type them. Services write them for the
    operator on the machine of the suite: users name the suite by a context, and have their own address space without an
    option."""
    if caller.principal is None or "`enmasse " not in text:
        return text
    option = _OFFSET if caller.login is not None else _OFFSET_OR_SPACE
    return _PROPOSED.sub(lambda found: option.sub("", found[0]), text)


def shown_faults(rows: NamedRows[Address], caller: Caller, kind: str, faults: Iterable[Fault]) -> list[Fault]:
    """Return faults of a change of this kind as the caller may see them: those of other addresses without place."""
    found = []
    for fault in faults:
        if kind == "addresses" and fault.entry is not None and not caller.views(fault.entry):
            fault = Fault(file=fault.file, reason=f"{ANOTHER}, which you may not view, does not go together with this")
        found.append(
            msgspec.structs.replace(fault, reason=typed_by(caller, without_hidden(rows, caller, fault.reason)))
        )
    return found
