"""The status of custom resources, from what they became and from the status of addresses. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from enmasse.kubernetes.api_server import Object
from enmasse.model import feeds
from enmasse.model.addresses import Address
from enmasse.model.configuration import AppliedState
from enmasse.model.merged import other_source
from enmasse.model.names import AddressName, LocalName, full_name, split_name
from enmasse.model.tenants.plan_rules import is_exceeded
from enmasse.model.tenants.plans import MAX_COUNT
from enmasse.model.tenants.shares import COUNTED, RATES
from services.configserv.resources.object_kinds import ADDRESS, ADDRESS_SPACE, USER, ResourceKey, generation
from services.configserv.resources.object_mapping import Became

ACTIVE: Final = "Active"
FAILED: Final = "Failed"
PENDING: Final = "Pending"
MAX_MESSAGES, MAX_MESSAGE = 20, 1000
"""Messages of a status, and characters of one."""
_STATES: Final = {"prepared": "Migrating", "active": "Active", "draining": "Draining"}


class Shown(NamedTuple):
    """Facts that a status is made from."""

    addresses: Mapping[AddressName, feeds.AddressStatus]
    errors: Mapping[str, Sequence[str]]
    """Source → what is wrong with it."""
    origins: Mapping[AddressName, str]
    placements: Mapping[AddressName, Sequence[feeds.Placement]]
    state: AppliedState
    uses: Mapping[str, feeds.SpaceUse] = {}
    """Space → what it uses of its plan."""


def shown(
    status: feeds.Status, origins: Mapping[AddressName, str], placements: Mapping[AddressName, Any], state: AppliedState
) -> Shown:
    """Return what statuses are made from."""
    errors: dict[str, list[str]] = {}
    for error in status.errors:
        where = f"{error.field}: " if error.field else ""
        errors.setdefault(error.file, []).append(where + error.reason)
        if (other := other_source(error.reason)) is not None:
            errors.setdefault(other, []).append(f"is in {error.file} too; remove one of the two")
    uses = {} if status.spaces is msgspec.UNSET else status.spaces
    return Shown({each.name: each for each in status.addresses}, errors, origins, placements, state, uses)


Facts = tuple[Any, ...]


def facts_of(key: ResourceKey, item: Object, became: Became, now: Shown) -> Facts | None:
    """Return what decides on the status of an Address; None for an object of another kind, of which there are few."""
    if key.kind != ADDRESS:
        return None
    full = _full(became)
    found = now.addresses.get(full)
    return (
        item["metadata"].get("resourceVersion"),
        became,
        None if found is None else (found.phase, found.message),
        now.origins.get(full),
        now.placements.get(full),
        now.state.addresses.get(full),
    )


class Endpoints(NamedTuple):
    """Endpoints of an AddressSpace: their statuses, the authority that clients trust, and problems by endpoint."""

    statuses: Sequence[Mapping[str, Any]] = ()
    authority: bytes = b""
    problems: Mapping[str, tuple[str, ...]] = {}


NO_ENDPOINTS: Final = Endpoints()


def status_of(
    key: ResourceKey, item: Object, became: Became, now: Shown, endpoints: Endpoints = NO_ENDPOINTS
) -> dict[str, Any]:
    """Return the status that an object is to have; the times of conditions are those of `item` as long as a condition
    does not change, and empty otherwise."""
    if key.kind == ADDRESS:
        return _of_address(item, became, now)
    reasons = [became.reason] if became.reason else list(now.errors.get(became.source, ()))
    phase = FAILED if reasons else ACTIVE
    if key.kind == ADDRESS_SPACE:
        messages = [*reasons, *became.notes, *_of_endpoints(endpoints), *_leaving(became.space, now)]
        more = _shown_endpoints(endpoints) if phase == ACTIVE else {}
        return {**_status(item, phase, messages, {"Quota": _quota(now.uses.get(became.space))}), **more}
    text = "; ".join([*reasons, *became.notes])[:MAX_MESSAGE]
    found: dict[str, Any] = {"phase": phase, "message": text}
    if key.kind == USER:
        found["generation"] = generation(item)
    return {**found, **_conditions(item, phase, text, {})}


def _quota(use: feeds.SpaceUse | None) -> tuple[bool, str, str]:
    """Return the condition of a space that something may be added to all that it has. It does not state numbers, which
    would be written with each change; rates are always used up when clients have much to send."""
    limits = {} if use is None else msgspec.to_builtins(use.limits)
    full = [
        limit
        for limit in (*COUNTED, "users")
        if use is not None and limit not in RATES and use.used.get(limit, 0) >= (limits.get(limit) or MAX_COUNT)
    ]
    text = f"used up: {', '.join(full)}; `enmasse space show` has the numbers" if full else ""
    return not full, "Exceeded" if full else "Within", text


def _of_address(item: Object, became: Became, now: Shown) -> dict[str, Any]:
    full = _full(became)
    found, origin = now.addresses.get(full), now.origins.get(full)
    address = now.state.addresses.get(full)
    if found is None:
        phase, messages = (FAILED, [became.reason]) if became.reason else (PENDING, [])
    elif origin is not None and origin != became.source:
        phase, messages = FAILED, [f"the address {became.name!r} is in {origin} too; remove one of the two"]
        address = None
    else:
        phase, messages = str(found.phase), [found.message] if found.message else []
        if became.reason and became.reason not in found.message:
            messages.insert(0, became.reason)
    conditions: dict[str, tuple[bool, str, str]] = {}
    exceeded = [message for message in messages if is_exceeded(message)]
    conditions["Quota"] = (not exceeded, "Exceeded" if exceeded else "Within", "; ".join(exceeded))
    more: dict[str, Any] = {}
    if address is not None:
        more = _applied(address)
        if address.stored:
            placed = now.placements.get(full, ())
            more["brokerStatuses"] = [
                {"clusterId": each.broker, "containerId": each.broker, "state": _STATES[each.state]} for each in placed
            ]
            has_broker = any(each.active for each in placed)
            conditions["Placed"] = (has_broker, "Placed" if has_broker else "NoBroker", "")
    return {**_status(item, phase, [*messages, *became.notes], conditions), **more}


def _full(became: Became) -> AddressName:
    return full_name(became.space, LocalName(became.name)) if became.space else AddressName("")


def _applied(address: Address) -> dict[str, Any]:
    """Return what of an address in force the original shows as applied."""
    found: dict[str, Any] = {}
    if address.plan is not None:
        found["planStatus"] = {"name": address.plan, "partitions": 1}
    if address.message_ttl is not None:
        found["messageTtl"] = msgspec.to_builtins(address.message_ttl)
    if address.message_redelivery is not None:
        found["messageRedelivery"] = msgspec.to_builtins(address.message_redelivery)
    return found


def _of_endpoints(endpoints: Endpoints) -> list[str]:
    own = [(each["name"], text) for each in endpoints.statuses for text in each.get("messages", ())]
    own += [(name, text) for name, texts in endpoints.problems.items() for text in texts]
    return [f"spec.endpoints: {name!r}: {text}" for name, text in own]


def _shown_endpoints(endpoints: Endpoints) -> dict[str, Any]:
    """Return what of endpoints the original shows."""
    if not endpoints.statuses:
        return {}
    found: dict[str, Any] = {"endpointStatuses": []}
    for each in endpoints.statuses:
        messages = [*each.get("messages", ()), *endpoints.problems.get(each["name"], ())]
        found["endpointStatuses"].append({**each, "messages": messages} if messages else dict(each))
    if endpoints.authority:
        found["caCert"] = base64.b64encode(endpoints.authority).decode()
    return found


def _leaving(space: str, now: Shown) -> list[str]:
    """Return a message for each address of a space that is removed and still holds something."""
    return [
        f"the address {local!r} is removed and not gone yet: {each.message or 'brokers are asked'}"
        for name, each in now.addresses.items()
        if each.phase == "Terminating"
        for of, local in (split_name(name),)
        if of == space
    ]


def _status(
    item: Object, phase: str, messages: Sequence[str], conditions: Mapping[str, tuple[bool, str, str]]
) -> dict[str, Any]:
    cut = [message[:MAX_MESSAGE] for message in dict.fromkeys(messages)]
    if len(cut) > MAX_MESSAGES:
        cut = [*cut[: MAX_MESSAGES - 1], f"and {len(cut) - MAX_MESSAGES + 1} more"]
    head = {"isReady": phase == ACTIVE, "phase": phase, "messages": cut}
    return {**head, **_conditions(item, phase, "; ".join(cut)[:MAX_MESSAGE], conditions)}


def _conditions(item: Object, phase: str, message: str, more: Mapping[str, tuple[bool, str, str]]) -> dict[str, Any]:
    """Return `conditions` and `observedGeneration`."""
    number = generation(item)
    before = {
        each.get("type"): each for each in (item.get("status") or {}).get("conditions") or () if isinstance(each, dict)
    }
    found = []
    for name, (holds, reason, text) in {"Ready": (phase == ACTIVE, phase, message), **more}.items():
        state = "True" if holds else "False"
        was = before.get(name, {})
        since = was.get("lastTransitionTime", "") if was.get("status") == state else ""
        found.append(
            {
                "type": name,
                "status": state,
                "reason": reason,
                "message": text,
                "lastTransitionTime": since,
                "observedGeneration": number,
            }
        )
    return {"conditions": found, "observedGeneration": number}


Urgency = Literal["now", "later", "never"]


def urgency(before: Mapping[str, Any], status: Mapping[str, Any]) -> Urgency:
    """Return when a status is to be written that differs from the one `before`: one that is ready or failed now, and
    another one of an address only after a while, because it will change again soon."""
    if all(before.get(key) == value for key, value in status.items()) and not before.keys() - status.keys():
        return "never"
    return "now" if status["phase"] in (ACTIVE, FAILED) else "later"
