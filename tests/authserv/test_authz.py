"""The property `address-authz`: as Qpid Dispatch reads it, never more than the permissions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.users import Granted, Permission
from services.authserv.authz import address_authz
from tests.identity.test_permissions import rules

NAMES = [
    dot.join(split) for dot in "/." for n in range(1, 4) for split in itertools.product(["a", "b", "other"], repeat=n)
]


def dispatch_allows(keys: dict[str, list[str]], operation: str, address: str) -> bool:
    """Return whether Dispatch would (src/policy.c: a `*` at the end stands for any text)."""
    return any(
        operation in operations and (address.startswith(key[:-1]) if key.endswith("*") else address == key)
        for key, operations in keys.items()
    )


@given(st.lists(rules(), max_size=4))
def test_nothing_is_allowed_beyond_the_permissions(given: list[Permission]) -> None:
    rights = Permissions({"alice": Granted(permissions=tuple(given))}).rights(Principal("alice"))
    keys = {key: list(value.values) for key, value in address_authz(rights, "alice").items()}
    for name in NAMES:
        assert rights.allows("send", name) or not dispatch_allows(keys, "send", name)


def test_what_can_be_expressed_is_allowed() -> None:
    permission = Permission(effect="allow", operations=("send",), addresses=("a", "b/#"))
    rights = Permissions({"alice": Granted(permissions=(permission,))}).rights(Principal("alice"))
    keys = {key: list(value.values) for key, value in address_authz(rights, "alice").items()}
    assert all(dispatch_allows(keys, "send", name) for name in ("a", "b", "b/x", "b.x", "b/x/y"))


@pytest.mark.parametrize("spaces", [False, True])
def test_every_address_is_not_those_of_address_spaces(spaces: bool) -> None:
    permission = Permission(effect="allow", operations=("send", "recv"), addresses=("#", "a", "b/#"))
    rights = Permissions({"alice": Granted(permissions=(permission,))}).rights(Principal("alice"))
    keys = {key: list(value.values) for key, value in address_authz(rights, "alice", spaces=spaces).items()}
    assert dispatch_allows(keys, "send", "!!one/a") is not spaces
    assert all(dispatch_allows(keys, "recv", name) for name in ("a", "b", "b/x"))


def test_a_name_with_a_comma_is_left_out() -> None:
    """Dispatch would split it: `own/x,*` is `own/x` and everything."""
    permission = Permission(effect="allow", operations=("send", "recv"), addresses=("own/${user}", "a,b", "c"))
    for user in ("x,*", ",*", "x,$management"):
        rights = Permissions({user: Granted(permissions=(permission,))}).rights(Principal(user))
        assert list(address_authz(rights, user)) == ["c"]
