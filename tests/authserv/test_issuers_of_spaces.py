"""Issuers of address spaces: whose tokens and passwords prove users where, and refusals that are all alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from enmasse.amqp.sasl.layer import ClientMechanism, PlainClient
from enmasse.identity.login import SPACES, stated
from enmasse.identity.principal import Principal
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from enmasse.model.issuers import Issuer
from services.authserv import authenticator
from services.authserv.issuer import TokenSource
from services.authserv.proof import Proof
from tests.authserv.bearer import oauthbearer, xoauth2
from tests.authserv.published import Published
from tests.authserv.running import Running, ask_engine, user
from tests.kit.marks import first_soon

GROUPS = ("staff", "ops")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Published]:
    published = Published()
    try:
        yield published
    finally:
        published.server.shutdown()
        published.server.server_close()


def entry(issuer: Published, audience: str, **more: Any) -> Issuer:
    return Issuer(issuer=issuer.url, audience=audience, **more)


@pytest.fixture(scope="module")
def service(issuer: Published) -> Iterator[Running]:
    with Running(mechanisms=("PLAIN",)) as running:
        running.replace(
            feeds.Users(
                users={"alice": user("default's")},
                issuers={
                    "sso": entry(issuer, "default"),
                    "fixed": entry(issuer, "fixed", space="two"),
                    "claimed": entry(issuer, "claimed", space_claim="tenant"),
                },
                spaces={name: ReachedSpace() for name in ("one", "two", "three")},
                in_spaces={"!!two/alice": user("two's")},
                issuers_in_spaces={"one": {"sso": entry(issuer, "own")}, "two": {"sso": entry(issuer, "own-two")}},
            )
        )
        yield running


def login(service: Running, mechanism: ClientMechanism, realm: str = "default") -> Principal | None:
    answer = ask_engine(service.port, mechanism, relayed_host_name(realm, "192.0.2.1", ""), (SPACES,))
    found = stated(answer.properties) if answer.opened else None
    return None if found is None else found.principal


def token(issuer: Published, audience: str, **more: Any) -> str:
    return issuer.token(aud=audience, **more)


@pytest.mark.parametrize("how", first_soon(["PLAIN", "OAUTHBEARER", "XOAUTH2"]))
@pytest.mark.parametrize(
    ("audience", "tenant", "name", "realm", "space"),
    [
        ("default", None, "alice", "default", "default"),
        ("default", None, "alice", "one", None),
        ("default", None, "alice@one", "default", None),
        ("default", None, "alice@none", "default", None),
        ("own", None, "alice", "one", "one"),
        ("own", None, "alice@one", "default", "one"),
        ("own", None, "alice", "default", None),  # no space may catch tokens by what its file says
        ("own", None, "alice", "two", None),
        ("own-two", None, "alice", "one", None),
        ("own-two", None, "alice@two", "default", "two"),
        ("fixed", None, "alice", "default", "two"),
        ("fixed", None, "alice@two", "default", "two"),
        ("fixed", None, "alice", "one", None),
        ("fixed", None, "alice@one", "default", None),
        ("claimed", "three", "alice", "default", "three"),
        ("claimed", "default", "alice", "default", "default"),
        ("claimed", "three", "alice", "three", "three"),
        ("claimed", "three", "alice", "one", None),
        ("claimed", "none", "alice", "default", None),
        ("claimed", "none", "alice@none", "default", None),
        ("claimed", None, "alice", "default", None),
        ("claimed", ["three"], "alice", "default", None),
        ("own", None, "bob@one", "default", None),
    ],
)
def test_a_token_proves_a_user_of_one_space(
    service: Running, issuer: Published, how: str, audience: str, tenant: Any, name: str, realm: str, space: str | None
) -> None:
    text = token(issuer, audience, tenant=tenant)
    mechanism: ClientMechanism = PlainClient(name, text)
    if how != "PLAIN":
        mechanism = oauthbearer(text, name) if how == "OAUTHBEARER" else xoauth2(text, name)
    expected = None if space is None else Principal("alice", GROUPS if space != "none" else (), space)
    found = login(service, mechanism, realm)
    assert (None if found is None else (found.name, found.space)) == (
        None if expected is None else (expected.name, expected.space)
    )


def test_a_token_alone_means_the_space_that_it_names(service: Running, issuer: Published) -> None:
    for audience, tenant, space in (("default", None, "default"), ("fixed", None, "two"), ("claimed", "one", "one")):
        found = login(service, oauthbearer(token(issuer, audience, tenant=tenant)))
        assert found is not None and found.space == space


def test_a_token_for_another_space_does_not_state_the_password_of_a_namesake(
    service: Running, issuer: Published
) -> None:
    answer = ask_engine(
        service.port, PlainClient("alice", token(issuer, "claimed", tenant="three")),
        relayed_host_name("default", "192.0.2.1", ""), (SPACES,),
    )  # fmt: skip
    found = stated(answer.properties)
    assert found is not None and found.principal.space == "three" and found.credentials is None


class Asked:
    """Counts what the issuers of a service are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passwords: list[str] = []
        self.verified = 0

        async def check_password(source: TokenSource, name: str, password: str) -> Proof | None:
            self.passwords.append(f"{source.space}: {name}")
            right = password == f"{source.space}'s"
            return Proof(Principal(name, space=source.space), int(time.time()) + 60) if right else None

        monkeypatch.setattr(TokenSource, "check_password", check_password)
        verify = TokenSource.check

        async def check(source: TokenSource, text: str) -> Proof | None:
            self.verified += 1
            return await verify(source, text)

        monkeypatch.setattr(TokenSource, "check", check)


