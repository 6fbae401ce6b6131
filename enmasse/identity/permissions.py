"""Permissions of principals on addresses (docs/identity.md, "Permissions"). No sockets, no clock.

Addresses are names as routers resolve them: without scheme, host, leading and trailing separator; of `topic::queue` the
topic. The words of addresses and patterns are separated by `.` or `/`, which are the same. A pattern is a name, or ends
with the word `*` (exactly one word) or `#` (any number of words: `a/#` matches `a` too). Names that begin with `$`,
`_` or `!!` belong to the suite: `*` and `#` as the first word of a pattern do not allow them, but deny them.
What can be permitted (send, recv, …) is the table in `enmasse/model/permission_words.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from itertools import islice, takewhile
from shlex import quote
from typing import Final, NamedTuple

from enmasse.identity.principal import Principal
from enmasse.model.names import DEFAULT_SPACE, SPACE, router_form
from enmasse.model.permission_words import Operation
from enmasse.model.topic_map import escape
from enmasse.model.users import GROUP, USER_VARIABLE, ConnectionLimits, Effect, Granted, Permission, words
from enmasse.text import MOST_COMPARED, did_you_mean

_RESERVED: Final = ("$", "_", SPACE)
_MAX_ANSWERS, _LONGEST = 512, 1024
"""Answers that are kept for a principal, and characters of a name or filter of which one is kept."""
_MAX_PRINCIPALS = 20_000
"""Principals whose permissions are kept compiled."""
_OTHER_PLACEHOLDER: Final = re.compile(r"%[uc](?![A-Za-z0-9])|\$user\b")
"""Placeholder for the user's name or the client identifier at other servers, and for nothing here."""


class Rule(NamedTuple):
    """A permission that applies to a principal, and its place: `alice.permissions.0`."""

    where: str
    permission: Permission

    def __str__(self) -> str:
        of = self.permission
        return f"{self.where}: {of.effect} {','.join(of.operations)} on {', '.join(of.addresses)}"


class Decision(NamedTuple):
    """Whether an operation is allowed, and the rule that decides; None: no rule matches, or all is allowed."""

    allowed: bool
    rule: Rule | None = None


_NO_RULE: Final = Decision(False)
_ANYTHING: Final = Decision(True)


_Answers = dict[tuple[Operation, str], Decision]


class _Patterns:
    """Patterns of one effect and operation: each with its rule."""

    def __init__(self) -> None:
        self.exact: dict[str, Rule] = {}
        self.one: dict[str, Rule] = {}
        """`a/` → rule, for `a/*`."""
        self.below: dict[str, Rule] = {}
        """`a/` → rule, for `a/#`; for `#` the key is empty."""
        self.words: dict[tuple[str, ...], Rule] = {}
        self._longest = 0
        """Characters of the longest key of `below`."""

    def add(self, pattern: str, rule: Rule) -> None:
        *first, last = split = words(pattern)
        self.words.setdefault(tuple(split), rule)
        head = "".join([word + "/" for word in first])
        if last == "#":
            self.below.setdefault(head, rule)
            self._longest = max(self._longest, len(head))
            if first:
                self.exact.setdefault(head[:-1], rule)
        elif last == "*":
            self.one.setdefault(head, rule)
        else:
            self.exact.setdefault(head + last, rule)

    def match(self, name: str, *, widest: bool = True) -> Rule | None:
        """Return the rule of a pattern that matches a name, whose separators are `/`. `widest` False: leave out `*` and
        `#` as the first word."""
        head = name[: name.rfind("/") + 1]
        found = self.exact.get(name) or (self.one.get(head) if head or widest else None)
        return found or self.above(head, widest=widest)

    def above(self, head: str, *, widest: bool = True) -> Rule | None:
        """Return the rule of a pattern that matches everything below the words of `head`, which ends with `/`."""
        below = self.below
        end = len(head) if len(head) <= self._longest else head.rfind("/", 0, self._longest) + 1
        while end:
            found = below.get(head[:end])
            if found is not None:
                return found
            end = head.rfind("/", 0, end - 1) + 1
        return below.get("") if widest else None


