"""All custom resources together: the parts of configuration files that they are, and what became of each object.

Every object is a part of its own, so that an entry that is in a ConfigMap too is an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enmasse.kubernetes.api_server import Api, Object, ObjectKind
from enmasse.model.configuration import ADDRESSES, FLAVORS, PLANS, SPACES, USERS
from enmasse.model.jsonfile import Unparsable, parse
from enmasse.model.merged import Content, FilePart
from enmasse.model.names import DEFAULT_SPACE, space_error
from enmasse.model.tenants.spaces import space_file
from enmasse.model.values import Wrong
from services.configserv.resources.object_entries import (
    Choices,
    ResourceEntry,
    address_entry,
    address_plan_entry,
    encoded,
    entry_name,
    space_entry,
    space_plan_entry,
    user_entry,
)
from services.configserv.resources.object_kinds import (
    ADDRESS,
    ADDRESS_PLAN,
    ADDRESS_SPACE,
    SPACE_PLAN,
    USER,
    ResourceKey,
    generation,
)
from services.configserv.resources.object_passwords import UserPasswords

Objects = Mapping[ResourceKey, Object]
_NO_USERS = "clients need no credentials in this installation: set the value users.enabled of the chart"
_GIVEN_BY_TEMPLATES = ("type", "flavor", "messageTtl", "maxSize")


class Unread(NamedTuple):
    """Objects of a kind and namespace that are not known, and why."""

    kind: ObjectKind
    namespace: str
    reason: str


class Became(NamedTuple):
    """Result for an object: the entry `name` of its file, in `space`. `reason`: why there is no such entry, or empty.
    `notes`: what of the object has no effect."""

    space: str
    name: str
    source: str
    reason: str = ""
    notes: tuple[str, ...] = ()


class MappedResources(NamedTuple):
    """Parts of files, and what each object became."""

    parts: dict[str, tuple[FilePart, ...]]
    became: dict[ResourceKey, Became]


class ResourceMapping:
    """Maps all objects again and again; what has not changed is taken from the time before.

    `namespace`: that of the release. `assigned`: address space → the only namespace that may have it, and the address
    spaces that other namespaces than the release's may have: a name takes stored messages and sessions with it, so it
    must not go from one tenant to another. `users`: clients log in. `hosts`: those of the release, by which clients of
    all spaces come.
    """

    def __init__(
        self,
        namespace: str,
        assigned: Mapping[str, str],
        passwords: UserPasswords,
        *,
        users: bool,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._namespace = namespace
        self._assigned = assigned
        self._passwords = passwords
        self._users = users
        self._hosts = hosts
        self._known: dict[ResourceKey, tuple[Any, FilePart | None, Became]] = {}
        self._choices: dict[str, Choices] = {}

    def mapped(
        self, objects: Objects, contents: Mapping[str, Content], apis: Mapping[str, Api], unread: Sequence[Unread] = ()
    ) -> MappedResources:
        """Return the parts. `contents`: of the ConfigMaps; `apis`: of each namespace. Blocks: Secrets are read, and
        passwords hashed."""
        return _Round(self, objects, contents, apis, unread).mapped()


class _Space(NamedTuple):
    """An address space: its AddressSpace, None for the default one without any, and why it is not in force."""

    name: str
    key: ResourceKey | None
    reason: str = ""


class _Round:
    """One time of mapping all objects."""

    def __init__(
        self,
        mapping: ResourceMapping,
        objects: Objects,
        contents: Mapping[str, Content],
        apis: Mapping[str, Api],
        unread: Sequence[Unread],
    ) -> None:
        self._m = mapping
        self._objects: dict[ObjectKind, dict[ResourceKey, Object]] = {}
        for key, item in objects.items():
            self._objects.setdefault(key.kind, {})[key] = item
        self._apis = apis
        self._unread = unread
        self._parts: dict[str, list[FilePart]] = {SPACES: [], PLANS: []}
        self._became: dict[ResourceKey, Became] = {}
        self._known: dict[ResourceKey, tuple[Any, FilePart | None, Became]] = {}
        self._flavors = {
            name: str(entry.get("type")) for name, entry in _entries(contents.get(FLAVORS)) if isinstance(entry, dict)
        }
        self._plans = {name: entry for name, entry in _entries(contents.get(PLANS)) if isinstance(entry, dict)}
        self._choices: dict[str, Choices] = {}
        self._listed: dict[str, Mapping[str, Any]] = dict(_entries(contents.get(SPACES)))
        """Address space → its entry, of ConfigMaps and objects."""

    def mapped(self) -> MappedResources:
        self._map_plans()
        spaces = self._map_spaces()
        for key, item in self._of(ADDRESS):
            space, local, reason = self._space_of(key, spaces)
            self._one(key, item, space, local, reason)
        for key, item in self._of(USER):
            space, local, reason = self._space_of(key, spaces)
            self._one(key, item, space, local, reason)
        self._note_unread(spaces)
        self._m._known, self._m._choices = self._known, self._choices
        self._m._passwords.keep({str(item["metadata"].get("uid")) for _, item in self._of(USER)})
        return MappedResources({file: tuple(parts) for file, parts in self._parts.items()}, self._became)

    def _of(self, kind: ObjectKind) -> Iterable[tuple[ResourceKey, Object]]:
        return self._objects.get(kind, {}).items()

    # plans, which are those of the release's namespace

    def _map_plans(self) -> None:
        refused: dict[str, str] = {}
        for key, item in self._of(ADDRESS_PLAN):
            try:
                entry = address_plan_entry(item, self._flavors)
            except Wrong as wrong:
                refused[key.name] = _text(wrong)
                self._refuse(key, DEFAULT_SPACE, _text(wrong), PLANS)
                continue
            self._plans.setdefault(entry.name, entry.value)
            self._add(key, DEFAULT_SPACE, PLANS, entry)
        for key, item in self._of(SPACE_PLAN):
            try:
                entry = space_plan_entry(item, refused)
            except Wrong as wrong:
                self._refuse(key, DEFAULT_SPACE, _text(wrong), PLANS)
                continue
            self._plans.setdefault(entry.name, entry.value)
            self._add(key, DEFAULT_SPACE, PLANS, entry)

    # address spaces

    def _map_spaces(self) -> dict[str, dict[str, _Space]]:
        """Map the AddressSpaces; return namespace → name → space."""
        found: dict[str, dict[str, _Space]] = {}
        for key, item in sorted(self._of(ADDRESS_SPACE), key=_made):  # the first one that states a host has it
            reason = "" if self._is_default(key) else space_error(key.name) or ""
            if not reason and self._m._assigned.get(key.name, self._m._namespace) != key.namespace:
                reason = (
                    "its namespace may not have an address space of this name: the operator of the release adds it to "
                    "the value customResources.namespaces of the chart"
                )
            if reason:
                self._refuse(key, key.name, reason)
            else:
                reason = self._space(key, item)
            found.setdefault(key.namespace, {})[key.name] = _Space(key.name, key, reason)
        return found

    def _space(self, key: ResourceKey, item: Object) -> str:
        """Map an AddressSpace of its own name; return why it is not in force."""
        file = "" if self._is_default(key) else SPACES
        try:
            entry, users = space_entry(key.name, item)
            self._check_hosts(key, entry)
        except Wrong as wrong:
            self._refuse(key, key.name, _text(wrong), file)
            return _text(wrong)
        if not file and entry.value:
            notes = (*entry.notes, f"spec: {' and '.join(entry.value)} have no effect in the default address space")
            entry = entry._replace(value={}, notes=notes)
        self._add(key, key.name, file, entry)
        self._listed.setdefault(key.name, entry.value)
        if file:
            self._parts[space_file(key.name, ADDRESSES)] = []
            self._parts[space_file(key.name, USERS)] = []
        if users and (file or self._m._users):
            part = FilePart(key.source(self._m._namespace), encoded(users))
            self._parts.setdefault(space_file(key.name, USERS), []).append(part)
        return ""

    def _check_hosts(self, key: ResourceKey, entry: ResourceEntry) -> None:
        """Raises Wrong if a tenant would catch the clients of others."""
        stated = entry.value.get("hosts", ())
        taken = {host for host in stated if not self._m._hosts.isdisjoint((host, f"*.{host.partition('.')[2]}"))}
        if taken and key.namespace != self._m._namespace:
            raise Wrong(f"{min(taken)!r} is a host of the release, by which clients of all spaces come", "endpoints")

    def _is_default(self, key: ResourceKey) -> bool:
        return key.name == DEFAULT_SPACE and key.namespace == self._m._namespace

    def _space_of(self, key: ResourceKey, spaces: Mapping[str, Mapping[str, _Space]]) -> tuple[str, str, str]:
        """Return the address space of an object, its name there, and why it is in none: a space is that of objects of
        its own namespace only."""
        if any(each.kind == ADDRESS_SPACE and each.namespace == key.namespace for each in self._unread):
            return "", key.name, "the address spaces of its namespace cannot be read yet"
        own = spaces.get(key.namespace, {})
        prefix, dot, local = key.name.partition(".")
        space = own.get(prefix) if dot and local else None
        if space is None and dot and prefix == DEFAULT_SPACE and key.namespace == self._m._namespace:
            space = _Space(DEFAULT_SPACE, None)
        if space is None:
            local = key.name
            if len(own) == 1:
                (space,) = own.values()
        if space is None:
            known = ", ".join(sorted(own)[:10]) or "none"
            reason = "the name must begin with an address space of this namespace and a dot, as in SPACE.NAME"
            return "", key.name, f"{reason}; there are {known}"
        reason = f"the address space {space.name!r} is not in force: {space.reason}" if space.reason else ""
        return space.name, local, reason

    def _choices_of(self, space: str) -> Choices:
        if space not in self._choices:
            types = {name: str(each.get("type")) for name, each in self._plans.items() if each.get("kind") == "address"}
            if space == DEFAULT_SPACE:
                templates = {
                    name: {part: self._plans[name][part] for part in _GIVEN_BY_TEMPLATES if part in self._plans[name]}
                    for name in types
                }
                choices = Choices({}, self._flavors, templates)
            elif (plan := self._plans.get(str((self._listed.get(space) or {}).get("plan")))) is not None:
                named = plan.get("flavors")
                flavors = self._flavors if named is None else {f: t for f, t in self._flavors.items() if f in named}
                choices = Choices(
                    {name: types[name] for name in plan.get("addressPlans", ()) if name in types}, flavors
                )
            else:
                choices = Choices(types, self._flavors)
            if (self._listed.get(space) or {}).get("type") == "brokered":
                choices = choices._replace(brokered=True)
            before = self._m._choices.get(space)
            self._choices[space] = before if before is not None and before == choices else choices
        return self._choices[space]

    # addresses and users

    def _one(self, key: ResourceKey, item: Object, space: str, local: str, reason: str) -> None:
        """Map an Address or MessagingUser."""
        choices = self._choices_of(space) if key.kind == ADDRESS and not reason else None
        mark = (item["metadata"].get("uid"), generation(item), space, local, reason, choices)
        before = self._m._known.get(key)
        if before is not None and before[0] == mark and not _reads_secret(item):
            self._known[key] = before
        else:
            self._known[key] = mark, *self._mapped(key, item, space, local, reason, choices)
        _, part, became = self._known[key]
        self._became[key] = became
        if part is not None:
            file = space_file(space, ADDRESSES if key.kind == ADDRESS else USERS)
            self._parts.setdefault(file, []).append(part)

    def _mapped(
        self, key: ResourceKey, item: Object, space: str, local: str, reason: str, choices: Choices | None
    ) -> tuple[FilePart | None, Became]:
        source = key.source(self._m._namespace)
        if reason:
            return None, Became(space, local, source, reason)
        name = entry_name(local, item, "address" if key.kind == ADDRESS else "username")
        try:
            if choices is not None:
                entry = address_entry(local, item, choices)
            elif not self._m._users:
                return None, Became(space, local, source, _NO_USERS)
            else:
                entry = user_entry(local, item, self._m._passwords.of(item, space, name, self._apis[key.namespace]))
        except Wrong as wrong:
            return FilePart(source, b"", _text(wrong), name), Became(space, name, source, _text(wrong))
        return FilePart(source, encoded({name: entry.value})), Became(space, name, source, "", entry.notes)

    def _note_unread(self, spaces: Mapping[str, Mapping[str, _Space]]) -> None:
        """Let nothing be taken for removed that is not known."""
        for kind, namespace, reason in self._unread:
            files = {ADDRESS_SPACE: [SPACES], ADDRESS_PLAN: [PLANS], SPACE_PLAN: [PLANS]}.get(kind)
            if kind == ADDRESS_SPACE and namespace == self._m._namespace:
                files = [SPACES, ADDRESSES, *([USERS] if self._m._users else ())]
            if files is None:
                file = ADDRESSES if kind == ADDRESS else USERS
                own = [each.name for each in spaces.get(namespace, {}).values() if not each.reason]
                own += [DEFAULT_SPACE] if namespace == self._m._namespace and DEFAULT_SPACE not in own else []
                files = [space_file(space, file) for space in own if file == ADDRESSES or self._m._users]
            for file in files:
                name = f"{kind.plural} of the namespace {namespace}"
                self._parts.setdefault(file, []).append(FilePart(name, b"", f"cannot be read: {reason}"))

    def _add(self, key: ResourceKey, space: str, file: str, entry: ResourceEntry) -> None:
        source = key.source(self._m._namespace)
        self._became[key] = Became(space, entry.name, source, "", entry.notes)
        if file:
            self._parts[file].append(FilePart(source, encoded({entry.name: entry.value})))

    def _refuse(self, key: ResourceKey, space: str, reason: str, file: str = "") -> None:
        """Note why an object is not in force; with `file` what applied before of its entry stays."""
        source = key.source(self._m._namespace)
        self._became[key] = Became(space, key.name, source, reason)
        if file:
            self._parts[file].append(FilePart(source, b"", reason, key.name))


def _text(wrong: Wrong) -> str:
    return f"spec.{'.'.join(wrong.path)}: {wrong}" if wrong.path else str(wrong)


def _made(each: tuple[ResourceKey, Object]) -> tuple[str, str, str]:
    key, item = each
    return str(item["metadata"].get("creationTimestamp")), key.namespace, key.name


def _reads_secret(item: Object) -> bool:
    return bool(((item.get("spec") or {}).get("authentication") or {}).get("passwordFrom"))


def _entries(content: Content) -> Iterable[tuple[str, Any]]:
    """Yield the entries of a file as written, of its parts that can be read."""
    parts = (FilePart("", content),) if isinstance(content, bytes) else content if isinstance(content, tuple) else ()
    for part in parts:
        try:
            yield from parse(part.name, part.data).entries.items()
        except Unparsable:
            continue
