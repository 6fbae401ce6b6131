"""addresses.json: which addresses are wanted, with which semantics (docs/configuration.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from shlex import quote
from typing import Any

import msgspec

from enmasse.model import values
from enmasse.model.address_types import TYPES, AddressType, StoredType, Traits, type_of
from enmasse.model.flavors import Flavor, parse_flavors
from enmasse.model.jsonfile import Document, Edit, Problem, RefusedEntry
from enmasse.model.names import AddressName, address_error, router_form
from enmasse.model.values import FULL_POLICIES, FormField, Wrong

_MAX_MS = 2**53
FEW = 20
"""New topics that are compared with each name."""


class Ttl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of messages' time to live in milliseconds; a message without one gets the maximum."""

    minimum: int | None = None
    maximum: int | None = None


class Redelivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How often and when a message is delivered again. Delays in milliseconds; attempts -1 = without end."""

    maximum_delivery_attempts: int | None = None
    redelivery_delay: int | None = None
    redelivery_delay_multiplier: float | None = None
    maximum_delivery_delay: int | None = None


class Address(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An address in canonical form. `flavor` is set if brokers store it."""

    type: AddressType
    flavor: str | None = None
    message_ttl: Ttl | None = None
    message_redelivery: Redelivery | None = None
    deadletter: AddressName | None = None
    """The queue that takes messages which were delivered too often."""
    expiry: AddressName | None = None
    """The queue that takes messages which expired."""
    max_size: int | None = None
    """Bytes the address may hold."""
    full_policy: str | None = None
    """FAIL, BLOCK, DROP or PAGE once it holds them."""
    duplicates: str | None = None
    """"message-id": a message whose id is among the newest that were stored is taken once, durably remembered."""
    mqtt_default: bool = False
    """Takes every MQTT topic that no other address takes."""
    plan: str | None = None
    """Name of a plan in plans.json, in an address space with plans."""
    brokered: bool = False
    """True in a brokered address space, all of whose addresses are at one broker: links of clients are links to that,
    through the router. Not stated in addresses.json."""

    @property
    def traits(self) -> Traits:
        """Return the traits of its type."""
        return TYPES[self.type]

    def written(self) -> dict[str, Any]:
        """Return its entry of addresses.json."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        if found.pop("brokered", False):
            found.pop("flavor", None)  # that of the space
        return found

    @property
    def entity(self) -> StoredType:
        """Return the form in which its broker stores it; only for an address that is stored."""
        found = TYPES[self.type].entity
        assert found is not None
        return found

    @property
    def stored(self) -> bool:
        """Return True if brokers store its messages."""
        return TYPES[self.type].entity is not None


def time_to_live(value: Any) -> Ttl:
    """Return bounds of messages' time to live. Raises Wrong."""
    found = values.members(value, {"minimum": _milliseconds(1), "maximum": _milliseconds(1)})
    if found.get("minimum", 0) > found.get("maximum", _MAX_MS):
        raise Wrong("minimum is larger than maximum; exchange them")
    return Ttl(**found)


def _redelivery(value: Any) -> Redelivery:
    found = values.members(
        value,
        {
            "maximumDeliveryAttempts": _attempts,
            "redeliveryDelay": _milliseconds(0),
            "redeliveryDelayMultiplier": lambda given: values.number(given, 1, 1000),
            "maximumDeliveryDelay": _milliseconds(0),
        },
    )
    return msgspec.convert(found, Redelivery)


def _attempts(value: Any) -> int:
    if value == 0 and not isinstance(value, bool):
        raise Wrong("must be 1 or more, or -1 for no end")
    return values.whole(value, -1, 2**31 - 1)


def _milliseconds(minimum: int) -> Callable[[Any], int]:
    return lambda value: values.whole(value, minimum, _MAX_MS, " of milliseconds")


def _duplicates(value: Any) -> str:
    if value != "message-id":
        raise Wrong('must be "message-id", or be left out')
    return "message-id"


