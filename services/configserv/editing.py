"""Changes of single entries: which bytes of which source change, and what would be wrong then. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET

from enmasse.api.types import Change, Fault, Kind
from enmasse.model import edits
from enmasse.model.addresses import parse_address
from enmasse.model.configuration import (
    ADDRESSES,
    FLAVORS,
    ISSUERS,
    PLANS,
    SPACES,
    USERS,
    Applied,
    AppliedState,
    apply,
)
from enmasse.model.etags import etag
from enmasse.model.feeds import granted
from enmasse.model.flavors import parse_flavors
from enmasse.model.issuers import parse_issuers
from enmasse.model.jsonfile import Document, Problem, Unparsable, added, parse
from enmasse.model.merged import Content, FilePart, Unreadable
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.plans import Plans, parse_plans
from enmasse.model.tenants.spaces import OWN_FILES, parse_spaces, space_file, split_file
from enmasse.model.tenants.tenancy import SpaceState
from enmasse.model.users import parse_users
from enmasse.model.values import Wrong
from services.configserv.tenants import space_users

FILE: Mapping[Kind, str] = {
    "addresses": ADDRESSES,
    "flavors": FLAVORS,
    "users": USERS,
    "issuers": ISSUERS,
    "spaces": SPACES,
    "plans": PLANS,
}
"""Kind → file, of the default address space or of the whole installation."""
SECRET = ("password", "scram")
"""Keys of a user that an entry without them keeps."""
TOKENS = "tokens"
"""Key of a user's API tokens: an entry has those that are added, and null for those that are removed. One with nothing
else keeps all other keys."""
ANY = "*"


class Refused(Exception):
    """A change that is not made. `conflict`: an entry is not the one that the change is based on."""

    def __init__(self, errors: Sequence[Fault], *, conflict: bool = False) -> None:
        super().__init__("; ".join(error.reason for error in errors))
        self.errors = list(errors)
        self.conflict = conflict


def file_of(kind: Kind, space: str, applied: Applied) -> str:
    """Return the file that has the entries of a kind in an address space. `applied`: what is in force. Raises
    Refused."""
    file = FILE[kind]
    if space == DEFAULT_SPACE:
        return file
    if file not in OWN_FILES:
        raise Refused([Fault(file=file, reason=f"belongs to all address spaces: {space!r} has no {kind} of its own")])
    if space not in space_users.spaces(applied.state):
        raise Refused([Fault(file=SPACES, entry=space, reason="there is no address space of this name")])
    return space_file(space, file)


def edited(sources: Sequence[FilePart], home: str, change: Change, space: str, applied: Applied) -> dict[str, bytes]:
    """Return name of a source → its new content, for the sources that change. `home`: the source for new entries.
    Raises Refused."""
    texts: dict[str, str] = {}
    found: dict[str, tuple[str, Any]] = {}
    file = file_of(change.kind, space, applied)
    for source in sources:
        if source.entry:
            if source.entry in change.set or source.entry in change.remove:
                raise Refused([Fault(file=source.name, entry=source.entry, reason=source.refused)])
            continue
        try:
            if source.refused:
                raise ValueError(source.refused)
            document = parse(source.name, source.data)
            texts[source.name] = source.data.decode()
        except (Unparsable, ValueError) as error:
            reason = error.problem.reason if isinstance(error, Unparsable) else str(error)
            raise Refused([Fault(file=source.name, reason=f"{reason}; correct it first")]) from None
        for path in document.duplicates:
            if path[0] in change.set or path[0] in change.remove:
                raise Refused([_fault(document.repeated(*path))])
        for name, value in document.entries.items():
            found.setdefault(name, (source.name, value))
    _check(change, found, file, applied)
    for name in change.remove:
        if name in found:
            place = found[name][0]
            texts[place] = edits.remove(texts[place], name)
    places: dict[str, dict[str, Any]] = {}
    for name, entry in change.set.items():
        place, value = found.get(name, (home, None))
        whole = _with_secrets(entry, value) if change.kind == "users" else entry
        if name not in found or whole != value:
            places.setdefault(place, {})[name] = whole
    for place, entries in places.items():
        texts[place] = edits.put(texts[place], entries)
    before = {source.name: source.data for source in sources}
    return {name: data for name, text in texts.items() if (data := text.encode()) != before[name]}


def checked(
    change: Change,
    contents: Mapping[str, Content],
    sources: Sequence[FilePart],
    home: str,
    applied: Applied,
    space: str = DEFAULT_SPACE,
    left: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the new contents of the sources that a change of an address space alters, and name → etag of the entries
    that it sets. `contents`: of the other files; `applied`: what is in force; `left`: removed space → its
    remains. Raises Refused if an entry would be invalid."""
    file = file_of(change.kind, space, applied)
    if contents.get(file) is None and file in applied.state.config:
        text = "is missing: put it back first, or what it held would be removed"
        raise Refused([Fault(file=file, reason=text)])
    if change.with_:
        contents = {**contents, **_with_others(change, space, contents, applied)}
    if change.kind == "spaces":
        _check_files(change, contents, applied)
    texts = edited(sources, home, change, space, applied)
    changed = [_with_text(each, texts) for each in sources]
    before, after = ({**contents, file: _content(file, found)} for found in (sources, changed))
    if change.kind == "spaces":  # with a space its files go
        after = {each: content for each, content in after.items() if split_file(each).space not in change.remove}
    now = apply(after, applied, left=left)
    errors = _new_problems(before, now, applied, left)
    if errors:
        raise Refused(errors)
    return texts, _etags(change, space, now)


