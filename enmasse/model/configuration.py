"""The files together: what applies, given what applied before (docs/configuration.md). Pure: no file is read here.

A file that does not parse changes nothing. In a file that parses, an invalid entry keeps its last good version, or
fails if it never had one; the others apply. A flavor that addresses still use does not vanish. The files of an address
space are judged by themselves (enmasse/model/tenants).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

import msgspec

from enmasse.model.addresses import Address, edit_addresses
from enmasse.model.brokers import HandMade, parse_brokers, unknown_names
from enmasse.model.flavors import Flavor, parse_flavors
from enmasse.model.issuers import Issuer
from enmasse.model.jsonfile import Document, Problem, Unparsable, edited, parse, shown
from enmasse.model.merged import Content, FilePart, MergedDocument, Unreadable, fingerprint, kept
from enmasse.model.names import DEFAULT_SPACE, SPACE, AddressName
from enmasse.model.tenants import tenancy
from enmasse.model.tenants.plan_rules import rules_of
from enmasse.model.tenants.space_files import Failed, addresses_in_force, in_force, issuers_in_force, users_in_force
from enmasse.model.tenants.spaces import FOLDER, OWN_FILES, Space, split_file
from enmasse.model.tenants.tenancy import Judged, TenantState
from enmasse.model.users import Known, User

FLAVORS, BROKERS = "flavors.json", "brokers.json"
ADDRESSES, USERS, ISSUERS = OWN_FILES
SPACES, PLANS = "spaces.json", "plans.json"
FILES = (ADDRESSES, FLAVORS, BROKERS, USERS, ISSUERS, SPACES, PLANS)
"""Files of the default address space, and of the whole installation."""
SCHEMA = 1
K = TypeVar("K", bound=str)
V = TypeVar("V")

MAX_REMARKED = 1000
"""Topics whose moved mark `mqttDefault` is remembered."""
_WITHOUT = {
    BROKERS: "placements go on without it",
    USERS: "no client is let in before it can be used",
    ISSUERS: f"without {USERS} no client is let in before it can be used",
    SPACES: "there is no address space but the default one before it can be used",
    PLANS: "there are no plans before it can be used",
}
"""File → consequence of the file being unusable, if no content of it has ever applied."""
_IN_SPACE = "nothing of it is in force before it can be used"
"""Consequence for a file of an address space."""
_PUT_BACK = {
    USERS: "Put it back; a file with an entry 'anonymous' (`enmasse user add anonymous`) lets in clients without "
    "credentials",
    ISSUERS: "Put it back; {} in it means no issuers",
    SPACES: "Put it back; {} in it means no address space but the default one",
    PLANS: "Put it back; {} in it means no plans",
}
"""File → remedy if it is missing after it has applied: what it protected must not be open then."""


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
    remarked: tuple[AddressName, ...] = ()
    """Topics whose `mqttDefault` was set or taken back after they were made, the last of them last."""
    tenants: TenantState | msgspec.UnsetType = msgspec.UNSET
    """Address spaces and plans; absent: there has never been any. The addresses of all spaces are in `addresses`."""

    @property
    def anonymous(self) -> bool:
        """There is nothing that proves users: clients need no credentials."""
        return self.users is None and self.issuers is None

    @property
    def complete(self) -> bool:
        """Both files have been applied at some time."""
        return ADDRESSES in self.config and FLAVORS in self.config


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
    judged: Mapping[str, Judged] = {}
    """Address space → what was found for it, but for the default one. Empty for a state that was stored."""
    own: dict[AddressName, Address] | None = None
    """Addresses of the default space; None: those of the state without a space in front."""


def apply(
    contents: Mapping[str, Content],
    before: Applied,
    known_users: Known | None = None,
    left: Mapping[str, str] = MappingProxyType({}),
) -> Applied:
    """Return the configuration that applies: the files' contents over the configuration before. `known_users`: as of
    `parse_users`; `left`: removed address space → its remains."""
    last = before.state
    files = _Files(contents, dict(last.config))
    config, problems = files.config, list[Problem]()
    own = _own(before)
    edit = _edited(contents, before, own)
    whole = FILES if edit is None else tuple(file for file in FILES if file not in (ADDRESSES, FLAVORS))
    documents = {file: files.document(file, problems) for file in whole}
    spaces = _Spaces(files, documents, before, left)
    if FLAVORS not in config or spaces.unknown:  # addresses cannot be judged yet
        config.pop(ADDRESSES, None)
        documents[ADDRESSES] = None
    brokers = _brokers(documents[BROKERS], contents.get(BROKERS), last, config, problems)
    document = documents[BROKERS]
    failed_brokers = [name for name in document.entries if name not in (brokers or {})] if document is not None else []
    if edit is None:
        addresses, flavors, failed = _addresses_and_flavors(
            documents[ADDRESSES], documents[FLAVORS], own, last.flavors, spaces, problems
        )
        changed, as_written = (
            differing(own, addresses),
            _as_written(contents, documents[ADDRESSES], problems),
        )
    else:
        addresses, changed, as_written = edit
        flavors, failed = last.flavors, {}
        config[ADDRESSES] = sha256(as_written[0])
        spaces.judge(flavors, {})
    problems += spaces.problems
    every = spaces.with_addresses(addresses)
    failed = {**failed, **spaces.failed}
    if document is not None and ADDRESSES in config:
        known = {**dict.fromkeys(failed), **{name: address.type for name, address in every.items()}}
        problems += unknown_names(document, brokers or {}, known, flavors)
    if brokers is not None:
        problems += _unplaced(brokers, flavors, documents[FLAVORS])
    users = users_in_force(documents[USERS], last.users, problems, known_users)
    issuers = issuers_in_force(documents[ISSUERS], last.issuers, problems)
    state = AppliedState(
        config=config,
        addresses=every,
        flavors=flavors,
        brokers=brokers,
        users=users,
        issuers=issuers,
        salt_key=last.salt_key,
        remarked=_remarked(last, every, [*changed, *spaces.changed]),
        tenants=spaces.state,
    )
    return Applied(
        state=state,
        contents=contents,
        changed=[*changed, *spaces.changed],
        as_written=as_written,
        failed=failed,
        failed_brokers=failed_brokers,
        users_known=(users is not None or contents.get(USERS) is None)
        and (not state.anonymous or contents.get(ISSUERS) is None),
        problems=problems,
        origins={**_origins(documents.get(ADDRESSES)), **spaces.origins},
        judged=spaces.judged,
        own=addresses,
    )


def _remarked(
    last: AppliedState, addresses: Mapping[AddressName, Address], changed: Iterable[AddressName]
) -> tuple[AddressName, ...]:
    """Return the topics whose mark `mqttDefault` has moved. Messages of before are read by them."""
    found = dict.fromkeys(last.remarked)
    for name in changed:
        before, after = last.addresses.get(name), addresses.get(name)
        if before is not None and before.mqtt_default != (after is not None and after.mqtt_default):
            found.pop(name, None)
            found[name] = None
    return tuple(found)[-MAX_REMARKED:]


def _parts_of_spaces(contents: Mapping[str, Content], reason: str) -> Iterator[Problem]:
    """Yield a problem for each part of a file of a space; `reason` has {} for its name."""
    for file, content in contents.items():
        if (space := split_file(file).space) != DEFAULT_SPACE and isinstance(content, tuple):
            yield from (Problem(file=part.name, reason=reason.format(repr(space))) for part in content)


def _own(before: Applied) -> dict[AddressName, Address]:
    """Return the addresses of the default space."""
    if before.own is not None:
        return before.own
    found = before.state.addresses
    if before.state.tenants is msgspec.UNSET:
        return found
    return {name: address for name, address in found.items() if not name.startswith(SPACE)}


class _Files:
    """Contents as documents. `config`: file → SHA-256 (hex) of what applies."""

    def __init__(self, contents: Mapping[str, Content], config: dict[str, str]) -> None:
        self.contents = contents
        self.config = config

    def document(self, file: str, problems: list[Problem]) -> Document | None:
        """Return the document of a file; None: no content of it can be used, what applied before stays. Add what is
        wrong to `problems`."""
        return _document(file, self.contents.get(file), self.config, problems)

    def note(self, file: str) -> None:
        """Note that the content of a file is in force."""
        content = self.contents[file]
        assert isinstance(content, bytes)
        self.config[file] = sha256(content)


class _Spaces:
    """The address spaces beside the default one. `judge` finds out what is in force of them."""

    def __init__(
        self, files: _Files, documents: Mapping[str, Document | None], before: Applied, left: Mapping[str, str]
    ) -> None:
        stored = before.state.tenants
        self._left = left
        self._files = files
        self._document, self._plans = documents[SPACES], documents[PLANS]
        self._last = TenantState() if stored is msgspec.UNSET else stored
        self._before = before.judged or tenancy.as_stored(self._last, before.state.addresses)
        self.unknown = files.contents.get(SPACES) is not None and SPACES not in files.config
        """There is a spaces.json that has never been usable: which addresses there are is not known."""
        self.judged: dict[str, Judged] = {}
        self.state: TenantState | msgspec.UnsetType = stored
        self.problems: list[Problem] = []

    def judge(self, flavors: Mapping[str, Flavor], clung: Mapping[str, Flavor]) -> None:
        """Find out what is in force with these flavors, of which `clung` stay only for those who use them."""
        self.problems = []
        last = self._last
        if self._document is None and self._plans is None and not (last.spaces or last.plans.any or last.ending):
            self.problems += self._without_entry({})
            return
        plans = tenancy.plans_in_force(self._plans, flavors, last.plans, self.problems)
        entries = tenancy.spaces_in_force(self._document, plans, flavors, last.spaces, self._left, self.problems)
        plans = tenancy.with_used(plans, entries.values(), last.plans)
        self.problems += self._without_entry(entries)
        self.judged = {
            name: tenancy.judge(
                name,
                entry,
                rules_of(name, entry, plans, flavors, self._addresses(name)),
                clung,
                self._files.contents,
                self._files,
                self._before.get(name),
            )
            for name, entry in entries.items()
        }
        self.problems += [
            problem for each in self.judged.values() for found in each.problems.values() for problem in found
        ]
        self.state = TenantState(
            spaces={name: each.state for name, each in self.judged.items()},
            plans=plans,
            ending=tenancy.ending(entries, last, self._left),
        )

    def _addresses(self, space: str) -> Collection[Address]:
        before = self._before.get(space)
        return () if before is None else before.addresses.values()

    def _without_entry(self, entries: Mapping[str, Space]) -> list[Problem]:
        """Return a problem for each folder without a space in force, and forget the files of removed spaces."""
        waiting = set(self._left) & (self._document.entries.keys() if self._document is not None else set())
        contents = {
            file: content
            for file, content in self._files.contents.items()
            if content and split_file(file).space not in (DEFAULT_SPACE, *entries, *waiting)
        }
        reason = f"there is no valid address space of this name in {SPACES}: add it there, or remove this folder"
        if self._files.contents.get(SPACES) is None:
            reason = f"there is no {SPACES}, which names the address spaces: add it with an entry of this name, or "
            reason += "remove this folder"
        for file in list(self._files.config):
            if (space := split_file(file).space) != DEFAULT_SPACE and space not in entries:
                del self._files.config[file]
        folders = {split_file(file).space for file, content in contents.items() if not isinstance(content, tuple)}
        return [
            *(Problem(file=f"{FOLDER}/{space}", reason=reason) for space in sorted(folders)),
            *_parts_of_spaces(contents, f"{{}} is no valid address space of {SPACES}: add it there, or remove this"),
        ]

    def uses(self) -> Iterator[Address]:
        """Return the addresses in force of all spaces."""
        return chain.from_iterable(each.full.values() for each in self.judged.values())

    @property
    def failed(self) -> dict[AddressName, Failed]:
        """Entries without a valid version, by full names."""
        return {name: failed for each in self.judged.values() for name, failed in each.failed.items()}

    @property
    def origins(self) -> dict[AddressName, str]:
        """Address → the name of its source, by full names."""
        return {name: origin for each in self.judged.values() for name, origin in each.origins.items()}

    @property
    def changed(self) -> list[AddressName]:
        """Addresses that differ from those before, by full names."""
        names: list[AddressName] = []
        for space in {**self._before, **self.judged}:
            before, now = self._before.get(space, _NONE), self.judged.get(space, _NONE)
            names += differing(before.full, now.full) if before.full is not now.full else ()
        return names

    def with_addresses(self, own: dict[AddressName, Address]) -> dict[AddressName, Address]:
        """Return the addresses of all spaces by full names, given those of the default one."""
        if not self.judged:
            return own
        found = dict(own)
        for each in self.judged.values():
            found.update(each.full)
        return found


_NONE = Judged()

Written = tuple[bytes, bytes]
"""Contents of addresses.json and flavors.json."""


def _as_written(contents: Mapping[str, Content], document: Document | None, problems: list[Problem]) -> Written | None:
    """Return the two files, if each entry of them is in force and a later edit can be judged by itself."""
    addresses, flavors = contents.get(ADDRESSES), contents.get(FLAVORS)
    if document is None or not document.plain or any(problem.file in (ADDRESSES, FLAVORS) for problem in problems):
        return None
    return (addresses, flavors) if isinstance(addresses, bytes) and isinstance(flavors, bytes) else None


def _edited(
    contents: Mapping[str, Content], before: Applied, own: dict[AddressName, Address]
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
        return own, [], written
    edit = edited(written[0], content)
    addresses = None if edit is None else edit_addresses(ADDRESSES, edit, last.flavors, own)
    if edit is None or addresses is None:
        return None
    names = map(AddressName, {**edit.after, **edit.before})
    changed = [name for name in names if own.get(name) != addresses.get(name)]
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
    return {AddressName(shown(name)): origin for name, origin in document.origins.items()}


def sha256(data: bytes) -> str:
    """Return the SHA-256 of a content, in hex."""
    return hashlib.sha256(data).hexdigest()


def _document(file: str, content: Content, config: dict[str, str], problems: list[Problem]) -> Document | None:
    in_space = split_file(file).space != DEFAULT_SPACE
    missing = _IN_SPACE if in_space else _WITHOUT.get(file, "nothing is served before it can be used")
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
    elif file in _PUT_BACK or in_space:
        if file in config:
            remedy = _PUT_BACK.get(file, "Put it back; {} in it means none")
            problems.append(Problem(file=file, reason=f"is missing; {kept}. {remedy}"))
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
    return in_force(document, good, last.brokers or {})


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
    document: Document | None,
    flavor_document: Document | None,
    last: dict[AddressName, Address],
    last_flavors: dict[str, Flavor],
    spaces: _Spaces,
    problems: list[Problem],
) -> tuple[dict[AddressName, Address], dict[str, Flavor], dict[AddressName, Failed]]:
    """Return the addresses of the default space, the flavors, and entries of addresses without a valid version; judge
    the other spaces too. `last`: addresses of the default space."""
    new = dict(last_flavors)
    flavor_problems: list[Problem] = []
    if flavor_document is not None:
        good, flavor_problems = parse_flavors(flavor_document)
        new = {}
        for name in flavor_document.entries:
            found = good.get(name) or last_flavors.get(name)
            if found is not None:
                new[name] = found
        new |= kept(flavor_document, last_flavors)
    # Flavors that the file takes away or retypes keep their last version while an address needs them.
    clung: dict[str, Flavor] = {}
    while True:
        flavors = {**new, **clung}
        addresses, failed, wrong = addresses_in_force(document, flavors, clung, last)
        spaces.judge(flavors, clung)
        needed = {
            address.flavor
            for address in chain(addresses.values(), spaces.uses())
            if address.flavor is not None and not _fits(new.get(address.flavor), address)
        }
        if needed <= clung.keys():
            break
        clung.update((name, last_flavors[name]) for name in needed)
    for name in clung:
        flavor_problems.append(_in_use(name, flavor_document, spaces.with_addresses(addresses)))
    problems += flavor_problems
    problems += wrong
    return addresses, flavors, failed


def _fits(flavor: Flavor | None, address: Address) -> bool:
    wanted = address.traits.flavor
    if address.brokered:
        return flavor is not None and not flavor.by_hand
    return wanted is None or (flavor is not None and flavor.type == wanted)  # None: one that earlier versions stored


def _in_use(name: str, document: Document | None, addresses: Mapping[AddressName, Address]) -> Problem:
    users = sorted(address for address, entry in addresses.items() if entry.flavor == name)
    listed = ", ".join(map(repr, users[:5])) + (", …" if len(users) > 5 else "")
    if document is not None and name in document.entries:
        reason = f"its type cannot change while addresses use it ({listed}); the old flavor stays until they do not"
        return document.problem(reason, name)
    reason = f"is still used by {listed}; it stays until they have another flavor. Put it back, or move them"
    return Problem(file=FLAVORS, entry=name, reason=reason)
