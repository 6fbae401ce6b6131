"""MQTT topics and filters over the configured addresses: which address takes a topic, and its name on AMQP.

A topic belongs to the address of the same name, else to the longest address that is a prefix of it at a `/`, else to
the default of MQTT. Below a topic address the hierarchy is the broker's: `telemetry/a.b` is `telemetry/a%2Eb` on AMQP.
The other types have one name: the address's.

The topics of a removed address that a broker still carries belong to no address (`leaving`).
The default D takes what no other address takes: `x/y` is `D/x/y` on AMQP. `D/x/y` is for MQTT another spelling of
`x/y` (unless another address takes `x/y`): in topics, and in filters that spell D without wildcards. No other filters
reach a topic `D/q/…` below an address `q`, but those that begin with `#`.

`escape` is for the levels below an address. In a level it writes characters that names on AMQP cannot hold, or that
routers or brokers read otherwise, as the percent form of their UTF-8 bytes: `%`, `.`, `*`, `+`, `#`, `::`, white space
and what is not printable. An empty level is `%00`. So two topics never have the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import NamedTuple, cast

from enmasse.model.address_types import TYPES, AddressType, Traits
from enmasse.model.addresses import Address
from enmasse.model.names import (
    DEFAULT_SPACE,
    SPACE,
    AddressName,
    LocalName,
    WireName,
    full_name,
    router_form,
    space_of,
    space_prefix,
    split_name,
    wire_name,
)
from enmasse.name_tries import NameTrie

MAX_LEVELS = 200
"""A topic or filter with more levels belongs to no address: brokers compare level by level, and a tree of filters
spends a node on each."""

_QUEUE = "$queue"
"""First level of shared subscriptions without a group, which EMQX has beside those of MQTT 5."""

_PLAIN = re.compile(r"(?:[A-Za-z0-9_@$=,;~()\[\]!&'-]+(?:/(?!\Z)|\Z))+")  # escaped, it is the same
_PERCENT = re.compile(r"(?:%[0-9A-F]{2})+")
_WRITTEN = "%.*+#"
_EMPTY = "%00"
_NO_TOPIC = re.compile(r"[+#\0]")  # characters that no topic name can hold [MQTT-4.7.1-1], [MQTT-4.7.3-2] (v5)


class TopicOwner(NamedTuple):
    """The address that takes a topic. `wire`: its name on AMQP, to which one sends. `to`: what a message's `to` says:
    the same as its space has it, and for an address that is no topic the levels below it too."""

    name: AddressName
    type: AddressType
    wire: WireName
    to: str

    @property
    def traits(self) -> Traits:
        """Return the traits of the address's type."""
        return TYPES[self.type]


class FilterTarget(NamedTuple):
    """Part of a filter that covers one address. `pattern`: in broker wildcards (`/ + #`); not for topics: the
    address."""

    name: AddressName
    type: AddressType
    pattern: str

    @property
    def traits(self) -> Traits:
        """Return the traits of the address's type."""
        return TYPES[self.type]


class FilterRefused(ValueError):
    """No address takes the filter, or its address cannot be filtered. The text says which and what to do."""


def escape(topic: str) -> str:
    """Return the levels of a topic as levels of a name on AMQP."""
    if _PLAIN.fullmatch(topic):
        return topic
    return "/".join([_escape_level(level) for level in topic.split("/")])


def wire_form(topic: str) -> str:
    """Return the name on AMQP that a topic or filter would have if an address took all of it."""
    return "/".join(_escape_filter(topic.split("/")))


def unescape(name: str) -> str:
    """Return the topic of levels that `escape` wrote. Of any other name too: what no topic can hold gets its percent
    form."""
    if "%" not in name and not _NO_TOPIC.search(name):
        return name
    return "/".join([_unescape_level(level) for level in name.split("/")])


def _below(prefix: str, wire: str) -> str | None:
    """Return the topic of a name below a prefix, without the prefix; None of other names."""
    topic = unescape(wire[len(prefix) :]) if wire.startswith(prefix) else ""
    return topic if topic and not topic.startswith(SPACE) else None


def _escape_level(level: str) -> str:
    if not level:
        return _EMPTY
    text = "".join(
        [
            _percent(character)
            if character in _WRITTEN or character.isspace() or not character.isprintable()
            else character
            for character in level
        ]
    )
    return text.replace("::", "%3A%3A")


