"""Custom resources as entries of the configuration files, one by one. Pure.

The shapes are those of EnMasse 0.33, so that its manifests apply. What has no meaning here is refused with the remedy,
or has no effect, which the status of the object says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from enmasse.kubernetes.api_server import Object
from enmasse.model.address_types import TYPES
from enmasse.model.jsonfile import shown
from enmasse.model.tenants.plans import SPACE as OF_SPACE
from enmasse.model.tenants.spaces import TYPES as SPACE_TYPES
from enmasse.model.users import ANONYMOUS, pattern_error
from enmasse.model.values import Wrong
from services.configserv.resources.endpoints import service_names
from services.configserv.resources.object_passwords import Hashed

_WITH_USERS: Final = ("standard", "standard-authservice")
_WITHOUT_USERS: Final = ("none", "none-authservice")
_INFRASTRUCTURE: Final = ("default", "default-minimal", "default-with-mqtt")
"""References to the infrastructure that EnMasse's own examples name: that of this installation."""
_AS_WRITTEN: Final = (
    "messageTtl",
    "messageRedelivery",
    "deadletter",
    "expiry",
    "maxSize",
    "fullPolicy",
    "duplicates",
    "mqttDefault",
)
"""Fields of an Address that addresses.json has under the same names."""
_ALL: Final = "#"


class ResourceEntry(NamedTuple):
    """An entry of a configuration file. `notes`: what of the object has no effect, and why."""

    name: str
    value: dict[str, Any]
    notes: tuple[str, ...] = ()


class Choices(NamedTuple):
    """Plans and flavors that the addresses of a space may have: name → type. `templates`: in the default space, where
    addresses have no plan: name of a plan → what it gives. `brokered`: its addresses need neither, it has a flavor."""

    plans: Mapping[str, str]
    flavors: Mapping[str, str]
    templates: Mapping[str, Mapping[str, Any]] | None = None
    brokered: bool = False


def space_entry(name: str, item: Object) -> tuple[ResourceEntry, dict[str, Any]]:
    """Return the entry of spaces.json of an AddressSpace, and what users.json of the space has because of it. Raises
    Wrong."""
    spec = _spec(item)
    kind = _type_of_space(spec.get("type"), "type")
    if spec.get("connectors"):
        raise Wrong(
            "connections to other brokers are not made: name the broker in a flavor (`HOST`), or move its messages "
            "here; remove this",
            "connectors",
        )
    users = _users_without_passwords(spec.get("authenticationService") or {})
    notes = []
    hosts = []
    for endpoint in spec.get("endpoints") or ():
        host = (endpoint.get("expose") or {}).get("routeHost") or endpoint.get("host")
        hosts += [host.lower()] if isinstance(host, str) else []
        if set(endpoint) & {"expose", "cert"}:
            notes.append(
                f"spec.endpoints: of {endpoint.get('name', '?')!r} only host and exports count; the chart exposes all "
                "spaces at once (its values routes, ingress, loadBalancer)"
            )
    hosts += service_names(item)
    if spec.get("networkPolicy"):
        notes.append("spec.networkPolicy has no effect: the value networkPolicy of the chart is for all spaces")
    value: dict[str, Any] = {"hosts": list(dict.fromkeys(hosts))} if hosts else {}
    if kind != "standard":
        value["type"] = kind
    if spec.get("plan"):
        value["plan"] = spec["plan"]
    return ResourceEntry(name, value, tuple(notes)), users


def address_entry(local: str, item: Object, choices: Choices) -> ResourceEntry:
    """Return the entry of addresses.json of an Address. `local`: its name without that of the space, for an Address
    that states no other one. Raises Wrong."""
    spec = _spec(item)
    kind = str(spec.get("type", "queue"))
    if kind == "subscription":
        raise Wrong(
            "there are no addresses of this type: clients make a durable subscription of the topic "
            f"{shown(str(spec.get('topic', '')))!r} themselves (docs/engines.md); remove this object",
            "type",
        )
    for key in ("topic", "subscription", "forwarders"):
        if spec.get(key):
            raise Wrong("is not there: remove it, and let a client receive from one address and send to the other", key)
    kind = "queue" if kind == "deadletter" else kind
    value: dict[str, Any] = {key: spec[key] for key in _AS_WRITTEN if key in spec}
    plan, notes = spec.get("plan"), tuple[str, ...]()
    if spec.get("flavor"):
        value |= {"type": kind, "flavor": spec["flavor"]}
    elif plan and choices.templates is not None and plan in choices.templates:
        value = {**choices.templates[plan], **value}
        if value.get("type") != kind:
            raise Wrong(
                f"is {kind!r}, and the plan {plan!r} is for {value.get('type')!r}; change one of the two", "type"
            )
    elif plan and plan in choices.plans:
        value |= {"type": kind, "plan": plan}
    elif plan and plan in choices.flavors:
        value |= {"type": kind, "flavor": plan}
    elif plan and choices.templates is None:
        value |= {"type": kind, "plan": plan}  # which is reported with the plans that there are
    elif plan and _is_stored(kind):
        raise Wrong(
            f"there is neither an AddressPlan nor a flavor {shown(str(plan))!r}; flavors are "
            f"{', '.join(sorted(choices.flavors)[:10]) or '(none)'}",
            "plan",
        )
    elif plan:
        value |= {"type": kind}
        notes = (f"spec.plan has no effect: there is no AddressPlan {shown(str(plan))!r}, and a {kind} needs none",)
    else:
        value |= {"type": kind, **({} if choices.brokered else _default(kind, choices))}
    return ResourceEntry(entry_name(local, item, "address"), value, notes)


