"""flavors.json: which kinds of infrastructure there are (docs/configuration.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from enmasse.model import values
from enmasse.model.address_types import FlavorType
from enmasse.model.jsonfile import Document, Problem
from enmasse.model.names import simple_error
from enmasse.model.values import FULL_POLICIES, FormField, Wrong

TEMPLATES: dict[str, FlavorType] = {
    "queue-inmemory": "queue",
    "queue-persisted": "queue",
    "topic-inmemory": "topic",
    "topic-persisted": "topic",
    "queue-external": "queue",
    "topic-external": "topic",
}
ABOUT = {
    "persisted": "Messages are on disk before they are accepted.",
    "inmemory": "Messages are in memory only: they are lost with their broker, durable ones too.",
    "external": "Messages are on a broker that you manage: the suite makes none.",
}
"""End of a template's name → what becomes of messages."""
AMQP_PORT = 5672
MAX_BROKERS = 64
MAX_SUBSCRIPTIONS = 1_000_000
IN_MEMORY = "in memory: messages are lost with their broker"
"""Part of the message of every address of a flavor that keeps messages in memory, also of one that is ready."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=str.upper):
    """templateParameters in canonical form. Sizes are in bytes; None: the template's default."""

    brokers: int = 1
    """Brokers of the pool; with `dedicated`, of each address."""
    dedicated: bool = False
    """Every address has brokers of its own."""
    storage_capacity: int | None = None
    """Bytes that a broker may keep on disk."""
    memory: int | None = None
    """Bytes that a broker may keep in memory."""
    full_policy: str | None = None
    """Treatment of messages that do not fit: FAIL, BLOCK, DROP or PAGE."""
    max_subscriptions: int | None = None
    """Durable subscriptions that one client may have on a broker."""
    host: str | None = None
    """Host of a broker that is managed by hand; None: brokers are created for the flavor."""
    port: int = AMQP_PORT
    """Port of that broker for AMQP."""


class Flavor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A flavor in canonical form."""

    type: FlavorType
    template_name: str
    template_parameters: Parameters = Parameters()

    @property
    def persisted(self) -> bool:
        """Return True if its brokers keep messages on disk."""
        return self.template_name.endswith("-persisted")

    @property
    def in_memory(self) -> bool:
        """Return True if its brokers keep messages in memory only."""
        return self.template_name.endswith("-inmemory")

    @property
    def by_hand(self) -> bool:
        """Return True if it names a broker that is managed by hand (docs/decisions/0028)."""
        return self.template_name.endswith("-external")


_PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "BROKERS": lambda value: values.whole_parameter(value, 1, MAX_BROKERS),
    "DEDICATED": values.boolean_parameter,
    "STORAGE_CAPACITY": values.size,
    "MEMORY": values.size,
    "FULL_POLICY": values.full_policy,
    "MAX_SUBSCRIPTIONS": lambda value: values.whole_parameter(value, 1, MAX_SUBSCRIPTIONS),
    "HOST": values.host,
    "PORT": lambda value: values.whole_parameter(value, 1, 65535),
}
_BY_HAND = ("HOST", "PORT")
_FIELDS = (
    FormField(
        name="BROKERS", kind="whole", label="Brokers",
        text="Of the pool, 1 to 64; an address is on one of them. Empty: 1.",
    ),
    FormField(
        name="DEDICATED", kind="boolean", label="A broker for each address",
        text="Each address has a broker of its own, in place of a pool.",
    ),
    FormField(
        name="STORAGE_CAPACITY", kind="size", label="Storage of a broker",
        text="Messages on its disk, all addresses together. Empty: the size of the disk.",
    ),
    FormField(
        name="MEMORY", kind="size", label="Memory of a broker",
        text="Messages that it keeps in memory; others are read from disk. Empty: 64 MiB.",
    ),
    FormField(
        name="FULL_POLICY", kind="choice", label="When a broker is full", choices=FULL_POLICIES,
        text="Also for addresses that state nothing else. Empty: FAIL at its storage, PAGE at its memory.",
    ),
    FormField(
        name="MAX_SUBSCRIPTIONS", kind="whole", label="Subscriptions of a client",
        text="Durable ones of one client on one broker. Empty: no limit.",
    ),
    FormField(name="HOST", kind="text", label="Host of your broker", text="Its name or address."),
    FormField(name="PORT", kind="whole", label="Port for AMQP", text="Empty: 5672."),
)  # fmt: skip


def about(template: str) -> str:
    """Return what becomes of messages of a template's brokers."""
    return ABOUT[template.rpartition("-")[2]]


