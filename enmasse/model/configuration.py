"""The files together: what applies, given what applied before (docs/configuration.md). Pure: no file is read here.

A file that does not parse changes nothing. In a file that parses, an invalid entry keeps its last good version, or
fails if it never had one; the others apply. A flavor that addresses still use does not vanish.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from enmasse.model.address_types import AddressType, type_of
from enmasse.model.addresses import (
    Address,
    edit_addresses,
    indistinct,
    parse_addresses,
    shadowed,
)
from enmasse.model.brokers import HandMade, parse_brokers, unknown_names
from enmasse.model.flavors import Flavor, parse_flavors
from enmasse.model.issuers import Issuer, parse_issuers
from enmasse.model.jsonfile import Document, Problem, Unparsable, edited, parse, shown
from enmasse.model.merged import FilePart, MergedDocument, fingerprint, kept
from enmasse.model.names import AddressName
from enmasse.model.users import Known, User, parse_users, unknown_groups

ADDRESSES, FLAVORS, BROKERS = "addresses.json", "flavors.json", "brokers.json"
USERS, ISSUERS = "users.json", "issuers.json"
FILES = (ADDRESSES, FLAVORS, BROKERS, USERS, ISSUERS)
SCHEMA = 1
K = TypeVar("K", bound=str)
V = TypeVar("V")


_WITHOUT = {
    BROKERS: "placements go on without it",
    USERS: "no client is let in before it can be used",
    ISSUERS: f"without {USERS} no client is let in before it can be used",
}
"""File → consequence of the file being unusable, if no content of it has ever applied."""
_PUT_BACK = {
    USERS: "Put it back; the entry 'anonymous' lets in clients without credentials",
    ISSUERS: "Put it back; {} in it means no issuers",
}
"""File → remedy if it is missing after it has applied: what it protected must not be open then."""


class Unreadable(msgspec.Struct, frozen=True):
    """A file that is there and cannot be read."""

    reason: str


Content = bytes | Unreadable | tuple[FilePart, ...] | None
"""Content of a file from a driver: its bytes, the reason it is unreadable, None without a file, or its sources.
"""


class AppliedState(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration in force. `config`: file → SHA-256 (hex) of the content it comes from. `brokers` None: no
    brokers.json. `users`, `issuers` None: there has never been a valid users.json or issuers.json. `salt_key`: made
    with the first of them (enmasse/model/feeds.py, Users)."""

    schema: int = SCHEMA
    config: dict[str, str] = {}
    addresses: dict[AddressName, Address] = {}
    flavors: dict[str, Flavor] = {}
    brokers: dict[str, HandMade] | None = None
    users: dict[str, User] | None = None
    issuers: dict[str, Issuer] | None = None
    salt_key: bytes = b""

    @property
    def anonymous(self) -> bool:
        """There is nothing that proves users: clients need no credentials."""
        return self.users is None and self.issuers is None

    @property
    def complete(self) -> bool:
        """Both files have been applied at some time."""
        return ADDRESSES in self.config and FLAVORS in self.config