class Rights:
    """Permissions of one principal."""

    def __init__(self, user: str, rules: tuple[Rule, ...], *, everything: bool = False) -> None:
        self.rules = rules
        """The rules that apply, with patterns as written: Rights of equal user and rules are the same."""
        self._everything = everything
        self._allow: dict[Operation, _Patterns] = {}
        self._deny: dict[Operation, _Patterns] = {}
        self._decided: _Answers = {}
        self._covered: _Answers = {}
        for rule in rules:
            tables = self._allow if rule.permission.effect == "allow" else self._deny
            for operation in rule.permission.operations:
                table = tables.setdefault(operation, _Patterns())
                for pattern in rule.permission.addresses:
                    table.add(expanded(pattern, user), rule)

    def allows(self, operation: Operation, address: str) -> bool:
        """Return whether the operation is allowed on this address."""
        found = self._decided.get((operation, address))
        return (found or self.decide(operation, address))[0]

    def decide(self, operation: Operation, address: str) -> Decision:
        """Return the decision about one address, with its rule."""
        key = operation, address
        return self._decided.get(key) or _keep(self._decided, key, self._decide(operation, address.replace(".", "/")))

    def covers(self, operation: Operation, filter: str) -> Decision:
        """Return whether the operation is allowed on every name that a filter matches.

        In a filter the word `+` stands for one word and `#`, as the last word, for any number of words (what follows
        another `#` is ignored). As its first word they do not match the suite's own names.
        """
        key = operation, filter
        found = self._covered.get(key)
        if found is not None:
            return found
        split = words(filter)
        wild = next((index for index, word in enumerate(split) if word in ("+", "#")), None)
        if wild is None:
            return self.decide(operation, filter)
        return _keep(self._covered, key, self._covers(operation, split, wild))

    def _decide(self, operation: Operation, name: str) -> Decision:
        if self._everything:
            return _ANYTHING
        denied = self._deny.get(operation)
        if denied is not None and (rule := denied.match(name)) is not None:
            return Decision(False, rule)
        allowed = self._allow.get(operation)
        rule = None if allowed is None else allowed.match(name, widest=not name.startswith(_RESERVED))
        return _NO_RULE if rule is None else Decision(True, rule)

    def _covers(self, operation: Operation, split: list[str], wild: int) -> Decision:
        if self._everything:
            return _ANYTHING
        denied = self._deny.get(operation)
        for pattern, rule in denied.words.items() if denied is not None else ():
            if _meet(split, pattern):
                return Decision(False, rule)
        allowed = self._allow.get(operation)
        if allowed is None:
            return _NO_RULE
        head = "".join([word + "/" for word in split[:wild]])
        widest = not head.startswith(_RESERVED)
        found = allowed.one.get(head) if split[wild:] == ["+"] else None
        found = found or allowed.above(head, widest=widest)
        return _NO_RULE if found is None else Decision(True, found)


class Permissions:
    """Permissions of the users and groups of one address space. `anonymous`: there are no users, all is allowed.

    `entries` may be changed in place; `changed` takes that into account.
    """

    def __init__(self, entries: Mapping[str, Granted], *, anonymous: bool = False, space: str = DEFAULT_SPACE) -> None:
        self.anonymous = anonymous
        self._entries = entries
        self.space = space
        self._rights: dict[str, dict[Principal, Rights]] = {}
        """User → its principals, of which a user with tokens may have several."""
        self._number = 0
        """Principals in `_rights`."""

    def changed(self, names: Set[str], *, anonymous: bool) -> None:
        """Put other entries in force: those of `names`. A principal to whom the same rules apply keeps its Rights, the
        same object."""
        if anonymous != self.anonymous:
            self.anonymous = anonymous
            self._clear()
            return
        groups = {name.removeprefix(GROUP) for name in names if name.startswith(GROUP)}
        for user in list(self._rights) if groups else names & self._rights.keys():
            found = self._rights[user]
            for principal, rights in list(found.items()):
                concerned = user in names or not groups.isdisjoint(self.groups(principal))
                if concerned and rights.rules != self._rules(principal):
                    del found[principal]
                    self._number -= 1
            if not found:
                del self._rights[user]

    def _clear(self) -> None:
        self._rights.clear()
        self._number = 0

    def knows(self, user: str) -> bool:
        """Return whether there is an entry of this user."""
        return user in self._entries and not user.startswith(GROUP)

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do. The groups of a user with an entry are those of the entry."""
        known = self._rights.get(principal.name)
        found = None if known is None else known.get(principal)
        if found is None:
            if self._number >= _MAX_PRINCIPALS:
                self._clear()
            found = Rights(
                principal.name, self._rules(principal), everything=self.anonymous and principal.space == self.space
            )
            self._rights.setdefault(principal.name, {})[principal] = found
            self._number += 1
        return found

    def groups(self, principal: Principal) -> tuple[str, ...]:
        """Return the groups of a principal: those of its entry, if there is one."""
        entry = self._entries.get(principal.name) if self.knows(principal.name) else None
        return principal.groups if entry is None else entry.groups

    def limits(self, principal: Principal) -> ConnectionLimits:
        """Return the limits of a principal's connections: each that of its own entry, else the least of its groups."""
        if self.anonymous:
            return ConnectionLimits()
        found = {name: self._entries[name].limits for name in self._names(principal)}
        own, groups = found.pop(principal.name, ConnectionLimits()), list(found.values())
        return ConnectionLimits(
            connections=_least(own.connections, [each.connections for each in groups]),
            connects_per_second=_least(own.connects_per_second, [each.connects_per_second for each in groups]),
        )

    def decide(self, principal: Principal, operation: Operation, address: str) -> Decision:
        """Return whether a principal may do this on an address, with the rule that decides."""
        return self.rights(principal).decide(operation, address)

    def covers(self, principal: Principal, operation: Operation, filter: str) -> Decision:
        """Return whether a principal may do this on every name that a filter matches."""
        return self.rights(principal).covers(operation, filter)

    def _rules(self, principal: Principal) -> tuple[Rule, ...]:
        return tuple(
            Rule(f"{name}.permissions.{number}", permission)
            for name in self._names(principal)
            for number, permission in enumerate(self._entries[name].permissions)
        )

    def _names(self, principal: Principal) -> list[str]:
        """Return the entries that apply to a principal: its own, if there is one, then those of its groups."""
        if principal.space != self.space:
            return []
        own = [principal.name] if self.knows(principal.name) else []
        names = [*own, *(GROUP + group for group in self.groups(principal))]
        return [name for name in dict.fromkeys(names) if name in self._entries]