def _check_files(change: Change, contents: Mapping[str, Content], applied: Applied) -> None:
    """Raise Refused if there are files of a space that is new: its users would be those of an earlier one."""
    new = change.set.keys() - space_users.spaces(applied.state).keys() - {DEFAULT_SPACE}
    found = [file for name in sorted(new) for own in OWN_FILES if contents.get(file := space_file(name, own))]
    if found:
        reason = f"is there, of an earlier space or prepared by hand: remove it, or add the entry to {SPACES} by hand"
        raise Refused([Fault(file=file, reason=reason) for file in found])


def _with_others(change: Change, space: str, contents: Mapping[str, Content], applied: Applied) -> dict[str, Content]:
    """Return the contents of the files of other kinds, with the entries of `with`. Raises Refused."""
    if not change.check:
        raise Refused([Fault(file=FILE[change.kind], reason="`with` is for a check: change one kind after the other")])
    found: dict[str, Content] = {}
    for kind, entries in change.with_.items():
        file = file_of(kind, space, applied)
        if kind == change.kind:
            raise Refused([Fault(file=file, reason=f"`with` has entries of other kinds: {kind} belong into `set`")])
        content = contents.get(file)
        if isinstance(content, Unreadable):
            raise Refused([Fault(file=file, reason=f"cannot be read: {content.reason}; correct that first")])
        sources = content if isinstance(content, tuple) else (FilePart(file, b"{}\n" if content is None else content),)
        sources = sources or (FilePart(file, b"{}\n"),)
        texts = edited(sources, sources[-1].name, Change(kind=kind, set=entries), space, applied)
        found[file] = _content(file, [_with_text(each, texts) for each in sources])
    return found


def _with_text(part: FilePart, texts: Mapping[str, bytes]) -> FilePart:
    return FilePart(part.name, texts.get(part.name, part.data), part.refused, part.entry)


def _content(file: str, sources: Sequence[FilePart]) -> Content:
    """Return the content of a file as its driver gives it: the bytes of the file itself, or its sources."""
    return sources[0].data if len(sources) == 1 and sources[0].name == file else tuple(sources)


def _new_problems(
    before: Mapping[str, Content], now: Applied, applied: Applied, left: Mapping[str, str]
) -> list[Fault]:
    """Return the problems of `now` that the contents `before` do not have. `applied`: what is in force."""
    found = [each for each in now.problems if not each.applies]
    if not found:
        return []
    same = before == applied.contents and not left
    earlier = applied if same else apply(before, applied, left=left)
    return [_fault(each) for each in added(found, earlier.problems)]


def _etags(change: Change, space: str, now: Applied) -> dict[str, str]:
    """Return name → etag of the entries that a change of a space sets, of those in force."""
    entries = _entries(change.kind, space, now)
    found = {name: entries[name] for name in change.set if name in entries}
    return {name: etag(granted(each) if change.kind == "users" else each) for name, each in found.items()}


