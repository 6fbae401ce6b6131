"""Names of what clients own: no two pairs of user and client have the same one, and the pair can be read from it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.identity.owned import (
    MAX_PREFIX,
    Owner,
    owned,
    owner,
    owner_of_subscription,
    queue_prefix,
    space_of_queue,
)
from enmasse.identity.principal import ANONYMOUS, Principal, named
from enmasse.model.names import DEFAULT_SPACE
from services.broker.core.routing.subscription import Identity, queue_name
from services.subserv import broker_names

_TEXTS = st.text(st.one_of(st.sampled_from("~/%a2F.@"), st.characters()), max_size=6)
_SPACES = st.sampled_from([DEFAULT_SPACE, "a", "team-b"])
_OWNERS = st.tuples(st.one_of(st.just(ANONYMOUS), _TEXTS.filter(bool)), _TEXTS, _SPACES)


@given(_OWNERS, _OWNERS)
@example((ANONYMOUS, "~a/b", "default"), ("a", "b", "default"))
@example((ANONYMOUS, "~/~a/b", "default"), (ANONYMOUS, "~a/b", "default"))
@example(("a/b", "c", "default"), ("a", "b/c", "default"))
@example(("a%2Fb", "c", "default"), ("a/b", "c", "default"))
@example(("a@a", "c", "default"), ("a", "c", "a"))
@example((ANONYMOUS, "~@a/c", "default"), (ANONYMOUS, "c", "a"))
def test_two_clients_never_have_the_same_name(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    names = [owned(Principal(user, space=space), client) for user, client, space in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    prefixes = [queue_prefix(Principal(user, space=space)) for user, _, space in (one, other)]
    assert (prefixes[0] == prefixes[1]) == (one[::2] == other[::2])


@given(_OWNERS)
def test_the_owner_can_be_read_from_the_name(found: tuple[str, str, str]) -> None:
    user, client, space = found
    assert owner(owned(Principal(user, space=space), client)) == found


@given(st.one_of(_TEXTS, st.builds("~{}/{}".format, _TEXTS, _TEXTS)))
@example("~%E0/a")
@example("~a@/b")
@example("~a@a@b/b")
@example("~a@default/b")
def test_any_text_has_an_owner(text: str) -> None:
    found = owner(text)
    assert found.user
    assert found == Owner(ANONYMOUS, text) or text.startswith("~")


def test_names_of_anonymous_clients_stay_unchanged() -> None:
    assert owned(Principal(ANONYMOUS), "sensor/1") == "sensor/1"
    assert owned(Principal(ANONYMOUS), "~sensor") == "~/~sensor"
    assert owned(Principal("alice@example.org"), "sensor") == "~alice%40example.org/sensor"
    assert owned(Principal("alice@example.org", space="team-a"), "sensor") == "~alice%40example.org@team-a/sensor"
    assert owned(Principal(ANONYMOUS, space="team-a"), "sensor") == "~@team-a/sensor"


@pytest.mark.parametrize(
    ("container", "space"), [("~alice/c", "default"), ("~alice@team-a/c", "team-a"), ("~@team-a/c", "team-a")]
)
def test_the_queue_of_a_subscription_tells_whose_it_is(container: str, space: str) -> None:
    for everywhere in (False, True):
        name = queue_name(Identity(container, "news"), durable=True, shared=True, everywhere=everywhere)
        assert owner_of_subscription(name).principal == owner(container).principal
        assert owner(container).space == space


@pytest.mark.parametrize("user", ["\u00e4" * 127, "/" * 255, "a" * 255])
def test_the_prefix_of_the_longest_name_is_within_its_bound(user: str) -> None:
    assert len(owned(Principal(user, space="s" * 63), "")) <= MAX_PREFIX


@pytest.mark.parametrize(
    ("user", "full_name"),
    [
        (Principal("alice"), "alice"),
        (Principal("a/b", space="team-a"), "!!team-a/a/b"),
        (Principal(ANONYMOUS), ANONYMOUS),
    ],
)
def test_the_full_name_of_a_user(user: Principal, full_name: str) -> None:
    assert user.full_name == full_name
    assert named(full_name) == user


@given(_OWNERS)
def test_the_space_of_a_queue_can_be_read_from_its_address(found: tuple[str, str, str]) -> None:
    """Sessions, shared subscriptions and those of AMQP clients, unless the name is a hash."""
    user, client, space = found
    principal = Principal(user, space=space)
    ids = [
        broker_names.session_id(owned(principal, client)),
        broker_names.share_id("group", "t/#", principal),
        broker_names.amqp_id(owned(principal, client or "c")),
    ]
    for id in ids:
        address = broker_names.queue_name("b", broker_names.of_suite(id, "suite"))
        assert space_of_queue(address) in ((space,) if len(id) <= broker_names.MAX_ID else (space, ""))
    long = broker_names.queue_name("b", broker_names.session_id(owned(principal, "c" * (broker_names.MAX_ID + 1))))
    assert space_of_queue(long) == ""


@pytest.mark.parametrize(
    ("address", "space"),
    [
        ("a", DEFAULT_SPACE),
        ("a/b", DEFAULT_SPACE),
        ("!!team-b/a", "team-b"),
        ("!!a/b/c", "a"),
        ("$sub/", DEFAULT_SPACE),
    ],
)
def test_the_space_of_an_address_is_that_of_its_full_name(address: str, space: str) -> None:
    assert space_of_queue(address) == space