# key in the file → (attribute, check), for what a broker stores
_STORED_ONLY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "messageTtl": ("message_ttl", time_to_live),
    "messageRedelivery": ("message_redelivery", _redelivery),
    "deadletter": ("deadletter", values.text),
    "expiry": ("expiry", values.text),
    "maxSize": ("max_size", values.size),
    "fullPolicy": ("full_policy", values.full_policy),
    "duplicates": ("duplicates", _duplicates),
}
_BASIC = ("type", "store_and_forward", "multicast", "flavor", "mqttDefault")
KEYS = (*_BASIC, *_STORED_ONLY)


def _fields(group: str, *fields: FormField) -> tuple[FormField, ...]:
    stored = tuple(name for name, traits in TYPES.items() if traits.stored)
    return tuple(msgspec.structs.replace(each, group=group, types=each.types or stored) for each in fields)


FIELDS = (
    *_fields(
        "Dead letters and expired messages",
        FormField(
            name="deadletter", kind="queue", label="Queue for dead letters",
            text="For messages that are rejected or delivered too often. Without it they are deleted.",
        ),
        FormField(
            name="expiry", kind="queue", label="Queue for expired messages",
            text="For messages whose time to live has ended. Without it they are deleted.",
        ),
    ),
    *_fields(
        "Time to live",
        FormField(
            name="messageTtl.maximum", kind="milliseconds", label="Longest time to live",
            text="A longer one, or none, is cut to this.",
        ),
        FormField(
            name="messageTtl.minimum", kind="milliseconds", label="Shortest time to live",
            text="A shorter one is raised to this.",
        ),
    ),
    *_fields(
        "Redelivery",
        FormField(
            name="messageRedelivery.maximumDeliveryAttempts", kind="whole", label="Deliveries at most",
            text="-1: without limit. Empty: 10 if there is a queue for dead letters, else without limit.",
        ),
        FormField(
            name="messageRedelivery.redeliveryDelay", kind="milliseconds", label="Delay",
            text="Before the second delivery.",
        ),
        FormField(
            name="messageRedelivery.redeliveryDelayMultiplier", kind="number", label="Factor of the delay",
            text="1 to 1000, for each further delivery.",
        ),
        FormField(
            name="messageRedelivery.maximumDeliveryDelay", kind="milliseconds", label="Longest delay",
            text="The delay grows no further.",
        ),
    ),
    *_fields(
        "Limits",
        FormField(name="maxSize", kind="size", label="Largest size", text="Of all messages of the address together."),
        FormField(
            name="fullPolicy", kind="choice", label="When it is full", choices=FULL_POLICIES,
            text="Empty: as the flavor states.",
        ),
    ),
    *_fields(
        "Duplicates and MQTT",
        FormField(
            name="duplicates", kind="choice", label="Duplicates",
            choices={"message-id": "a message is stored once if its id is among the newest 20,000 of its user"},
        ),
        FormField(
            name="mqttDefault", kind="boolean", label="Takes all other MQTT topics",
            text="Those that no other address takes; one topic can.",
            types=tuple(name for name, traits in TYPES.items() if traits.levels),
        ),
    ),
)  # fmt: skip
"""Fields that forms show, beside type, flavor and plan."""


Parse = Callable[[Any], Address]
"""entry as written → address; raises Wrong."""


def parse_addresses(
    document: Document,
    flavors: Mapping[str, Flavor],
    keep: Mapping[AddressName, Address] = {},
    parse: Parse | None = None,
) -> tuple[dict[AddressName, Address], list[Problem]]:
    """Return the valid addresses, and what is wrong with the others.

    `flavors` are those in force. `keep`: the addresses that were valid before; of two that exclude each other, these
    stay. `parse`: how an entry is read; None: as `parse_address` does.
    """
    good, problems = _entries(document, flavors, keep, parse)
    return good, problems + _together(document, good, flavors, keep)


def problems_of(flavors: Document, addresses: Document) -> list[Problem]:
    """Return what is wrong with these two files, read together."""
    good, problems = parse_flavors(flavors)
    return problems + parse_addresses(addresses, good)[1]


def edit_addresses(
    file: str,
    edit: Edit,
    flavors: Mapping[str, Flavor],
    keep: dict[AddressName, Address],
    parse: Parse | None = None,
) -> dict[AddressName, Address] | None:
    """Return the addresses after an edit of a file of which each entry was valid (`keep`, in its order); None if there
    may be anything wrong with them: only the whole document can tell its line."""
    document = Document(file, "{}", edit.after, [])
    changed, problems = _entries(document, flavors, keep, parse)
    good = None if problems else edit.applied(keep, changed)
    return None if good is None or _together(document, good, flavors, keep) else good


