"""Names and patterns: what covers what, settings by match, names of subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enmasse.amqp.termini import passed_on_name, passed_on_parts
from enmasse.identity.owned import owned, owner, owner_of_subscription
from enmasse.identity.principal import Principal
from enmasse.name_tries import PatternTrie
from services.broker.core.errors import BrokerError
from services.broker.core.legal_names import check_name
from services.broker.core.limits.settings import SettingsError, SettingsRepository, check
from services.broker.core.routing.subscription import Identity, identity, name_of_stored, queue_name
from services.broker.core.wildcards import specificity


@pytest.mark.parametrize(
    ("pattern", "name", "covers"),
    [
        ("a/b", "a/b", True), ("a/b", "a", False), ("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False),
        ("a/#", "a", True), ("a/#", "a/b/c", True), ("#", "a/b", True), ("a/#/z", "a/z", True),
        ("a/#/z", "a/b/c/z", True),
        ("a/#/z", "a/b", False), ("+/+", "a/b", True), ("+", "a/b", False), ("a/b+", "a/bc", False), ("a+", "a+", True),
        ("#/#", "a", True), ("a//b", "a//b", True), ("a/+/b", "a//b", True), ("+/x", "+/x", True), ("a", "+", False),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, name: str, covers: bool) -> None:
    trie: PatternTrie[None] = PatternTrie()
    trie.add(pattern, None)
    assert bool(trie.match(name)) is covers


def test_the_more_specific_match_wins() -> None:
    repository = SettingsRepository({"maxDeliveryAttempts": 1})
    ordered = ["#", "a/#", "a/+/c", "a/b/#", "a/b/c"]
    assert sorted(ordered, key=specificity)[0] == "#"
    for number, match in enumerate(("#", "a/#", "a/b/c"), 2):
        repository.put(match, {"maxDeliveryAttempts": number})
    assert [repository.get(n).max_delivery_attempts for n in ("x", "a", "a/b", "a/b/c")] == [2, 3, 3, 4]
    assert repository.get("x") is repository.get("y"), "equal settings are one object"
    assert repository.remove("a/#")
    assert repository.get("a/b").max_delivery_attempts == 2
    with pytest.raises(SettingsError, match="maxSizeBytes"):
        check({"maxSizeBytes": -5})
    assert check({"deadLetterAddress": "x", "expiryAddress": None}) == {"DLA": "x"}


def test_subscription_identities() -> None:
    assert identity("router", "sub@client", True) == Identity("client", "sub")
    assert identity("router", "a@b@client", True) == Identity("client", "a@b")
    assert identity("c", "sub@client", False) == Identity("c", "sub@client")
    assert identity("router", "nothing", True) == Identity("router", "nothing")
    who = Identity("c", "n|2")
    assert queue_name(who, durable=True, shared=False, everywhere=False) == "c.n|2"
    assert queue_name(who, durable=True, shared=True, everywhere=False) == "c.n"
    assert queue_name(who, durable=False, shared=True, everywhere=True) == "n:shared-volatile:global"


USERS = st.sampled_from(["alice", "a.b", "a b", "a%20b", "a%2Eb", "~x", "a/b", "é", "a:global", ".", "%"])


@given(USERS, st.text(alphabet="ab.@%:~/", max_size=4), st.text(alphabet="ab.@%:~/|", min_size=1, max_size=4))
def test_whose_subscription_a_queue_is_follows_from_its_name(user: str, container: str, link: str) -> None:
    for durable, shared, everywhere in ((1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 1, 1), (0, 1, 1)):
        for suffix in ("", ":global"):
            who = Identity(owned(Principal(user), container), link + suffix)
            name = queue_name(who, durable=bool(durable), shared=bool(shared), everywhere=bool(everywhere))
            assert owner_of_subscription(name).user == user
            assert owner_of_subscription(f"%12.{name}").user == user


PARTS = st.text(alphabet="ab.@%:|25E40~/", min_size=1, max_size=6)
SUFFIXES = st.sampled_from(["", ":global", ":shared-volatile", "%3Aglobal", "%253Aglobal"])
IDENTITIES = st.builds(lambda container, link, end: Identity(container, link + end), PARTS, PARTS, SUFFIXES)


LINKS = PARTS | st.just("")


@settings(max_examples=500)
@given(LINKS, PARTS, LINKS, PARTS)
@example("", "~a/c", "@", "~a/c")
def test_names_of_passed_on_links_keep_link_and_container_apart(a: str, b: str, c: str, d: str) -> None:
    assert passed_on_parts(passed_on_name(a, b)) == (a, b)
    assert (passed_on_name(a, b) == passed_on_name(c, d)) == ((a, b) == (c, d))


@settings(max_examples=500)
@given(IDENTITIES, IDENTITIES, st.booleans(), st.booleans())
@example(Identity("~a/", "0"), Identity("~%E0/", "0"), False, False)
@example(Identity("0", "0"), Identity("~@0/", "0"), False, False)
def test_subscriptions_of_two_identities_have_two_queues(
    one: Identity, other: Identity, shared: bool, durable: bool
) -> None:
    if shared:  # what follows a bar is of no account
        one, other = (each._replace(link="x" + each.link.split("|")[0]) for each in (one, other))

    def name(who: Identity, everywhere: bool = False) -> str:
        return queue_name(who, durable=durable or not shared, shared=shared, everywhere=everywhere)

    assert (name(one) == name(other)) == (one == other)
    assert name(one) != name(other, everywhere=True)
    users = [owner(who.container).principal for who in (one, other)]
    same = one.link == other.link and users[0] == users[1]
    assert (name(one, everywhere=True) == name(other, everywhere=True)) == same


def test_what_needs_no_escape_is_named_as_in_artemis() -> None:
    who = Identity("ID:4711-x@host", "sub.one@two%")
    assert queue_name(who, durable=True, shared=False, everywhere=False) == "ID:4711-x@host.sub.one@two%"
    assert passed_on_name("sub.one@two", "my.host") == "sub.one@two@my.host"


def test_names_by_earlier_versions() -> None:
    assert name_of_stored("a.b.c", "a.b") == "a%2Eb.c"
    assert name_of_stored("a.b.c", "a") == "a.b.c"
    assert name_of_stored("a%2Eb.c", "a.b") == "a%2Eb.c"
    assert name_of_stored("a.b:global", "a.b") == "a.b:global"
    assert name_of_stored("sub", None) == "sub"


def test_a_pattern_has_few_levels_for_any_number() -> None:
    """One with 256 took 24 ms for each message to a name of 512 levels."""
    check_name("/".join(["#", "a"] * 4))
    check_name("a#/#b/" * 100 + "c")
    with pytest.raises(BrokerError, match="more than 4 levels `#`"):
        check_name("/".join(["#", "a"] * 5))