def _entries(kind: Kind, space: str, now: Applied) -> Mapping[Any, Any]:
    """Return the entries of a kind that are in force in an address space."""
    state, tenants = now.state, now.state.tenants
    plans = Plans({}, {}) if tenants is UNSET else tenants.plans
    own: AppliedState | SpaceState = state if space == DEFAULT_SPACE else now.judged[space].state
    if kind == "addresses":
        return state.addresses if space == DEFAULT_SPACE else now.judged[space].addresses
    if kind == "users":
        return own.users or {}
    if kind == "issuers":
        return own.issuers or {}
    if kind == "flavors":
        return state.flavors
    if kind == "spaces":
        return {name: each.space for name, each in space_users.spaces(state).items()}
    return {**plans.addresses, **plans.spaces}


def _check(change: Change, found: Mapping[str, tuple[str, Any]], file: str, applied: Applied) -> None:
    """Raise Refused unless each entry is the one that the change is based on."""
    canonical = _canonical(change.kind, split_file(file).space, applied)
    wrong = []
    for name, expected in change.if_.items():
        place, value = found.get(name, (file, None))
        reason = ""
        if expected is None and name in found:
            reason = "there is an entry of this name already"
        elif expected is not None and name not in found:
            reason = "the entry of this name is gone"
        elif expected is not None and expected != ANY and canonical(name, value) != expected:
            reason = "the entry was changed meanwhile; read it again"
        if reason:
            wrong.append(Fault(file=place, entry=name, reason=reason))
    if wrong:
        raise Refused(wrong, conflict=True)


def _canonical(kind: Kind, space: str, applied: Applied) -> Callable[[str, Any], str]:
    """Return the function (name, entry as written) → etag; empty for an entry that is not valid."""
    flavors, tenants = applied.state.flavors, applied.state.tenants
    plans = Plans({}, {}) if tenants is UNSET else tenants.plans
    rules = None if space == DEFAULT_SPACE else applied.judged[space].rules

    def of(name: str, value: Any) -> str:
        document = Document(FILE[kind], "{}", {name: value}, [])
        try:
            if kind == "addresses":
                return etag(parse_address(value, flavors) if rules is None else rules.parse(value))
            if kind == "users":
                return etag(granted(parse_users(document)[0][name]))
            return etag(parsed(document)[name])
        except (Wrong, KeyError):
            return ""

    def parsed(document: Document) -> Mapping[str, msgspec.Struct]:
        if kind == "flavors":
            return parse_flavors(document)[0]
        if kind == "issuers":
            return parse_issuers(document, in_space=space != DEFAULT_SPACE)[0]
        if kind == "spaces":
            return parse_spaces(document, plans, flavors)[0]
        others = {name: plan for name, plan in plans.addresses.items() if name not in document.entries}
        found = parse_plans(document, flavors, others)[0]
        return {**found.addresses, **found.spaces}

    return of


def _with_secrets(entry: Any, before: Any) -> Any:
    """Return an entry of a user with the hashes of the one before, unless it has its own, or null to remove them; and
    with its API tokens."""
    if not isinstance(entry, dict) or not isinstance(before, dict):
        return entry
    if entry.keys() == {TOKENS}:
        return _with_tokens(before, before, entry)
    if any(key in entry for key in SECRET):
        found = {key: value for key, value in entry.items() if not (key in SECRET and value is None)}
    else:
        found = {key: before[key] for key in SECRET if key in before} | entry
    return _with_tokens(found, before, entry)


def _with_tokens(found: dict[str, Any], before: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the API tokens of the one before, as those that are stated change them."""
    kept, given = before.get(TOKENS, {}), entry.get(TOKENS, {})
    if not isinstance(kept, dict) or not isinstance(given, dict):
        return found
    tokens = {name: token for name, token in {**kept, **given}.items() if token is not None}
    return {**{key: value for key, value in found.items() if key != TOKENS}, **({TOKENS: tokens} if tokens else {})}


def _fault(problem: Problem) -> Fault:
    return Fault(file=problem.file, entry=problem.entry, field=problem.field, line=problem.line, reason=problem.reason)