def _entries(
    document: Document, flavors: Mapping[str, Flavor], keep: Mapping[AddressName, Address], parse: Parse | None
) -> tuple[dict[AddressName, Address], list[Problem]]:
    """Return the addresses that are valid each by itself, and what is wrong with the others."""
    good: dict[AddressName, Address] = {}
    problems = [document.repeated(*path) for path in document.duplicates]
    bad = {path[0] for path in document.duplicates}
    # Many addresses are alike: one object for all of them, and the plain ones are looked at once.
    kept = {id(address): address for name in document.entries if (address := keep.get(AddressName(name))) is not None}
    shared = {address: address for address in kept.values()}
    plain: dict[tuple[str, str | None], Address] = {}
    for written, entry in document.entries.items():
        if written in bad:
            continue
        name = AddressName(written)
        reason = None if name in keep else address_error(name)
        if isinstance(entry, RefusedEntry):
            reason = entry.reason
        if reason is not None:
            problems.append(document.problem(reason, name))
            continue
        key = _plain(entry)
        if key is not None and key in plain:
            good[name] = plain[key]
            continue
        try:
            address = parse_address(entry, flavors) if parse is None else parse(entry)
        except Wrong as wrong:
            problems += document.faults(wrong, name)
            continue
        good[name] = address = shared.setdefault(address, address)
        if key is not None:
            plain[key] = address
    return good, problems


def _together(
    document: Document,
    good: dict[AddressName, Address],
    flavors: Mapping[str, Flavor],
    keep: Mapping[AddressName, Address],
) -> list[Problem]:
    """Return what is wrong with addresses that are valid each by itself, and remove these from `good`."""
    return [
        *indistinct(document, good, keep),
        *shadowed(document, good, keep),
        *references(document, good, keep),
        *_without_effect(document, good, flavors),
        *_defaults(document, good, keep),
    ]


def _plain(entry: Any) -> tuple[str, str | None] | None:
    """Type and flavor of an entry that has nothing else; None for any other entry."""
    if not isinstance(entry, dict) or len(entry) > 2:
        return None
    kind, flavor = entry.get("type"), entry.get("flavor")
    if len(entry) != 1 + (flavor is not None) or not isinstance(kind, str) or not isinstance(flavor, str | None):
        return None
    return kind, flavor


def parse_address(entry: Any, flavors: Mapping[str, Flavor], of_space: str | None = None) -> Address:
    """Return one entry in canonical form. `of_space`: the flavor that all addresses of a brokered space have; None: it
    is of another space. Raises Wrong."""
    if not isinstance(entry, dict):
        raise Wrong(f'must be an object such as {{"type": "queue", "flavor": "…"}}, not {values.kind(entry)}')
    kind = _type(entry)
    found: dict[str, Any] = {}
    faults: list[Wrong] = []
    for key, value in entry.items():
        try:
            if key == "mqttDefault" and value is not None:
                found["mqtt_default"] = _mqtt_default(value, kind)
            elif key not in _BASIC:
                attribute, checked = _stored_only(key, value, kind)
                found[attribute] = checked
        except Wrong as wrong:
            faults += wrong.within(key)
    try:
        if of_space is not None:
            found |= {"flavor": _given(entry.get("flavor"), kind, of_space), "brokered": True}
        else:
            found["flavor"] = _flavor(entry.get("flavor"), kind, flavors)
    except Wrong as wrong:
        faults.append(wrong)
    if faults:
        raise values.all_of(faults)
    return Address(type=kind, **found)


def _stored_only(key: str, value: Any, kind: AddressType) -> tuple[str, Any]:
    """Return attribute and value of a key for what a broker stores. Raises Wrong."""
    if key not in _STORED_ONLY:
        raise Wrong(str(values.unknown_key(key, KEYS)))
    if not TYPES[kind].stored:
        what = " or ".join(name for name, traits in TYPES.items() if traits.stored)
        raise Wrong(f"does not apply to {kind}, which stores nothing; remove it, or make the address a {what}")
    attribute, check = _STORED_ONLY[key]
    return attribute, check(value)


