"""Logins in address spaces: which space a client means, and that what is unknown answers and costs as a wrong
password does."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.layer import AnonymousClient, ClientMechanism, PlainClient
from enmasse.identity.login import SPACES, stated
from enmasse.identity.principal import Principal
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.identity.processes.scram import ScramClient
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from enmasse.model.issuers import Issuer
from enmasse.model.users import User
from services.authserv.sasl_login import SaslLogin
from tests.authserv.running import Running, ask, ask_engine, user

BODY = feeds.Users(
    users={"alice": user("default's"), "bob@example.com": user("right")},
    spaces={"one": ReachedSpace(), "two": ReachedSpace()},
    in_spaces={
        "!!one/alice": user("one's", random=False, groups=("staff",)),
        "!!one/@staff": User(),
        "!!one/carol@one": user("right"),
        "!!two/alice": user("two's", groups=("staff",)),
        "!!two/anonymous": User(),
    },
)
REFUSED = None


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with Running(mechanisms=("SCRAM-SHA-256", "PLAIN")) as running:
        running.replace(BODY)
        yield running


def login(service: Running, mechanism: ClientMechanism, realm: str, *desired: str) -> Principal | None:
    """Return who the client is, for which a router asks that states this space as chosen."""
    answer = ask_engine(service.port, mechanism, relayed_host_name(realm, "192.0.2.1", ""), desired or (SPACES,))
    found = stated(answer.properties) if answer.opened else None
    return None if found is None else found.principal


@pytest.mark.parametrize("scram", [False, True], ids=["PLAIN", "SCRAM"])
@pytest.mark.parametrize(
    ("name", "password", "realm", "expected"),
    [
        ("alice", "default's", "default", Principal("alice")),
        ("alice", "one's", "default", REFUSED),
        ("alice@one", "one's", "default", Principal("alice", ("staff",), "one")),
        ("alice@one", "two's", "default", REFUSED),
        ("alice@two", "two's", "default", Principal("alice", ("staff",), "two")),
        ("alice@two", "default's", "default", REFUSED),
        ("alice", "one's", "one", Principal("alice", ("staff",), "one")),
        ("alice", "default's", "one", REFUSED),
        ("alice@one", "one's", "one", Principal("alice", ("staff",), "one")),
        ("alice@two", "two's", "one", REFUSED),
        ("carol@one", "right", "one", REFUSED),  # she is carol@one@one
        ("carol@one@one", "right", "one", Principal("carol@one", (), "one")),
        ("bob@example.com", "right", "default", Principal("bob@example.com")),
        ("bob@example.com", "right", "two", REFUSED),
        ("alice@none", "one's", "default", REFUSED),
        ("alice", "one's", "none", REFUSED),
        ("alice", "default's", "none", REFUSED),
        ("!!one/alice", "one's", "default", REFUSED),
        ("!!one/alice", "one's", "two", REFUSED),
        ("@one", "one's", "default", REFUSED),
        ("@staff", "one's", "one", REFUSED),
    ],
)
def test_the_space_that_a_client_means(
    service: Running, name: str, password: str, realm: str, expected: Principal | None, scram: bool
) -> None:
    mechanism = ScramClient(name, password) if scram else PlainClient(name, password)
    assert login(service, mechanism, realm) == expected


def test_a_space_is_without_credentials_only_if_it_says_so(service: Running) -> None:
    assert login(service, AnonymousClient(), "two") == Principal("anonymous", (), "two")
    for realm in ("default", "one", "none"):
        assert login(service, AnonymousClient(), realm) is None


def test_what_is_offered_says_nothing_of_the_files_of_a_space() -> None:
    """The mechanisms come before it is known which space a client means."""
    issuer = Issuer(issuer="https://sso.example.com", audience="x", client_id="y", client_secret="z")
    files: tuple[tuple[dict[str, User], dict[str, dict[str, Issuer]]], ...] = (
        ({}, {}),
        ({"!!two/anonymous": User()}, {}),
        ({"!!two/alice": user("two's")}, {}),
        ({}, {"two": {"sso": issuer}}),
    )
    own: tuple[tuple[dict[str, User], dict[str, Issuer]], ...] = (
        ({"alice": user("default's")}, {}),
        ({"alice": User()}, {}),
        ({"anonymous": User()}, {"sso": issuer}),
    )
    with Running() as service:
        for users, issuers in own:
            offers = set()
            for in_spaces, of_spaces in files:
                in_force = feeds.Users(users=users, issuers=issuers, spaces=BODY.spaces, in_spaces=in_spaces)
                service.replace(msgspec.structs.replace(in_force, issuers_in_spaces=of_spaces))
                login = SaslLogin(service.service.logins, "127.0.0.1", relayed=True)
                offers.add(tuple(service.service._offered(login)))
            assert len(offers) == 1, (users, issuers, offers)


def test_without_credentials_a_client_of_another_space_is_refused_for_good(service: Running) -> None:
    """As with a wrong password: it is not told to try again, and no login is counted."""
    for realm in ("default", "one", "none"):
        answer = ask_engine(service.port, AnonymousClient(), relayed_host_name(realm, "192.0.2.1", ""), (SPACES,))
        assert "ANONYMOUS failed: wrong credentials" in answer.error, (realm, answer)


def test_a_relay_that_knows_no_spaces_gets_nobody_of_one(service: Running) -> None:
    for name, realm in (("alice@one", "default"), ("alice", "one")):
        assert login(service, PlainClient(name, "one's"), realm, "ADDRESS-AUTHZ") is None
    answer = ask(service.port, "alice@one", "one's", authz=True)  # as Dispatch does, with Proton
    assert "authenticated-identity" not in (answer.properties or {})
    assert login(service, PlainClient("alice", "default's"), "default", "ADDRESS-AUTHZ") == Principal("alice")


def test_what_is_unknown_costs_as_much_as_a_wrong_password(service: Running) -> None:
    """A chosen password is hashed each time: also of a user or space that there is not."""
    checks = service.service.logins._checks
    for name, realm in (
        ("alice@one", "default"), ("alice", "one"), ("nobody@one", "default"), ("nobody", "two"),
        ("alice@none", "default"), ("alice", "none"), ("nobody", "default"),
    ):  # fmt: skip
        before = checks.computed
        assert login(service, PlainClient(name, f"wrong for {name} in {realm}"), realm) is None
        assert checks.computed == before + 1, (name, realm)


def test_the_default_space_may_be_open_beside_spaces_with_users() -> None:
    with Running() as service:
        service.replace(feeds.Users(anonymous=True, spaces=BODY.spaces, in_spaces=BODY.in_spaces))
        nobody = Principal("anonymous")
        for name in ("alice", "alice@none", "who@ever"):
            assert login(service, PlainClient(name, "any"), "default") == nobody
        assert login(service, AnonymousClient(), "default") == nobody
        assert login(service, AnonymousClient(), "one") is None
        assert login(service, AnonymousClient(), "two") == Principal("anonymous", (), "two")
        assert login(service, PlainClient("alice@one", "any"), "default") is None
        assert login(service, PlainClient("alice", "any"), "one") is None
        assert login(service, PlainClient("alice", "any"), "none") is None
        assert login(service, PlainClient("alice@one", "one's"), "default") == Principal("alice", ("staff",), "one")


def test_without_spaces_any_realm_is_the_default_one() -> None:
    """As before: routers of Dispatch are configured with any."""
    with Running() as service:
        service.users({"alice": user("right"), "bob@one": user("right")})
        assert login(service, PlainClient("alice", "right"), "anything") == Principal("alice")
        assert login(service, PlainClient("bob@one", "right"), "default") == Principal("bob@one")
        answer = ask(service.port, "alice", "right")
        assert Symbol("space") not in answer.properties
