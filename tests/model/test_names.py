"""Names of addresses in address spaces: full names and local ones, and what names a space in whatever form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.names import (
    DEFAULT_SPACE,
    AddressName,
    LocalName,
    address_error,
    full_name,
    plain_name,
    space_error,
    split_name,
    states_space,
)

_SPACES = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
_LOCAL = st.from_regex(r"[A-Za-z0-9!-][A-Za-z0-9./_!-]{0,20}", fullmatch=True).filter(
    lambda name: address_error(name) is None
)


@given(st.one_of(st.just(DEFAULT_SPACE), _SPACES), _LOCAL)
def test_a_full_name_has_one_space_and_one_local_name(space: str, local: str) -> None:
    name = full_name(space, LocalName(local))
    assert split_name(name) == (space, local)
    assert states_space(name) is (space != DEFAULT_SPACE)
    assert address_error(name) is None or space != DEFAULT_SPACE


@given(_SPACES, _SPACES, _LOCAL, _LOCAL)
def test_two_spaces_never_share_a_full_name(one: str, other: str, first: str, second: str) -> None:
    names = full_name(one, LocalName(first)), full_name(other, LocalName(second))
    assert (names[0] == names[1]) is ((one, first) == (other, second))


def test_names_of_the_default_space_are_what_they_were() -> None:
    assert full_name(DEFAULT_SPACE, LocalName("orders/eu")) == "orders/eu"
    assert split_name(AddressName("orders/eu")) == (DEFAULT_SPACE, "orders/eu")
    assert full_name("team-a", LocalName("orders/eu")) == "!!team-a/orders/eu"


@pytest.mark.parametrize("name", ["a", "0", "team-a", "a" * 63, "xn--mnchen-3ya"])
def test_legal_spaces(name: str) -> None:
    assert space_error(name) is None


@pytest.mark.parametrize(
    "name", ["", "A", "a.b", "a/b", "a_b", "-a", "a-", "a" * 64, "é", "a b", "!!a", "a\n", "default", "a*", "#"]
)
def test_illegal_spaces(name: str) -> None:
    assert space_error(name) is not None


@pytest.mark.parametrize(
    "text",
    [
        "!!", "!!a", "!!a/b", "!!a.b", "/!!a/b", "//!!a/b", ".!!a", "./!!a", "amqp:!!a/b", "amqp:/!!a/b",
        "amqp://host/!!a/b", "amqp://host//!!a/b", "amqps:/!!a", "/amqp:/!!a/b", "::!!a/b", "t::!!a/b", "t::/!!a",
        "amqp:/t::amqp:/!!a",
    ],
)  # fmt: skip
def test_forms_of_a_name_in_a_space(text: str) -> None:
    assert states_space(text)


@pytest.mark.parametrize("text", ["", "a", "a!!b", "a/!!b", "!a", "! !a", "amqp://!!a/b", "a::b!!", "$sub/!!a"])
def test_names_in_no_space(text: str) -> None:
    assert not states_space(text)


@given(st.text(st.sampled_from("!./:amqps"), max_size=12))
def test_a_plain_name_has_no_scheme_and_no_separator_in_front(text: str) -> None:
    found = plain_name(text)
    assert text.endswith(found) and plain_name(found) == found
    assert not found.startswith((".", "/", "amqp:", "amqps:"))