def _type(entry: dict[str, Any]) -> AddressType:
    written = entry.get("type")
    kind = type_of(entry)
    if written is not None and kind is None:
        raise Wrong(f"must be one of {', '.join(TYPES)}", "type")
    flags: list[bool | None] = []
    for key in ("store_and_forward", "multicast"):
        value = entry.get(key)
        if value is not None and not isinstance(value, bool):
            raise Wrong(f"must be true or false, not {values.kind(value)}", key)
        flags.append(value)
    stored, multicast = flags
    if written is None and (stored is None or multicast is None):
        missing = "store_and_forward" if stored is None else "multicast"
        raise Wrong(f'is missing; write it, or "type" with one of {", ".join(TYPES)}', missing)
    assert kind is not None  # of each pair of flags there is a type
    traits = TYPES[kind]
    if stored is not None and stored != traits.stored:
        raise Wrong(f"contradicts type {kind!r}; remove one of the two", "store_and_forward")
    if multicast is not None and multicast != traits.fan_out:
        raise Wrong(f"contradicts type {kind!r}; remove one of the two", "multicast")
    return kind


def _given(name: Any, kind: AddressType, of_space: str) -> str:
    if not TYPES[kind].stored:
        stored = " or ".join(each for each, traits in TYPES.items() if traits.stored)
        raise Wrong(f"must be {stored}: the broker of a brokered address space has all addresses, and stores", "type")
    if name not in (None, of_space):
        raise Wrong(f"all addresses of this brokered address space have the flavor {of_space!r}; remove this", "flavor")
    return of_space


def _flavor(name: Any, kind: AddressType, flavors: Mapping[str, Flavor]) -> str | None:
    wanted = TYPES[kind].flavor
    if wanted is None:
        if name is None:
            return None
        raise Wrong(f"addresses of type {kind} have no flavor, routers carry them; remove this", "flavor")
    if name is None:
        fitting = ", ".join(sorted(known for known, flavor in flavors.items() if flavor.type == wanted)[:10])
        raise Wrong(
            f"is missing: a {kind} needs one; flavors for it are {fitting or 'none: define one in flavors.json'}",
            "flavor",
        )
    if not isinstance(name, str):
        raise Wrong(f"must be a string, not {values.kind(name)}", "flavor")
    found = flavors.get(name)
    if found is None or found.type != wanted:
        fitting = ", ".join(sorted(known for known, flavor in flavors.items() if flavor.type == wanted)[:10])
        why = (
            f"unknown flavor {name[:60]!r}"
            if found is None
            else f"{name!r} is a flavor for {found.type}, not for {kind}"
        )
        remedy = f"flavors for it are {fitting}" if fitting else f"define one of type {wanted} in flavors.json"
        of_type = (known for known, flavor in flavors.items() if flavor.type == wanted)
        raise Wrong(f"{why}; {remedy}{values.meant(name, of_type)}", "flavor")
    return name


def _mqtt_default(value: Any, kind: AddressType) -> bool:
    found = values.boolean(value)
    if found and not TYPES[kind].levels:
        raise Wrong(f"applies to a topic, not to {kind}; remove it")
    return found


def indistinct(document: Document, good: dict[AddressName, Address], keep: Collection[AddressName]) -> list[Problem]:
    """Return names that are equal once `.` is read as `/`."""
    problems: list[Problem] = []
    seen: dict[str, AddressName] = {}
    dotted = any("." in name for name in good)
    for name in sorted(good, key=lambda name: name not in keep) if dotted else ():
        other = seen.setdefault(router_form(name), name)
        if other != name:
            reason = f"routers read '.' as '/' and cannot tell it from {other!r}; rename one of the two"
            problems.append(document.problem(reason, name))
    for problem in problems:
        assert problem.entry is not None
        del good[AddressName(problem.entry)]
    return problems