def fields_of(template: str) -> list[FormField]:
    """Return what forms show of the entries of a template, beside type and template."""
    allowed = _allowed(template)
    return [
        msgspec.structs.replace(each, name=f"templateParameters.{each.name}")
        for each in _FIELDS
        if each.name in allowed
    ]


def parse_flavors(document: Document) -> tuple[dict[str, Flavor], list[Problem]]:
    """Return the valid flavors, and what is wrong with the others."""

    def parse(name: str, entry: Any) -> Flavor:
        reason = simple_error(name, "flavor")
        if reason is not None:
            raise Wrong(reason)
        return _flavor(entry)

    good, problems = document.parsed(parse)
    for name, flavor in good.items():
        parameters = flavor.template_parameters
        if parameters.dedicated and parameters.brokers > 1:
            reason = "has no effect: with DEDICATED each address has one broker of its own; remove one of the two"
            problems.append(document.problem(reason, name, "templateParameters", "BROKERS"))
    return good, problems


def _flavor(entry: Any) -> Flavor:
    if not isinstance(entry, dict):
        raise Wrong(
            'must be an object such as {"type": "queue", "templateName": "queue-persisted"}, '
            f"not {values.kind(entry)}"
        )
    for key in entry:
        if key not in ("type", "templateName", "templateParameters"):
            raise values.unknown_key(key, ("type", "templateName", "templateParameters"))
    template = entry.get("templateName")
    if template == "router":
        raise Wrong(
            "routers have no flavors, and this one had no effect; remove the entry, and the key flavor of the anycast "
            "and multicast addresses that name it",
            "templateName",
        )
    if not isinstance(template, str) or template not in TEMPLATES:
        reason = "is missing" if template is None else "is unknown" if isinstance(template, str) else "must be a string"
        raise Wrong(f"{reason}; write one of {', '.join(TEMPLATES)}", "templateName")
    found = entry.get("type")
    if found != TEMPLATES[template]:
        reason = "is missing" if found is None else f"{str(found)[:40]!r} contradicts templateName {template!r}"
        raise Wrong(f"{reason}; write {TEMPLATES[template]!r}", "type")
    flavor = Flavor(
        type=TEMPLATES[template],
        template_name=template,
        template_parameters=_parameters(entry.get("templateParameters", {}), template),
    )
    return flavor


def _parameters(given: Any, template: str) -> Parameters:
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise Wrong(f"must be an object, not {values.kind(given)}", "templateParameters")
    allowed = _allowed(template)
    found: dict[str, Any] = {}
    faults: list[Wrong] = []
    for key, value in given.items():
        if key not in allowed:
            known = ", ".join(allowed) or "none"
            reason = (
                f"not a parameter of {template}; it takes {known}"
                if key in _PARAMETERS
                else f"unknown parameter; {template} takes {known}{values.meant(key, allowed)}"
            )
            faults.append(Wrong(reason, "templateParameters", key))
            continue
        try:
            found[key.lower()] = _PARAMETERS[key](value)
        except Wrong as wrong:
            faults += wrong.within("templateParameters", key)
    if "HOST" in allowed and "HOST" not in given:
        faults.append(Wrong("is missing: write where the broker is that you manage", "templateParameters", "HOST"))
    if faults:
        raise values.all_of(faults)
    return Parameters(**found)


def _allowed(template: str) -> list[str]:
    """The parameters that a template takes."""
    if template.endswith("-external"):
        return list(_BY_HAND)
    without = set(_BY_HAND)
    if template.endswith("-inmemory"):
        without.add("STORAGE_CAPACITY")
    if template.startswith("queue-"):
        without.add("MAX_SUBSCRIPTIONS")
    return [key for key in _PARAMETERS if key not in without]
