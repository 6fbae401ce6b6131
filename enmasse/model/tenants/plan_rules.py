"""Terms of the plan of an address space for its addresses: plans, flavors, and how many there may be. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from enmasse.model.address_types import TYPES, type_of
from enmasse.model.addresses import Address, Ttl, parse_address
from enmasse.model.flavors import Flavor
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.names import MAX_ADDRESS, AddressName, space_prefix
from enmasse.model.tenants.plans import AddressPlan, Credits, Plans, SpacePlan
from enmasse.model.tenants.spaces import Space, brokered_flavors
from enmasse.model.users import GROUP, User
from enmasse.model.values import Wrong, meant

_REMEDY: Final = "remove one, or ask for another plan of the space"
_ROUNDING: Final = 1e-9


class PlanRules(NamedTuple):
    """Rules for the addresses of a space. `plan`: the name of its plan; None: it may use everything."""

    space: str
    plan: str | None
    terms: SpacePlan
    """Content of that plan."""
    address_plans: Mapping[str, AddressPlan]
    """Plans that its addresses may have."""
    flavors: Mapping[str, Flavor]
    """Flavors in force."""
    flavor: str | None = None
    """The flavor of all addresses of a brokered space; None for another space."""

    @property
    def limited(self) -> bool:
        """Return whether the plan limits the number of addresses, or their credits."""
        limits = self.terms.limits
        return limits.addresses is not None or bool(limits.addresses_by_type) or self.terms.credit_limits != Credits()

    def parse(self, entry: Any) -> Address:
        """Return one entry of addresses.json in canonical form. Raises Wrong."""
        if isinstance(entry, dict) and "plan" in entry:
            return self._planned(entry)
        if self.flavor is not None:
            return parse_address(entry, self.flavors, self.flavor)
        permitted = self.terms.flavors
        if permitted is not None and isinstance(entry, dict) and entry.get("flavor") is None:
            kind = type_of(entry)
            if kind is not None and TYPES[kind].flavor is not None:
                text = f"is missing: a {kind} needs one, or a plan; the plan {self.plan!r} of the space: "
                raise Wrong(text + self._choices(), "flavor")
        address = parse_address(entry, self.flavors)
        if permitted is not None and address.flavor is not None and address.flavor not in permitted:
            raise Wrong(
                f"the plan {self.plan!r} of the space has no flavor {address.flavor!r}; {self._choices()}", "flavor"
            )
        return address

    def _choices(self) -> str:
        plans, flavors = ", ".join(sorted(self.address_plans)), ", ".join(sorted(self.terms.flavors or ()))
        return f"it has the flavors {flavors or '(none)'}, and the address plans {plans or '(none)'}"

    def _planned(self, entry: dict[str, Any]) -> Address:
        """Return an entry that names a plan, which gives what the entry does not state."""
        name = entry["plan"]
        plan = self.address_plans.get(name) if isinstance(name, str) else None
        if plan is None:
            known = ", ".join(sorted(self.address_plans)[:10]) or "none"
            hint = meant(str(name), self.address_plans)
            raise Wrong(f"no address plan {shown(str(name))!r} for this space; there are {known}{hint}", "plan")
        of_space = self.flavor
        has_none = plan.flavor is None or of_space is not None
        given = {"type": plan.type} if has_none else {"type": plan.type, "flavor": plan.flavor}
        stated = {key: value for key, value in entry.items() if key != "plan"}
        for key, value in given.items():
            if key in stated and stated[key] != value:
                raise Wrong(f"contradicts the plan {name!r}, which has {value!r}; remove one of the two", key)
        address = parse_address({**given, **stated}, self.flavors, of_space)
        ttl, size = address.message_ttl, address.max_size
        if plan.message_ttl is not None:
            ttl = _bounded(ttl or Ttl(), plan.message_ttl, name)
        if plan.max_size is not None:
            if size is not None and size > plan.max_size:
                raise Wrong(f"{size} is more than the {plan.max_size} bytes of the plan {name!r}; lower it", "maxSize")
            size = plan.max_size if size is None else size
        return msgspec.structs.replace(address, plan=name, message_ttl=ttl, max_size=size)

    def exceeded(
        self, document: Document, found: dict[AddressName, Address], last: Mapping[AddressName, Address]
    ) -> list[Problem]:
        """Return problems of the addresses that are too many beside those of `last`, in the order of the file, and take
        these out of `found`, or give them their last version."""
        changed = [name for name, address in found.items() if last.get(name) != address]
        if not changed:
            return []
        problems = []
        counted = found if self.limited else changed
        held = {name: address for name in counted if (address := last.get(name)) is not None}
        used = _Used(self)
        for address in held.values():
            used.count(address, 1)
        prefix = len(space_prefix(self.space))
        for name in changed:
            before, address = held.get(name), found[name]
            if before is not None:
                used.count(before, -1)
            reason = used.reason_against(address)
            if before is None and len(name) + prefix > MAX_ADDRESS:
                reason = f"with the space in front the name has more than {MAX_ADDRESS} bytes; shorten it"
            if not reason or (before is not None and used.is_no_more(before, address)):
                used.count(address, 1)
                continue
            problems.append(document.problem(reason, name))
            if before is None:
                del found[name]
            else:
                used.count(before, 1)
                found[name] = before
        return problems

    def users_exceeded(self, document: Document, found: dict[str, User], last: Mapping[str, User]) -> list[Problem]:
        """Return problems of the users that are too many beside those of `last`, in the order of the file, and take
        these out of `found`. Groups do not count."""
        limit, users = self.terms.limits.users, [name for name in found if not name.startswith(GROUP)]
        if limit is None or len(users) <= limit:
            return []
        used, problems = sum(name in last for name in users), []
        for name in users:
            if name in last:
                continue
            if used < limit:
                used += 1
                continue
            reason = f"{used} of {limit} users of the plan {self.plan!r} are used: {_REMEDY}"
            problems.append(document.problem(reason, name))
            del found[name]
        return problems


class _Used:
    """Share of the limits of a plan that a number of addresses takes."""

    def __init__(self, rules: PlanRules) -> None:
        self._rules = rules
        self._addresses = 0
        self._by_type: dict[str, int] = {}
        self._router = self._broker = 0.0

    def count(self, address: Address, sign: int) -> None:
        router, broker = self._credits(address)
        self._addresses += sign
        self._by_type[address.type] = self._by_type.get(address.type, 0) + sign
        self._router += sign * router
        self._broker += sign * broker

    def is_no_more(self, before: Address, address: Address) -> bool:
        """Return True if an address in force takes nothing more than before: then a limit does not concern it."""
        was, now = self._credits(before), self._credits(address)
        return before.type == address.type and now[0] <= was[0] and now[1] <= was[1]

    def reason_against(self, address: Address) -> str:
        """Return why there cannot be this address too; empty if there can."""
        limits, plan = self._rules.terms.limits, self._rules.plan
        used = self._addresses
        if limits.addresses is not None and used >= limits.addresses:
            return f"{used} of {limits.addresses} addresses of the plan {plan!r} are used: {_REMEDY}"
        most, used = limits.addresses_by_type.get(address.type), self._by_type.get(address.type, 0)
        if most is not None and used >= most:
            return f"{used} of {most} addresses of type {address.type} of the plan {plan!r} are used: {_REMEDY}"
        router, broker = self._credits(address)
        credits = self._rules.terms.credit_limits
        for what, limit, taken, more in (
            ("router", credits.router, self._router, router),
            ("broker", credits.broker, self._broker, broker),
            ("aggregate", credits.aggregate, self._router + self._broker, router + broker),
        ):
            if limit is not None and more > 0 and taken + more > limit + _ROUNDING:
                return (
                    f"{taken:g} of {limit:g} {what} credits of the plan {plan!r} are used, and it takes {more:g}: "
                    + _REMEDY
                )
        return ""

    def _credits(self, address: Address) -> tuple[float, float]:
        plan = self._rules.address_plans.get(address.plan) if address.plan is not None else None
        return (0.0, 0.0) if plan is None else (plan.credits.router or 0.0, plan.credits.broker or 0.0)


def rules_of(
    space: str, entry: Space, plans: Plans, flavors: Mapping[str, Flavor], addresses: Iterable[Address] = ()
) -> PlanRules:
    """Return the rules for a space with this entry. `addresses`: those that it has; a brokered space that states no
    flavor keeps theirs."""
    plan, flavor = entry.plan, None
    if entry.type == "brokered":
        possible = brokered_flavors(plan, plans, flavors)
        used = next((address.flavor for address in addresses), None)
        flavor = entry.flavor or (used if used in possible else next(iter(possible), used)) or ""
    if plan is None:
        return PlanRules(space, None, SpacePlan(), plans.addresses, flavors, flavor)
    terms = plans.spaces[plan]
    known = {name: plans.addresses[name] for name in terms.address_plans if name in plans.addresses}
    return PlanRules(space, plan, terms, known, flavors, flavor)


def _bounded(stated: Ttl, plan: Ttl, name: str) -> Ttl:
    """Return the time to live that an entry states, within that of its plan. Raises Wrong."""
    most, least = plan.maximum, plan.minimum
    if most is not None and stated.maximum is not None and stated.maximum > most:
        raise Wrong(
            f"{stated.maximum} is more than the {most} milliseconds of the plan {name!r}; lower it",
            "messageTtl",
            "maximum",
        )
    if least is not None and stated.minimum is not None and stated.minimum < least:
        raise Wrong(
            f"{stated.minimum} is less than the {least} milliseconds of the plan {name!r}; raise it",
            "messageTtl",
            "minimum",
        )
    found = Ttl(
        minimum=least if stated.minimum is None else stated.minimum,
        maximum=most if stated.maximum is None else stated.maximum,
    )
    if found.minimum is not None and found.maximum is not None and found.minimum > found.maximum:
        raise Wrong(f"with the bounds of the plan {name!r} the minimum is larger than the maximum", "messageTtl")
    return found


def is_exceeded(reason: str) -> bool:
    """Return whether this is a reason of `PlanRules.exceeded`, or has one in it."""
    return _REMEDY in reason
