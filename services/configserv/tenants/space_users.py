"""Address spaces and their users, as the feeds of users and permissions have them: by full names, `!!SPACE/NAME`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from enmasse.model import feeds
from enmasse.model.configuration import AppliedState, differing
from enmasse.model.issuers import Issuer
from enmasse.model.names import DEFAULT_SPACE, space_prefix
from enmasse.model.tenants.plans import NO_LIMITS, SpaceLimits
from enmasse.model.tenants.tenancy import SpaceState, TenantState
from enmasse.model.users import GROUP, User

_NONE = SpaceState()


def spaces(state: AppliedState) -> Mapping[str, SpaceState]:
    """Return the address spaces in force, but for the default one."""
    return {} if state.tenants is UNSET else state.tenants.spaces


def ending(state: AppliedState) -> Mapping[str, str]:
    """Return the removed spaces of which something may be left, with the ids of their removals."""
    return {} if state.tenants is UNSET else state.tenants.ending


def differ(was: AppliedState, now: AppliedState) -> bool:
    """Return whether entries of spaces, or plans, are others than before."""
    if was.tenants is now.tenants:
        return False
    old, new = (TenantState() if each.tenants is UNSET else each.tenants for each in (was, now))
    return old.plans != new.plans or {name: each.space for name, each in old.spaces.items()} != {
        name: each.space for name, each in new.spaces.items()
    }


def users(state: AppliedState) -> dict[str, User] | UnsetType:
    """Return the users and groups of the spaces by full names; UNSET: there are no spaces."""
    if not spaces(state):
        return UNSET
    return {
        space_prefix(space) + name: user
        for space, each in spaces(state).items()
        for name, user in (each.users or {}).items()
    }


def counted(state: AppliedState) -> dict[str, int]:
    """Return the number of users of each space, groups left out."""
    return {
        space: sum(not name.startswith(GROUP) for name in each.users or ()) for space, each in spaces(state).items()
    }


def issuers(state: AppliedState) -> dict[str, dict[str, Issuer]] | UnsetType:
    """Return the issuers of each space that has some; UNSET: none has."""
    return {space: each.issuers for space, each in spaces(state).items() if each.issuers} or UNSET


def user(state: AppliedState, space: str, name: str) -> User | None:
    """Return a user of a space, also of the default one; None without such a user."""
    own = state.users if space == DEFAULT_SPACE else spaces(state).get(space, _NONE).users
    return (own or {}).get(name)


def reached(state: AppliedState, domain: str = "") -> feeds.Spaces | UnsetType:
    """Return how clients reach the spaces; UNSET: there is no space. `domain`: they mean `SPACE.<domain>` too, unless
    an entry gives that host to another space; empty: they do not."""
    if not spaces(state):
        return UNSET
    shared = (state.issuers or {}).values()
    named = {issuer.space for issuer in shared}
    any_named = any(issuer.space_claim is not None for issuer in shared)
    taken = {host for each in spaces(state).values() for host in each.space.hosts} if domain else ()
    return {
        name: feeds.ReachedSpace(
            hosts=(*each.space.hosts, *([host] if domain and (host := f"{name}.{domain}") not in taken else ())),
            tokens=bool(each.issuers) or any_named or name in named,
            plan=each.space.plan or "",
            limits=_limits(state, each.space.plan),
        )
        for name, each in spaces(state).items()
    }


def storage_limits(state: AppliedState) -> dict[str, SpaceLimits] | UnsetType:
    """Return the limits of stored messages of the spaces that have one; UNSET: none has."""
    found = {}
    for name, each in spaces(state).items():
        limits = _limits(state, each.space.plan)
        if limits.storage is not None or limits.memory is not None:
            found[name] = SpaceLimits(storage=limits.storage, memory=limits.memory)
    return found or UNSET


def _limits(state: AppliedState, plan: str | None) -> SpaceLimits:
    terms = None if plan is None or state.tenants is UNSET else state.tenants.plans.spaces.get(plan)
    return NO_LIMITS if terms is None else terms.limits


def changed_users(was: AppliedState, now: AppliedState) -> list[str]:
    """Return the full names of the users and groups of spaces that differ."""
    names: list[str] = []
    old, new = spaces(was), spaces(now)
    for space in {**old, **new}:
        before, after = old.get(space, _NONE).users, new.get(space, _NONE).users
        if before is not after:
            prefix = space_prefix(space)
            names += (prefix + name for name in differing(before or {}, after or {}))
    return names