def with_passwords(issuer: Published, *spaces: str) -> feeds.Users:
    def of(audience: str) -> dict[str, Issuer]:
        return {"sso": entry(issuer, audience, client_id="suite")}

    return feeds.Users(
        users={"known": user("right")}, issuers=of("default"), spaces={"one": ReachedSpace(), "two": ReachedSpace()},
        in_spaces={"!!one/known": user("right"), "!!two/known": user("right")},
        issuers_in_spaces={space: of(space) for space in spaces},
    )  # fmt: skip


def test_passwords_are_asked_for_at_issuers_of_their_space(issuer: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    with Running(mechanisms=("PLAIN",)) as service:
        service.replace(with_passwords(issuer, "one"))
        for name, password, space in (
            ("bob", "default's", "default"), ("bob@one", "one's", "one"), ("bob@example.com", "default's", "default"),
        ):  # fmt: skip
            found = login(service, PlainClient(name, password))
            assert found is not None and found.space == space
        assert asked.passwords == ["default: bob", "one: bob", "default: bob@example.com"]
        asked.passwords.clear()
        for name in ("bob@two", "bob@none", "known@one", "known@two"):
            assert login(service, PlainClient(name, "wrong")) is None
        assert not asked.passwords  # nobody else sees passwords of users of spaces, be there such a space or not


@pytest.mark.parametrize("own", [(), ("one",)], ids=["no issuers of spaces", "issuers of one"])
def test_a_refusal_costs_the_same_whether_or_not_there_is_a_space(
    issuer: Published, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]
) -> None:
    """The answer comes at a time that does not depend on what is, by name and by host."""
    monkeypatch.setattr(authenticator, "DELAY", 0.05)
    Asked(monkeypatch)
    with Running(mechanisms=("PLAIN",)) as service:
        service.replace(with_passwords(issuer, *own))
        loop = service.service.logins._loop
        later: list[float] = []
        call_later = loop.call_later

        def noted(seconds: float, call: Any, *more: Any, **how: Any) -> Any:
            if getattr(call, "__name__", "") == "fail":
                later.append(seconds)
            return call_later(seconds, call, *more, **how)

        monkeypatch.setattr(loop, "call_later", noted)
        names = ("known@one", "bob@one", "known@two", "bob@two", "known@none", "bob@none")
        hosts = [(name, space) for name in ("known", "bob") for space in ("default", "one", "two")]
        for name, space in [*((name, "default") for name in names), *hosts]:
            answers = len(later)
            assert login(service, PlainClient(name, f"a wrong one for {name}"), space) is None
            assert len(later) == answers + 1, (name, space)
        assert all(0 < seconds <= authenticator.MOST_DELAYS * 0.05 for seconds in later)


def test_a_slow_issuer_does_not_show_by_the_time_of_refusals_that_it_was_asked(
    issuer: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first slow answer each refusal takes as long."""
    monkeypatch.setattr(authenticator, "DELAY", 0.2)

    async def check_password(source: TokenSource, name: str, password: str) -> Proof | None:
        await asyncio.sleep(0.25)  # limit: above DELAY
        return None

    monkeypatch.setattr(TokenSource, "check_password", check_password)
    with Running(mechanisms=("PLAIN",)) as service:
        service.replace(with_passwords(issuer, "one"))
        logins = service.service.logins
        waited: list[float] = []
        delay_after = logins._delay_after

        def noted(took: float) -> float:
            waited.append(took + delay_after(took))
            return waited[-1] - took

        monkeypatch.setattr(logins, "_delay_after", noted)
        hosts = (("bob", "one"), ("bob", "two"), ("known", "default"))
        for name, space in (("bob@one", "default"), ("known@one", "default"), ("bob@none", "default"), *hosts):
            assert login(service, PlainClient(name, f"a wrong one for {name}"), space) is None
    delays = [round(seconds / 0.2) for seconds in waited]
    assert delays[0] >= 2 and len(delays) == 6
    for earlier, later in pairwise(delays):
        assert later >= min(earlier, authenticator.MOST_DELAYS), "each waits as long as the slowest before it"


def test_a_token_that_is_refused_is_verified_as_often_for_each_space(
    service: Running, issuer: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an issuer of the default space; one that only a space has is hidden by the time of the answer."""
    asked = Asked(monkeypatch)
    monkeypatch.setattr(authenticator, "DELAY", 0.05)
    wrong = token(issuer, "nobody")
    found = set()
    for name in ("alice@three", "alice@none", "alice"):
        asked.verified = 0
        assert login(service, PlainClient(name, wrong)) is None
        found.add(asked.verified)
    assert found == {3}