def user_entry(local: str, item: Object, hashed: Hashed | None) -> ResourceEntry:
    """Return the entry of users.json of a MessagingUser, of whose password these are the hashes. Raises Wrong."""
    spec = _spec(item)
    kind = (spec.get("authentication") or {}).get("type", "password")
    if kind != "password":
        raise Wrong(
            f"{shown(str(kind))!r} is not known: users prove themselves by a password, or by a token of an issuer "
            "(issuers.json, docs/identity.md)",
            "authentication",
            "type",
        )
    notes = [] if hashed is None else list(hashed.notes)
    permissions = []
    for rule in spec.get("authorization") or ():
        patterns = []
        for pattern in rule.get("addresses") or (_ALL,):
            reason = pattern_error(str(pattern))
            if reason is None:
                patterns.append(pattern)
            else:
                notes.append(
                    f"spec.authorization: the pattern {shown(str(pattern))!r} gives nothing, because it {reason}"
                )
        if patterns and rule.get("operations"):
            permissions.append({"allow": list(rule["operations"]), "addresses": patterns})
    value: dict[str, Any] = {"permissions": permissions}
    if hashed is not None:
        value |= {"password": hashed.password, "scram": hashed.scram}
    return ResourceEntry(entry_name(local, item, "username"), value, tuple(notes))


def address_plan_entry(item: Object, flavors: Mapping[str, str]) -> ResourceEntry:
    """Return the entry of plans.json of an AddressPlan. Raises Wrong."""
    spec = _spec(item)
    kind = spec.get("addressType")
    if kind == "subscription":
        raise Wrong("there are no addresses of this type: clients make durable subscriptions themselves", "addressType")
    kind = "queue" if kind == "deadletter" else str(kind)
    value: dict[str, Any] = {"kind": "address", "type": kind}
    value |= {key: spec[key] for key in ("messageTtl", "maxSize") if key in spec}
    value |= {"flavor": spec["flavor"]} if spec.get("flavor") else _default(kind, Choices({}, flavors))
    value["credits"] = {
        name: spec["resources"][name] for name in ("router", "broker") if name in spec.get("resources", {})
    }
    notes = []
    if (spec.get("partitions") or 1) > 1:
        notes.append("spec.partitions has no effect: one broker has all messages of a queue, in their order")
    if spec.get("messageRedelivery"):
        notes.append("spec.messageRedelivery has no effect: state it in the Address")
    return ResourceEntry(item["metadata"]["name"], value, tuple(notes))


def space_plan_entry(item: Object, unknown: Mapping[str, str]) -> ResourceEntry:
    """Return the entry of plans.json of an AddressSpacePlan. `unknown`: AddressPlans that are refused, with the reason.
    Raises Wrong."""
    spec = _spec(item)
    _type_of_space(spec.get("addressSpaceType"), "addressSpaceType")
    reference = spec.get("infraConfigRef")
    if reference and reference not in _INFRASTRUCTURE:
        raise Wrong(
            f"there is no infrastructure {shown(str(reference))!r}: routers and brokers of all spaces are the chart's "
            "values router and broker, and flavors; remove this, or write 'default'",
            "infraConfigRef",
        )
    plans = spec.get("addressPlans") or []
    left_out = [name for name in plans if name in unknown]
    value = {
        "kind": OF_SPACE,
        "addressPlans": [name for name in plans if name not in unknown],
        "flavors": spec.get("flavors") or [],
        "creditLimits": spec.get("resourceLimits") or {},
        "limits": spec.get("limits") or {},
    }
    notes = [f"spec.addressPlans: {name!r} is left out: {unknown[name]}" for name in left_out]
    return ResourceEntry(item["metadata"]["name"], value, tuple(notes))


def _spec(item: Object) -> dict[str, Any]:
    found = item.get("spec")
    return found if isinstance(found, dict) else {}


def _type_of_space(value: Any, key: str) -> str:
    if value not in (None, *SPACE_TYPES):
        raise Wrong(f"{shown(str(value))!r} is not known: write one of {', '.join(SPACE_TYPES)}", key)
    return str(value or "standard")


def _users_without_passwords(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of users.json that an authentication service stands for. Raises Wrong."""
    name = service.get("name", _WITH_USERS[0])
    if service.get("overrides"):
        raise Wrong(
            "is not known: issuers of a space are in its issuers.json; remove this",
            "authenticationService",
            "overrides",
        )
    if name in _WITH_USERS:
        return {}
    if name in _WITHOUT_USERS:
        return {ANONYMOUS: {"permissions": [{"allow": ["send", "recv"], "addresses": [_ALL]}]}}
    raise Wrong(
        f"there is no authentication service {shown(str(name))!r}: write 'standard' (MessagingUsers, and tokens of the "
        "issuers in issuers.json of the space) or 'none' (clients need no credentials)",
        "authenticationService",
        "name",
    )


def _default(kind: str, choices: Choices) -> dict[str, Any]:
    """Return the plan, or the flavor, of an object that names none: the first of its type. Raises Wrong."""
    for key, known in (("plan", choices.plans), ("flavor", choices.flavors)):
        found = next((name for name, of in known.items() if of == kind), None)
        if found is not None:
            return {key: found}
    if _is_stored(kind):
        raise Wrong(f"names neither plan nor flavor, and no flavor is for a {kind}: add one")
    return {}


def _is_stored(kind: str) -> bool:
    return any(name == kind and traits.stored for name, traits in TYPES.items())


def entry_name(local: str, item: Object, key: str) -> str:
    """Return the name of the entry of an object, which `key` of its specification may state."""
    return str(_spec(item).get(key) or local)


def encoded(entries: Mapping[str, Any]) -> bytes:
    """Return a part of a file with these entries."""
    return msgspec.json.encode(entries)