def without_address(patterns: Iterable[str], addresses: Mapping[str, bool]) -> list[str]:
    """Return the patterns of permissions that match none of these addresses, and no name below one. `addresses`: name →
    whether it is a topic, which has names below it. Reserved names count as there, and all that a pattern of variables
    or wildcards alone may match."""
    known = {router_form(name): is_topic for name, is_topic in addresses.items()}
    found = []
    for pattern in patterns:
        split = router_form(pattern).split("/")
        fixed = list(takewhile(lambda word: word not in ("*", "#") and USER_VARIABLE not in word, split))
        heads = ["/".join(fixed[:number]) for number in range(1, len(fixed) + 1)]
        if not heads or pattern.startswith(_RESERVED) or heads[-1] in known or any(known.get(each) for each in heads):
            continue
        if len(fixed) == len(split) or not any(name.startswith(f"{heads[-1]}/") for name in known):
            found.append(pattern)
    return found


def pattern_warnings(patterns: Iterable[str], addresses: Mapping[str, bool]) -> list[str]:
    """Return sentences about patterns of permissions that may not mean what they say. `addresses`: as in
    `without_address`; empty: not known."""
    patterns = list(patterns)
    found = [
        f"{pattern}: {other} stands for itself there. Only {USER_VARIABLE} is replaced, by the user's name."
        for pattern in patterns
        for other in _OTHER_PLACEHOLDER.findall(pattern)
    ]
    strays = without_address(patterns, addresses) if addresses else ()
    near = list(islice(addresses, MOST_COMPARED))
    return found + [f"no address is there that {each!r} matches.{did_you_mean(each, near)}" for each in strays]


def deciding(
    name: str, permissions: Iterable[Permission], effect: Effect, wanted: Iterable[tuple[Operation, str]]
) -> list[Rule]:
    """Return the permissions of an entry that have this effect on one of the wanted operations on its pattern."""
    rules = [Rule(f"{name}.permissions.{number}", each) for number, each in enumerate(permissions)]
    rights = Rights(name, tuple(rule for rule in rules if rule.permission.effect == effect))
    found = [rights.decide(operation, expanded(pattern, name)).rule for operation, pattern in wanted]
    return list(dict.fromkeys(rule for rule in found if rule is not None))


def denial_warning(name: str, rule: Rule) -> str:
    """Return a sentence about a permission of an entry that denies what another one allows."""
    of = rule.permission
    denial = " ".join([quote(name), ",".join(of.operations), *map(quote, of.addresses)])
    return f"{rule} still holds, whatever is allowed: `enmasse user revoke {denial} --denial` lifts it."


NO_MANAGER: Final = (
    "no user with an entry has the permission `manage` on '#' now, so only the operator changes users and addresses. "
    "The operator gives it to one: `enmasse user allow NAME manage '#'`."
)


def has_manager(known: Permissions, names: Iterable[str]) -> bool:
    """Return True if one of these users may manage everything in the address space."""
    users = (name for name in names if not name.startswith(GROUP))
    return any(known.rights(Principal(name, space=known.space)).covers("manage", "#").allowed for name in users)


def _least(own: int | None, groups: list[int | None]) -> int | None:
    return own if own is not None else min((each for each in groups if each is not None), default=None)


def expanded(pattern: str, user: str) -> str:
    """Return a pattern for this user. The name is escaped as an MQTT level is, `/` too, so that it is one literal word:
    `a/b` is `a%2Fb`, `#` is `%23`. At the start of a pattern it does not name the suite's own addresses either."""
    if USER_VARIABLE not in pattern:
        return pattern
    name = escape(user).replace("/", "%2F")
    if pattern.startswith(USER_VARIABLE) and name.startswith(_RESERVED):
        pattern = f"%{ord(name[0]):02X}{name[1:]}" + pattern[len(USER_VARIABLE) :]
    return pattern.replace(USER_VARIABLE, name)


def _keep(answers: _Answers, key: tuple[Operation, str], decision: Decision) -> Decision:
    if len(key[1]) > _LONGEST:
        return decision
    if len(answers) >= _MAX_ANSWERS:
        answers.clear()
    answers[key] = decision
    return decision


def _meet(split: list[str], pattern: tuple[str, ...]) -> bool:
    """Return whether some name matches both a filter and a pattern that denies."""
    if split[0] in ("+", "#") and pattern[0].startswith(_RESERVED):
        return False
    for ours, theirs in zip(split, pattern, strict=False):
        if ours == "#" or theirs == "#":
            return True
        if ours != theirs and ours != "+" and theirs != "*":
            return False
    longer = split[len(pattern) :] or pattern[len(split) :]
    return not longer or longer[0] == "#"