def _percent(text: str) -> str:
    return "".join([f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass")])


def _unescape_level(level: str) -> str:
    if level == _EMPTY:
        return ""
    text = _PERCENT.sub(_decoded, level)
    return _NO_TOPIC.sub(lambda found: _percent(found[0]), text)


def _decoded(found: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(found[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return found[0]
    return found[0] if "/" in text or _NO_TOPIC.search(text) else text


def _escape_filter(levels: list[str]) -> list[str]:
    return [level if level in ("+", "#") else _escape_level(level) for level in levels]


class TopicMap:
    """Topics over one snapshot of the addresses of one address space: the others' names are no topics of its clients.
    Cheap to make: what filters need is built with the first of them.

    Topics, filters and what a message's `to` says are names in the space; `TopicOwner` and `FilterTarget` have full
    names, but for `TopicOwner.to`. Names on AMQP may be given in either form."""

    def __init__(
        self,
        addresses: Mapping[AddressName, Address],
        leaving: Iterable[AddressName] | None = None,
        space: str = DEFAULT_SPACE,
        remarked: Iterable[AddressName] = (),
    ) -> None:
        self.space = space
        self.prefix = space_prefix(space)
        """Beginning of the full names of the space."""
        self.default: LocalName | None = None
        """The topic address that takes what no other does."""
        self._addresses: Mapping[LocalName, Address | None] = cast("Mapping[LocalName, Address]", addresses)
        gone: dict[AddressName, Address | None] = {name: None for name in leaving or () if name not in addresses}
        every = {**gone, **addresses} if gone else addresses
        self._dotted: dict[str, LocalName] = {}  # router's form → name, all names if one of them has a dot
        self._longest = 0
        self._tree: NameTrie | None = None
        dotted = False
        if gone or self.prefix or any(name.startswith(SPACE) for name in every):
            named = ((split_name(name), address) for name, address in every.items())
            self._addresses = {name.local: address for name, address in named if name.space == space}
        for name, address in self._addresses.items():
            if address is not None and address.mqtt_default and address.traits.levels:
                self.default = name
            if len(name) > self._longest:
                self._longest = len(name)
            if "." in name:
                dotted = True
        self._below_default = "" if self.default is None else self.default + "/"
        self._below_remarked = [split_name(name).local + "/" for name in remarked if space_of(name) == space]
        if dotted:
            self._dotted = {router_form(name): name for name in self._addresses}

    def with_default(self, name: LocalName | None) -> TopicMap:
        """Return these topics with another default, none if it is no topic."""
        address = None if name is None else self._addresses.get(name)
        other = copy(self)
        other.default = name if address is not None and address.traits.levels else None
        other._below_default = "" if other.default is None else other.default + "/"
        return other

    # Names

    @property
    def names(self) -> list[LocalName]:
        """Names of the addresses, without removed ones that still hold messages."""
        return [name for name, address in self._addresses.items() if address is not None]

    def full(self, name: str) -> str:
        """Return the full name, or filter over full names, of one on AMQP in the space."""
        return self.prefix + name

    def local(self, name: str) -> str:
        """Return a name on AMQP as clients of the space know it; other spaces' unchanged."""
        return name.removeprefix(self.prefix)

    def relative(self, text: str) -> str:
        """Return a text for people of the space, with the names in it as they know them."""
        return text.replace(self.prefix, "") if self.prefix else text

    # Topics

    def owner(self, topic: str) -> TopicOwner | None:
        """Return the owner of a topic. None: it has none, or routers would take its name for another address's."""
        if topic.count("/") >= MAX_LEVELS or topic.startswith(SPACE):
            return None
        name = self._prefix(topic)
        if name is None:
            if self.default is None:
                return None
            return self._topic(self._below_default + escape(topic))
        address = self._addresses[name]
        if address is None:
            return None
        to = name if len(topic) == len(name) else name + "/" + escape(topic[len(name) + 1 :])
        if not address.traits.levels:
            return self._owner(name, address.type, to)
        return self._topic(to)

    def _owner(self, name: LocalName, type: AddressType, to: str) -> TopicOwner:
        """Return the owner of an address that is no topic."""
        known = full_name(self.space, name)
        return TopicOwner(known, type, wire_name(known), to)

    def owner_of_wire(self, to: str) -> TopicOwner | None:
        """Return the owner of an AMQP name: an address, or the topic address above it; None without one."""
        to = self.local(to)
        name = self._prefix_of_wire(to)
        if name is None:
            return None
        address = self._addresses[name]
        if address is None:
            return None
        if address.traits.levels:
            return TopicOwner(full_name(self.space, name), address.type, WireName(self.prefix + to), to)
        return self._owner(name, address.type, to) if len(name) == len(to) else None

    def topic_of(self, wire: str) -> str:
        """The topic of a message whose `to` is `wire`. Any text gives a topic of at least one character
        [MQTT-4.7.3-1]."""
        wire = self.local(wire)
        short = self._without_default(wire)
        return short if short is not None and self._prefix(short) is None else self._spelled(wire)

    def spellings(self, wire: str) -> tuple[str, ...]:
        """`topic_of(wire)`, and for topics of the default the one that has its name in front. Then the topics under
        which the message was sent if it is older than the address that takes that topic now, or than a mark
        `mqttDefault` that was moved."""
        wire = self.local(wire)
        short, full = self._without_default(wire), self._spelled(wire)
        older = self._older(wire) if self._below_remarked else ()
        if short is None:
            return (full, *older)
        owner = self._prefix(short)
        if owner is None:
            return (short, full, *older)
        return (full, *older) if self._of_default(owner) else (full, short, *older)

    def short(self, wire: str) -> str:
        """Return the topic of a name below the default that lacks the default's name; empty for other names."""
        wire = self.local(wire)
        topic = self._without_default(wire)
        if topic is None or self._prefix(topic) is not None or wire != self._below_default + escape(topic):
            return ""
        return topic

    def _without_default(self, wire: str) -> str | None:
        """Return the topic of a name below the default, without the default's name; None of other names."""
        return _below(self._below_default, wire) if self.spells_default(wire) else None

    def _older(self, wire: str) -> list[str]:
        """Return the topics that a name had below addresses that were the default."""
        found = (_below(prefix, wire) for prefix in self._below_remarked if prefix != self._below_default)
        return [topic for topic in found if topic is not None]

    @property
    def default_is_remarked(self) -> bool:
        """The default was another topic address before: filters matched its topics with its name in front."""
        return self._below_default in self._below_remarked

    def spells_default(self, name: str) -> bool:
        """Return whether a topic or filter begins with the name of the default. Such a filter is for the one of
        `spellings` that does too."""
        return bool(self._below_default) and name.startswith(self._below_default)

    def _spelled(self, wire: str) -> str:
        name = self._prefix_of_wire(wire)
        if name is None or len(name) >= len(wire):
            return unescape(wire) or wire
        return name + "/" + unescape(wire[len(name) + 1 :])

    def _topic(self, wire: str) -> TopicOwner | None:
        """Return the topic address that owns a topic: the nearest one above it."""
        name = self._prefix(wire)
        address = None if name is None else self._addresses[name]
        if name is None or address is None or (self._dotted and self._prefix_of_wire(wire) != name):
            return None
        return TopicOwner(full_name(self.space, name), address.type, WireName(self.prefix + wire), wire)

    def _prefix(self, topic: str) -> LocalName | None:
        addresses = self._addresses
        name = LocalName(topic)
        if name in addresses:
            return name
        cut = topic.rfind("/", 0, self._longest + 1)
        while cut > 0:
            name = LocalName(topic[:cut])
            if name in addresses:
                return name
            cut = topic.rfind("/", 0, cut)
        return None

    def _prefix_of_wire(self, wire: str) -> LocalName | None:
        """Return the longest address that covers this name as routers see it, where `.` is `/`."""
        dotted = self._dotted
        if not dotted:
            return self._prefix(wire)
        name = router_form(wire)
        cut = len(name) if len(name) <= self._longest else name.rfind("/", 0, self._longest + 1)
        while cut > 0:
            found = dotted.get(name[:cut])
            if found is not None:
                return found
            cut = name.rfind("/", 0, cut)
        return None

    # Filters

    def targets(self, filter: str) -> list[FilterTarget]:
        """Return the targets of a valid filter (without `$share`): every topic address below which it can match
        something, and the address that it begins with, whatever its type. Raises FilterRefused.

        The patterns cover, of the names of topics, what the filter covers; and topics that begin with `$`, which a
        filter that begins with a wildcard does not cover [MQTT-4.7.2-1] (v5).
        """
        levels = filter.split("/")
        if len(levels) > MAX_LEVELS:
            raise FilterRefused(f"a filter may have {MAX_LEVELS} levels at most; shorten it")
        if filter.startswith(SPACE):
            raise FilterRefused(f"names that begin with {SPACE} are no clients': subscribe to another one")
        if levels[0] == _QUEUE and len(levels) > 1:
            rest = filter[len(_QUEUE) + 1 :]
            raise FilterRefused(
                f"{_QUEUE}/ is no shared subscription here: subscribe to {_shown(f'$share/GROUP/{rest}')}"
            )
        first = next((at for at, level in enumerate(levels) if level in ("+", "#")), len(levels))
        found: dict[FilterTarget, None] = {}
        name = self._prefix("/".join(levels[:first])) if first else None
        address = None if name is None else self._addresses[name]
        if name is not None and address is not None and not address.traits.levels:
            found[self._other(filter, name, address.type)] = None
        if first == len(levels):
            owner = self.owner(filter)
            if owner is not None and owner.traits.levels:
                found[FilterTarget(owner.name, owner.type, owner.wire)] = None
        else:
            if name is None and self.default is not None:
                found.update(dict.fromkeys(self._covered([*self.default.split("/"), *levels], default=True)))
            found.update(dict.fromkeys(self._covered(levels, default=False)))
        if not found:
            raise FilterRefused(
                f"no address takes {_shown(filter)}: subscribe to an address, or mark a topic address mqttDefault"
            )
        return list(found)

    def wire_filters(self, filter: str) -> list[str]:
        """Return which names on AMQP a valid filter matches, in its space, as filters: what its subscriber has to be
        allowed to receive. Raises FilterRefused."""
        found = []
        for target in self.targets(filter):
            pattern = self.local(target.pattern)
            rest = filter[len(self.local(target.name)) + 1 :]
            if target.traits.levels or not rest:
                found.append(pattern)
            else:
                found.append("/".join([pattern, *_escape_filter(rest.split("/"))]))
        return found

    def _other(self, filter: str, name: LocalName, kind: AddressType) -> FilterTarget:
        """The filter begins with the name of an address that is no topic."""
        if not TYPES[kind].broadcast and filter[len(name) :] not in ("", "/#"):
            raise FilterRefused(
                f"{_shown(filter)} would receive a part of {kind} {_shown(name)}, whose other messages would be lost: "
                f"subscribe to {_shown(name)} or {_shown(name + '/#')}"
            )
        known = full_name(self.space, name)
        return FilterTarget(known, kind, wire_name(known))

    def _covered(self, levels: list[str], default: bool) -> Iterator[FilterTarget]:
        """Yield the targets among topic addresses; `default`: the levels begin with the default's name, which its
        topics lack."""
        tail = _escape_filter(levels)
        own = 0 if self.default is None or default else self.default.count("/") + 1
        hidden = any(level in ("+", "#") for level in levels[:own])  # the default is reached without its name
        for found, at in self._topics().above(levels):
            name, rest = LocalName(found), tail[at:]
            address = self._addresses[name]
            assert address is not None  # the trie has addresses only, none that leave
            known = full_name(self.space, name)
            if not hidden or not self._of_default(name):
                yield FilterTarget(known, address.type, "/".join([known, *rest]))
            elif name == self.default and rest in ([], ["#"]):
                yield FilterTarget(known, address.type, known)

    def _of_default(self, name: LocalName) -> bool:
        return name == self.default or name.startswith(self._below_default)

    def _topics(self) -> NameTrie:
        if self._tree is None:
            self._tree = NameTrie()
            for name, address in self._addresses.items():
                if address is not None and address.traits.levels:
                    self._tree.add(name)
        return self._tree


class TopicMaps:
    """Topics over one snapshot of the addresses of all address spaces."""

    def __init__(
        self,
        addresses: Mapping[AddressName, Address],
        leaving: Iterable[AddressName] | None = None,
        remarked: Iterable[AddressName] = (),
    ) -> None:
        self._remarked = remarked
        self._of: dict[str, dict[AddressName, Address]] = {}
        self._leaving: dict[str, list[AddressName]] = {}
        self._made: dict[str, TopicMap] = {}
        if not any(name.startswith(SPACE) for names in (addresses, leaving or ()) for name in names):
            self._made[DEFAULT_SPACE] = TopicMap(addresses, leaving, remarked=remarked)
            return
        for name, address in addresses.items():
            self._of.setdefault(space_of(name), {})[name] = address
        for name in leaving or ():
            self._leaving.setdefault(space_of(name), []).append(name)

    def of(self, space: str) -> TopicMap:
        """Return the topics of an address space; none, if it has no addresses."""
        found = self._made.get(space)
        if found is None:
            found = TopicMap(self._of.get(space, {}), self._leaving.get(space), space, self._remarked)
            if space in self._of or space in self._leaving or space == DEFAULT_SPACE:
                self._made[space] = found
        return found

    def of_name(self, name: str) -> TopicMap:
        """Return the topics of the address space of a full name on AMQP, or of a filter over such names."""
        return self.of(space_of(name))


def _shown(text: str) -> str:
    return repr(text[:100])
