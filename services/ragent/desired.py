"""What all routers shall have, kept up to date from the feeds: a change of one address costs work for one address."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from services.ragent import entities
from services.ragent.entities import Carried, Entity, Placement

Names = set[tuple[str, str]]
"""Type and name of entities."""

_NONE: tuple[Placement, ...] = ()


class Desired:
    """The wanted state. `changed_*` give each address whose entities may differ now, with the names it had before."""

    def __init__(self, listeners: Iterable[tuple[str, str, int, tuple[str, str] | None, str | None]]) -> None:
        """`listeners`: name, host, port, (certificate, key), and the id of the one router that has it (None: all)."""
        self.has_addresses = False
        self.has_placements = False
        self._listeners = list(listeners)
        self._kinds: dict[str, str] = {}
        self._placed: dict[str, tuple[Placement, ...]] = {}
        self._brokers: dict[str, tuple[str, int, str]] = {}
        self._invalid: frozenset[str] = frozenset()
        self._invalid_brokers: frozenset[str] = frozenset()
        self.by_hand: dict[str, tuple[str, int]] = {}
        """The brokers that no storage controller looks after."""
        self._capacity: int | None = None
        # Thousands of addresses have the same placements: one tuple for all of them, and what follows from it.
        self._shared: dict[tuple[Placement, ...], tuple[Placement, ...]] = {}
        self._carried: dict[tuple[str | None, tuple[Placement, ...]], Carried | None] = {}

    @property
    def complete(self) -> bool:
        """Every source has delivered: only then may anything be deleted."""
        return self.has_addresses and self.has_placements

    def set_addresses(self, body: Mapping[str, Any]) -> dict[str, Names]:
        """Takes a snapshot of the feed `addresses`. Raises ValueError where it is not one; nothing has changed then."""
        found = body.get("addresses")
        if not isinstance(found, dict):
            raise ValueError("addresses: expected an object")
        kinds: dict[str, str] = {}
        for name, entry in found.items():
            kind = entry.get("type") if isinstance(entry, dict) else None
            if kind not in ("queue", "topic", "anycast", "multicast"):
                raise ValueError(f"addresses.{name}.type: unknown type {kind!r}")
            kinds[name] = kind
        old = self._kinds
        invalid = _names("invalid", body)
        kinds |= {name: old[name] for name in invalid if name in old}
        changed = [name for name, kind in kinds.items() if old.get(name) != kind]
        changed += [name for name in old if name not in kinds]
        changed += [n for n in invalid ^ self._invalid if n in self._placed and n not in kinds and n not in old]
        before = {name: self.names(name) for name in changed}
        self._kinds, self._invalid = kinds, invalid
        self.has_addresses = True
        return before

    def set_placements(self, body: Mapping[str, Any]) -> tuple[dict[str, Names], set[str]]:
        """Takes a snapshot of the feed `placements`: changed addresses, and brokers that came, went, moved or were
        started again.

        Raises ValueError where it is not one; nothing has changed then.
        """
        brokers, found = body.get("brokers"), body.get("addresses")
        if not isinstance(brokers, dict) or not isinstance(found, dict):
            raise ValueError("brokers, addresses: expected objects")
        where = {name: _endpoint(name, entry) for name, entry in brokers.items()}
        invalid = _names("invalid", body)
        shared: dict[tuple[Placement, ...], tuple[Placement, ...]] = {}
        placed: dict[str, tuple[Placement, ...]] = {}
        for name, entries in found.items():
            key = tuple(_placement(name, entry) for entry in entries)
            placed[name] = shared.setdefault(key, key)
        old = self._placed
        changed = [name for name, key in placed.items() if old.get(name) != key]
        changed += [name for name in old if name not in placed]
        before = {name: self.names(name) for name in changed}
        moved = {name for name in where.keys() | self._brokers.keys() if where.get(name) != self._brokers.get(name)}
        self._placed, self._shared, self._brokers, self._invalid_brokers = placed, shared, where, invalid
        self.by_hand = {name: where[name][:2] for name, entry in brokers.items() if entry.get("byHand") is True}
        self._carried.clear()
        self.has_placements = True
        return before, moved

    def carried_by(self, brokers: Collection[str]) -> list[str]:
        """The addresses of which something lies on one of these."""
        if not brokers:
            return []
        return [name for name, placed in self._placed.items() if any(each.broker in brokers for each in placed)]

    def set_flavors(self, body: Mapping[str, Any]) -> bool:
        """Takes a snapshot of the feed `flavors`; True where the listeners' settings have changed."""
        flavors = body.get("flavors")
        if not isinstance(flavors, dict):
            raise ValueError("flavors: expected an object")
        capacity = None
        for name in sorted(flavors):
            flavor = flavors[name]
            if isinstance(flavor, dict) and flavor.get("type") == "router":
                value = (flavor.get("templateParameters") or {}).get("LINK_CAPACITY")
                capacity = int(value) if value is not None else capacity
        differs = capacity != self._capacity
        self._capacity = capacity
        return differs

    @property
    def addresses(self) -> Iterable[str]:
        """The names of all wanted addresses."""
        return self._kinds.keys()

    def carriers(self) -> Iterable[str]:
        """The names of all addresses that routers have to know: the wanted ones and those that are being drained."""
        yield from self._kinds
        yield from (name for name in self._placed if name not in self._kinds)

    def kind(self, name: str) -> str | None:
        """The wanted type of an address; None where it is not wanted (any more)."""
        return self._kinds.get(name)

    def placements(self, name: str) -> tuple[Placement, ...]:
        return self._placed.get(name, _NONE)

    def work(self, name: str) -> Carried | None:
        """What a router has to do for the address."""
        kind, placed = self._kinds.get(name), self._placed.get(name, _NONE)
        if kind is None and name in self._invalid:  # it goes on as what lies there
            kind = next((p.kind for p in placed if not p.draining), None)
        key = kind, placed
        try:
            return self._carried[key]
        except KeyError:
            return self._carried.setdefault(key, entities.carried(*key))

    def of_address(self, name: str) -> list[Entity]:
        return entities.of_address(name, self.work(name))

    def names(self, name: str) -> Names:
        return set(entities.names_of_address(name, self.work(name)))

    def is_kept(self, name: str) -> bool:
        """Whether the entity of this name stays as it is: the configuration has its address or broker, and nobody knows
        what it is to be."""
        owner = entities.owner(name)
        return owner is not None and (owner.subject in self._invalid or owner.broker in self._invalid_brokers)

    @property
    def brokers(self) -> Mapping[str, tuple[str, int, str]]:
        """Host, port, and which run of it that is."""
        return self._brokers

    def connectors(self) -> list[Entity]:
        return [entities.connector(name, host, port) for name, (host, port, _) in self._brokers.items()]

    @property
    def has_listeners(self) -> bool:
        """Some router has a listener for clients."""
        return bool(self._listeners)

    def listeners(self, router: str) -> list[Entity]:
        """The listeners for clients of one router, and their TLS profiles. A port of a host is one router's."""
        wanted = [each[:4] for each in self._listeners if each[4] in (None, router)]
        return entities.listeners(wanted, self._capacity)

    def expected(self, router: str, type_: str, name: str) -> Entity | None:
        """The wanted entity of this name; None where none is wanted (or nobody but us could know the name)."""
        owner = entities.owner(name)
        if owner is None or owner.type != type_:
            return None
        if type_ == entities.CONNECTOR:
            where = self._brokers.get(owner.broker)
            return entities.connector(owner.broker, *where[:2]) if where else None
        wanted = self.listeners(router) if type_ in (entities.LISTENER, entities.SSL_PROFILE) else None
        for entity in self.of_address(owner.subject) if wanted is None else wanted:
            if entity.name == name and entity.type == type_:
                return entity
        return None


def _names(key: str, body: Mapping[str, Any]) -> frozenset[str]:
    found = body.get(key) or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{key}: expected an array of names")
    return frozenset(found)


def _endpoint(name: str, entry: Any) -> tuple[str, int, str]:
    host, port = (entry.get("host"), entry.get("port")) if isinstance(entry, dict) else (None, None)
    if not isinstance(host, str) or not isinstance(port, int):
        raise ValueError(f"brokers.{name}: expected host and port")
    return host, port, str(entry.get("run") or "")


def _placement(name: str, entry: Any) -> Placement:
    if not isinstance(entry, dict):
        raise ValueError(f"addresses.{name}: expected objects")
    broker, state, kind = entry.get("broker"), entry.get("state", "active"), entry.get("type")
    if not isinstance(broker, str) or state not in ("active", "draining") or kind not in (None, "queue", "topic"):
        raise ValueError(f"addresses.{name}: expected broker, state (active, draining) and type (queue, topic)")
    return Placement(broker, state == "draining", kind)
