"""Names of what clients own: no two pairs of user and client have the same one, and the pair can be read from it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.identity.owned import MAX_PREFIX, Owner, owned, owner
from enmasse.identity.principal import ANONYMOUS, Principal

_TEXTS = st.text(st.one_of(st.sampled_from("~/%a2F."), st.characters()), max_size=6)
_PAIRS = st.tuples(st.one_of(st.just(ANONYMOUS), _TEXTS.filter(bool)), _TEXTS)


@given(_PAIRS, _PAIRS)
@example((ANONYMOUS, "~a/b"), ("a", "b"))
@example((ANONYMOUS, "~/~a/b"), (ANONYMOUS, "~a/b"))
@example(("a/b", "c"), ("a", "b/c"))
@example(("a%2Fb", "c"), ("a/b", "c"))
def test_two_clients_never_have_the_same_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = [owned(Principal(user), client) for user, client in (one, other)]
    assert (names[0] == names[1]) == (one == other)


@given(_PAIRS)
def test_the_owner_can_be_read_from_the_name(pair: tuple[str, str]) -> None:
    user, client = pair
    assert owner(owned(Principal(user), client)) == Owner(user, client)


@given(st.one_of(_TEXTS, st.builds("~{}/{}".format, _TEXTS, _TEXTS)))
@example("~%E0/a")
def test_any_text_has_an_owner(text: str) -> None:
    found = owner(text)
    assert found.user
    assert found == Owner(ANONYMOUS, text) or text.startswith("~")


def test_names_of_anonymous_clients_stay_unchanged() -> None:
    assert owned(Principal(ANONYMOUS), "sensor/1") == "sensor/1"
    assert owned(Principal(ANONYMOUS), "~sensor") == "~/~sensor"
    assert owned(Principal("alice@example.org"), "sensor") == "~alice%40example.org/sensor"


@pytest.mark.parametrize("user", ["\u00e4" * 127, "/" * 255, "a" * 255])
def test_the_prefix_of_the_longest_name_is_within_its_bound(user: str) -> None:
    assert len(owned(Principal(user), "")) <= MAX_PREFIX