class Failed(msgspec.Struct, frozen=True):
    """Entry without a valid version: the reason, and its known fields."""

    reason: str
    type: AddressType | None = None
    flavor: str | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of `apply`: the configuration in force, entries without a valid version, and the problems found."""

    state: AppliedState = AppliedState()
    contents: Mapping[str, Content] = {}
    """The files that it comes from."""
    changed: list[AddressName] = []
    """Addresses that differ from the configuration before, those that are gone included."""
    as_written: tuple[bytes, bytes] | None = None
    """Contents of addresses.json and flavors.json, if all of their entries are in force."""
    failed: dict[AddressName, Failed] = {}
    failed_brokers: list[str] = []
    """Entries of brokers.json that have no valid version."""
    users_known: bool = False
    """Whether `state.users` and `state.issuers` may be published: None means no file, and not one that cannot be
    used."""
    problems: list[Problem] = []
    origins: dict[AddressName, str] = {}
    """Address → the name of its source, if there are several sources."""


def apply(contents: Mapping[str, Content], before: Applied, known_users: Known | None = None) -> Applied:
    """Return the configuration that applies: the files' contents over the configuration before. `known_users`: as of
    `parse_users`."""
    last = before.state
    config = dict(last.config)
    problems: list[Problem] = []
    edit = _edited(contents, before)
    whole = FILES if edit is None else tuple(file for file in FILES if file not in (ADDRESSES, FLAVORS))
    documents = {file: _document(file, contents.get(file), config, problems) for file in whole}
    if FLAVORS not in config:  # addresses cannot be judged yet
        config.pop(ADDRESSES, None)
        documents[ADDRESSES] = None
    brokers = _brokers(documents[BROKERS], contents.get(BROKERS), last, config, problems)
    document = documents[BROKERS]
    failed_brokers = [name for name in document.entries if name not in (brokers or {})] if document is not None else []
    if edit is None:
        addresses, flavors, failed = _addresses_and_flavors(documents[ADDRESSES], documents[FLAVORS], last, problems)
        changed, as_written = (
            differing(last.addresses, addresses),
            _as_written(contents, documents[ADDRESSES], problems),
        )
    else:
        addresses, changed, as_written = edit
        flavors, failed = last.flavors, {}
        config[ADDRESSES] = sha256(as_written[0])
    if document is not None and ADDRESSES in config:
        known = {**dict.fromkeys(failed), **{name: address.type for name, address in addresses.items()}}
        problems += unknown_names(document, brokers or {}, known, flavors)
    if brokers is not None:
        problems += _unplaced(brokers, flavors, documents[FLAVORS])
    users = _users(documents[USERS], last, problems, known_users)
    issuers = _issuers(documents[ISSUERS], last, problems)
    state = AppliedState(
        config=config,
        addresses=addresses,
        flavors=flavors,
        brokers=brokers,
        users=users,
        issuers=issuers,
        salt_key=last.salt_key,
    )
    return Applied(
        state=state,
        contents=contents,
        changed=changed,
        as_written=as_written,
        failed=failed,
        failed_brokers=failed_brokers,
        users_known=(users is not None or contents.get(USERS) is None)
        and (not state.anonymous or contents.get(ISSUERS) is None),
        problems=problems,
        origins=_origins(documents.get(ADDRESSES)),
    )


Written = tuple[bytes, bytes]
"""Contents of addresses.json and flavors.json."""


def _as_written(contents: Mapping[str, Content], document: Document | None, problems: list[Problem]) -> Written | None:
    """Return the two files, if each entry of them is in force and a later edit can be judged by itself."""
    addresses, flavors = contents.get(ADDRESSES), contents.get(FLAVORS)
    if document is None or not document.plain or any(problem.file in (ADDRESSES, FLAVORS) for problem in problems):
        return None
    return (addresses, flavors) if isinstance(addresses, bytes) and isinstance(flavors, bytes) else None


def _edited(
    contents: Mapping[str, Content], before: Applied
) -> tuple[dict[AddressName, Address], list[AddressName], Written] | None:
    """Return the addresses, which of them differ, and the two files, found from what has changed in addresses.json
    alone; None if the files have to be judged as a whole, because something in them may be wrong."""
    written, content = before.as_written, contents.get(ADDRESSES)
    if written is None or not isinstance(content, bytes) or contents.get(FLAVORS) != written[1]:
        return None
    if contents.get(BROKERS) is not None:
        return None
    last = before.state
    if content == written[0]:
        return last.addresses, [], written
    edit = edited(written[0], content)
    addresses = None if edit is None else edit_addresses(ADDRESSES, edit, last.flavors, last.addresses)
    if edit is None or addresses is None:
        return None
    names = map(AddressName, {**edit.after, **edit.before})
    changed = [name for name in names if last.addresses.get(name) != addresses.get(name)]
    return addresses, changed, (content, written[1])


def differing(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    """Return the names that only one of the two has, or that have different values."""
    if old == new:
        return []
    return [*[name for name, value in new.items() if old.get(name) != value], *(old.keys() - new.keys())]


def content_hash(content: Content) -> str | None:
    """Return the hash that the status shows in `config` once this content is applied; None: no entry."""
    if isinstance(content, bytes):
        return sha256(content)
    return fingerprint(content) if isinstance(content, tuple) else None


def _origins(document: Document | None) -> dict[AddressName, str]:
    if not isinstance(document, MergedDocument):
        return {}
    return {AddressName(shown(name)): document.origin(name) for name in document.entries}


def sha256(data: bytes) -> str:
    """Return the SHA-256 of a content, in hex."""
    return hashlib.sha256(data).hexdigest()


def _document(file: str, content: Content, config: dict[str, str], problems: list[Problem]) -> Document | None:
    missing = _WITHOUT.get(file, "nothing is served before it is there")
    kept = "what applied before stays" if file in config else missing
    if isinstance(content, bytes):
        try:
            document = parse(file, content)
        except Unparsable as error:
            problems.append(msgspec.structs.replace(error.problem, reason=f"{error.problem.reason}; {kept}"))
            return None
        config[file] = sha256(content)
        return document
    if isinstance(content, tuple):
        return _merged(file, content, config, problems, missing)
    if isinstance(content, Unreadable):
        problems.append(Problem(file=file, reason=f"cannot be read: {content.reason}; {kept}"))
    elif file in _PUT_BACK:
        if file in config:
            problems.append(Problem(file=file, reason=f"is missing; {kept}. {_PUT_BACK[file]}"))
    elif file != BROKERS:
        problems.append(Problem(file=file, reason=f"is missing; {kept}"))
    return None


def _merged(
    file: str, sources: tuple[FilePart, ...], config: dict[str, str], problems: list[Problem], missing: str
) -> Document | None:
    """Return the document of the readable sources; entries of unreadable ones stay in force."""
    document = MergedDocument(file, sources)
    stays = "what applied before stays, and nothing is removed meanwhile" if file in config else missing
    problems += [msgspec.structs.replace(each, reason=f"{each.reason}; {stays}") for each in document.unreadable]
    if not document.partial:
        config[file] = fingerprint(sources)
    return document if file in config else None


def _in_force(document: Document, good: dict[str, V], before: dict[str, V]) -> dict[str, V]:
    """Return the valid entries of a document in its order, the last good version of its other ones, and what it keeps
    of sources that cannot be read."""
    found = {name: found for name in document.entries if (found := good.get(name) or before.get(name)) is not None}
    return {**found, **kept(document, before)}


def _brokers(
    document: Document | None, content: Content, last: AppliedState, config: dict[str, str], problems: list[Problem]
) -> dict[str, HandMade] | None:
    if content is None:
        config.pop(BROKERS, None)
        return None
    if document is None:
        return last.brokers
    good, wrong = parse_brokers(document)
    problems += wrong
    return _in_force(document, good, last.brokers or {})


def _users(
    document: Document | None, last: AppliedState, problems: list[Problem], known: Known | None
) -> dict[str, User] | None:
    """Return the users; a file that is gone or cannot be used takes none away."""
    if document is None:
        return last.users
    good, wrong = parse_users(document, known)
    problems += wrong
    found = _in_force(document, good, last.users or {})
    problems += unknown_groups(document, found)
    return found


def _issuers(document: Document | None, last: AppliedState, problems: list[Problem]) -> dict[str, Issuer] | None:
    """Return the issuers in the order of the file; a file that is gone or cannot be used takes none away."""
    if document is None:
        return last.issuers
    good, wrong = parse_issuers(document)
    problems += wrong
    return _in_force(document, good, last.issuers or {})


def _unplaced(
    brokers: Mapping[str, HandMade], flavors: Mapping[str, Flavor], document: Document | None
) -> list[Problem]:
    """Flavors that name their broker themselves, without effect."""
    named = {name for broker in brokers.values() for name in broker.flavors}
    reason = f"has no effect while there is a {BROKERS}: name the flavor there, or remove that file"
    return [
        document.problem(reason, name, "templateParameters", "HOST")
        for name, flavor in flavors.items()
        if flavor.by_hand and name not in named and document is not None and name in document.entries
    ]


def _addresses_and_flavors(
    document: Document | None, flavor_document: Document | None, last: AppliedState, problems: list[Problem]
) -> tuple[dict[AddressName, Address], dict[str, Flavor], dict[AddressName, Failed]]:
    new = dict(last.flavors)
    flavor_problems: list[Problem] = []
    if flavor_document is not None:
        good, flavor_problems = parse_flavors(flavor_document)
        new = {}
        for name in flavor_document.entries:
            found = good.get(name) or last.flavors.get(name)
            if found is not None:
                new[name] = found
        new |= kept(flavor_document, last.flavors)
    # Flavors that the file takes away or retypes keep their last version while an address needs them.
    clung: dict[str, Flavor] = {}
    while True:
        addresses, failed, wrong = _addresses(document, {**new, **clung}, clung, last)
        needed = {
            address.flavor
            for address in addresses.values()
            if address.flavor is not None and not _fits(new.get(address.flavor), address)
        }
        if needed <= clung.keys():
            break
        clung.update((name, last.flavors[name]) for name in needed)
    for name in clung:
        flavor_problems.append(_in_use(name, flavor_document, addresses))
    problems += flavor_problems
    problems += wrong
    return addresses, {**new, **clung}, failed


def _fits(flavor: Flavor | None, address: Address) -> bool:
    return flavor is not None and flavor.type == address.traits.flavor


def _in_use(name: str, document: Document | None, addresses: Mapping[AddressName, Address]) -> Problem:
    users = sorted(address for address, entry in addresses.items() if entry.flavor == name)
    listed = ", ".join(map(repr, users[:5])) + (", …" if len(users) > 5 else "")
    if document is not None and name in document.entries:
        reason = f"its type cannot change while addresses use it ({listed}); the old flavor stays until they do not"
        return document.problem(reason, name)
    reason = f"is gone but still used by {listed}; it stays until they have another flavor. Put it back, or move them"
    return Problem(file=FLAVORS, entry=name, reason=reason)


def _addresses(
    document: Document | None, flavors: Mapping[str, Flavor], clung: Mapping[str, Flavor], last: AppliedState
) -> tuple[dict[AddressName, Address], dict[AddressName, Failed], list[Problem]]:
    if document is None:
        return last.addresses, {}, []
    good, problems = parse_addresses(document, flavors, keep=last.addresses)
    for name, address in list(good.items()) if clung else ():
        before = last.addresses.get(name)
        if address.flavor in clung and (before is None or before.flavor != address.flavor):
            problems.append(
                document.problem(f"the flavor {address.flavor!r} is no longer in {FLAVORS}", name, "flavor")
            )
            del good[name]
    result = good
    if len(good) != len(document.entries):
        result = {}
        for name in map(AddressName, document.entries):
            found = good.get(name) or last.addresses.get(name)
            if found is not None:
                result[name] = found
    result = {**result, **kept(document, last.addresses)}
    if result.keys() != good.keys():  # of those that are kept, some may not go together with new ones
        problems += indistinct(document, result, last.addresses)
        problems += shadowed(document, result, last.addresses)
    reasons: dict[str, str] = {}
    for problem in problems:
        if problem.entry is not None:
            reasons.setdefault(problem.entry, f"{problem.field}: {problem.reason}" if problem.field else problem.reason)
    failed = {
        AddressName(shown(name)): _failed(entry, reasons.get(shown(name), "is not valid"))
        for name, entry in document.entries.items()
        if name not in result
    }
    return result, failed, problems


def _failed(entry: Any, reason: str) -> Failed:
    if not isinstance(entry, dict):
        return Failed(reason)
    flavor = entry.get("flavor")
    return Failed(reason, type_of(entry), shown(flavor) if isinstance(flavor, str) else None)