def shadowed(
    document: Document, good: dict[AddressName, Address], keep: Mapping[AddressName, Address]
) -> list[Problem]:
    """Return problems of addresses below a topic that are not topics, and remove the newer of the two from `good`.

    The broker of a topic takes all names below its name. None of `keep` is below a topic of `keep`.
    """
    written = map(AddressName, document.entries)  # of an edit, only what it touches: the others are those of `keep`
    names = [name for name in written if (new := good.get(name)) is not (old := keep.get(name)) and new and new != old]
    dotted = [name for name in good if "." in name]
    topics = {router_form(name): name for name in dotted if good[name].traits.levels}
    below = tuple(f"{router_form(name)}/" for name in names if good[name].traits.levels)
    if len(below) > FEW:
        names = list(good)
    elif below:
        concerned = {*names, *(name for name in dotted if router_form(name).startswith(below))}
        names = [name for name in good if name in concerned or name.startswith(below)]
    problems: list[Problem] = []
    for name in names:
        if name not in good or good[name].traits.levels:
            continue
        above = router_form(name)
        while (cut := above.rfind("/")) > 0:
            above = above[:cut]
            topic = topics.get(above, AddressName(above))
            if topic not in good or not good[topic].traits.levels:
                continue
            if name in keep and topic not in keep:
                gone, reason = topic, f"covers all names below it, and {name!r} is one already; rename one of the two"
            else:
                gone, reason = name, f"is below the topic {topic!r}, which covers all names below it; rename it"
            problems.append(document.problem(reason, gone))
            del good[gone]
            if gone == name:
                break
    return problems


def references(
    document: Document, good: dict[AddressName, Address], keep: Mapping[AddressName, Address]
) -> list[Problem]:
    """Return problems of addresses whose `deadletter` or `expiry` names no queue, and remove these from `good`. `keep`:
    the addresses that were valid before, of which one that is named may be gone.

    A queue names one of its flavor. The storage controller also puts that on the broker of each address that names it,
    because a broker moves messages only within itself."""
    problems: dict[tuple[str, str], Problem] = {}
    changed = True
    while changed:  # an address that goes may be what another one names
        changed = False
        referring = [(n, a) for n, a in good.items() if a.deadletter is not None or a.expiry is not None]
        for name, address in referring:
            for key, other in (("deadletter", address.deadletter), ("expiry", address.expiry)):
                if other is None:
                    continue
                found = good.get(other)
                if other == name:
                    reason = "an address cannot be its own; name another queue"
                elif found is None and other in keep and other not in document.entries:
                    change = f"change that first (`enmasse address set {quote(name)} {key}=`)"
                    reason = f"names {other[:60]!r}, which is removed: {change}, or keep {other[:60]!r}"
                elif found is None:
                    reason = f"there is no valid address {other[:60]!r}; add it as a queue"
                elif not found.traits.takes_dead_letters:
                    reason = f"{other[:60]!r} must be a queue, not {found.type}"
                elif address.traits.entity == "queue" and found.flavor != address.flavor:
                    reason = f"{other[:60]!r} must be of flavor {address.flavor!r} too, so that it is kept the same way"
                else:
                    continue
                problems[name, key] = document.problem(reason, name, key)
                good.pop(name, None)
                changed = True
    return list(problems.values())


def _without_effect(
    document: Document, good: Mapping[AddressName, Address], flavors: Mapping[str, Flavor]
) -> list[Problem]:
    """Properties that only brokers can bring about which are made for their flavor."""
    by_hand = {name for name, flavor in flavors.items() if flavor.by_hand}
    problems = []
    for name, address in good.items() if by_hand else ():
        if address.flavor not in by_hand:
            continue
        for key, (attribute, _) in _STORED_ONLY.items():
            if getattr(address, attribute) is not None:
                reason = f"has no effect: the broker of flavor {address.flavor!r} is managed by hand; set it there"
                problem = document.problem(f"{reason}, and remove it here", name, key)
                problems.append(msgspec.structs.replace(problem, applies=True))
    return problems


def _defaults(document: Document, good: dict[AddressName, Address], keep: Collection[AddressName]) -> list[Problem]:
    """Return problems of all topics but one that are marked as the default of MQTT, and remove these from `good`."""
    marked = sorted((name for name, address in good.items() if address.mqtt_default), key=lambda name: name not in keep)
    problems = []
    for name in marked[1:]:
        del good[name]
        problems.append(document.problem(f"{marked[0]!r} is the default already; only one can be", name, "mqttDefault"))
    return problems
