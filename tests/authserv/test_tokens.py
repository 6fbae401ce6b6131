"""Bearer tokens: which are accepted, how clients present them, and where the keys come from."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from enmasse.identity.principal import Principal
from enmasse.identity.proofs.failures import Failures
from enmasse.model.issuers import Issuer
from enmasse.model.users import Permission, User
from services.authserv import authenticator, issuer
from services.authserv.bearer import read_oauthbearer, read_xoauth2
from services.authserv.proof import Proof
from services.authserv.tokens import LATEST, Tokens, UnknownKey
from tests.authserv.bearer import oauthbearer, xoauth2
from tests.authserv.published import AUDIENCE, EC, ENCRYPTING, ISSUER, NOW, RSA, Published, claims, public, signed
from tests.authserv.running import Running, ask, ask_engine, user


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    found = Tokens(Issuer(issuer=ISSUER, audience=AUDIENCE), lambda: NOW)
    found.replace_keys(public(RSA, EC, ENCRYPTING))
    return found


def test_a_token_states_user_and_groups(tokens: Tokens) -> None:
    assert tokens.check(signed()) == Proof(Principal("alice", ("staff", "ops")), NOW + 60 + 30)
    assert tokens.check(signed(EC, "ES256", aud=AUDIENCE, groups=None, exp=1e300)) == Proof(Principal("alice"), LATEST)
    assert tokens.check(signed(header={"typ": "at+jwt", "x-more": 1}, exp=NOW - 29, nbf=NOW + 29)) is not None


def by_hand(header: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    text = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims()).encode())}"
    return f"{text}.{part(sign(text.encode()))}"


def by_rsa(data: bytes) -> bytes:
    assert RSA.private_key is not None
    return RSA.private_key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def unsigned() -> str:
    return by_hand({"alg": "none"}, lambda data: b"")


def confused() -> str:
    """The public key as the secret of an HMAC."""
    return by_hand({"alg": "HS256", "kid": "rsa"}, lambda data: hmac.digest(RSA.as_pem(private=False), data, "sha256"))


def test_a_token_made_by_hand_is_accepted(tokens: Tokens) -> None:
    assert tokens.check(by_hand({"alg": "RS256", "kid": "rsa"}, by_rsa)) is not None


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: signed(iss="https://other.example"), id="issuer"),
        pytest.param(lambda: signed(iss=None), id="no issuer"),
        pytest.param(lambda: signed(aud="account"), id="audience"),
        pytest.param(lambda: signed(aud=None), id="no audience"),
        pytest.param(lambda: signed(exp=NOW - 31), id="expired"),
        pytest.param(lambda: signed(exp=None), id="no expiry"),
        pytest.param(lambda: signed(exp="never"), id="expiry is a text"),
        pytest.param(lambda: signed(nbf=NOW + 60), id="not yet valid"),
        pytest.param(lambda: signed(preferred_username=None), id="no user"),
        pytest.param(lambda: signed(preferred_username="anonymous"), id="anonymous"),
        pytest.param(lambda: signed(preferred_username="@staff"), id="group"),
        pytest.param(lambda: signed(preferred_username="a\nb"), id="control character"),
        pytest.param(lambda: signed(alg="RS512"), id="algorithm not allowed"),
        pytest.param(lambda: signed(alg="PS256"), id="algorithm of another key"),
        pytest.param(lambda: signed(EC, "ES256", header={"kid": "rsa"}), id="key of another kind"),
        pytest.param(
            lambda: by_hand({"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1}, by_rsa), id="critical header"
        ),
        pytest.param(unsigned, id="none"),
        pytest.param(confused, id="key confusion"),
        pytest.param(lambda: signed()[:-4] + "AAAA", id="signature"),
        pytest.param(lambda: signed(more="x" * 20_000), id="too long"),
        pytest.param(lambda: "a.b.c", id="no token"),
        pytest.param(lambda: "a.b.c.d.e", id="encrypted"),
        pytest.param(lambda: "", id="empty"),
    ],
)
def test_other_tokens_prove_nothing(token: Any, tokens: Tokens) -> None:
    assert tokens.check(token()) is None


def test_unknown_keys_and_keys_for_encryption(tokens: Tokens) -> None:
    for key in (ENCRYPTING, RSAKey.generate_key(2048, {"kid": "new"})):
        with pytest.raises(UnknownKey):
            tokens.check(signed(key))
    with pytest.raises(UnknownKey):  # of several keys one has to be named
        tokens.check(signed(header={"kid": None}))


@pytest.mark.parametrize(
    "document", [{}, {"keys": []}, {"keys": [1]}, {"keys": "x"}, {"keys": [{"kty": "oct", "k": "A" * 43}]}]
)
def test_a_document_without_usable_keys_changes_nothing(document: Any) -> None:
    found = Tokens(Issuer(issuer=ISSUER, audience=AUDIENCE), lambda: NOW)
    found.replace_keys(public(EC))
    with pytest.raises(ValueError):
        found.replace_keys(document)
    assert found.check(signed(EC, "ES256")) is not None


@given(st.text(alphabet='eyJhbGciOi.=-_ {}"\x01,n', max_size=80))
def test_no_text_raises_anything_else(text: str) -> None:
    found = Tokens(Issuer(issuer=ISSUER, audience=AUDIENCE), lambda: NOW)
    found.replace_keys(public(RSA))
    assert found.check(text) is None
    for read in (read_oauthbearer, read_xoauth2):
        with contextlib.suppress(ValueError):
            read(text)


def test_the_forms_of_both_mechanisms() -> None:
    assert read_oauthbearer("n,a=al=2Cice,\x01host=h\x01port=1\x01auth=Bearer t.o.k\x01\x01") == ("al,ice", "t.o.k")
    assert read_oauthbearer("y,,\x01auth=bearer t\x01\x01") == ("", "t")
    assert read_xoauth2("user=alice\x01auth=Bearer t\x01\x01") == ("alice", "t")
    for text in (
        "n,,\x01auth=Bearer t\x01",
        "p=x,,\x01auth=Bearer t\x01\x01",
        "n,,\x01auth=Basic t\x01\x01",
        "n,,\x01\x01",
    ):
        with pytest.raises(ValueError):
            read_oauthbearer(text)


# --- with clients -----------------------------------------------------------------------------------------------------


STAFF = User(permissions=(Permission(effect="allow", operations=("send",), addresses=("orders",)),))


def test_clients_log_in_with_tokens(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    with Running() as running:
        running.users({"bob": user("bob's"), "@staff": STAFF}, Issuer(issuer=published.url, audience=AUDIENCE))
        expires = int(time.time()) + 1000
        token = published.token(exp=expires)
        for client in (oauthbearer(token), oauthbearer(token, "alice"), xoauth2(token, "alice")):
            answer = ask_engine(running.port, client)
            assert answer.properties["authenticated-identity"]["sub"] == "alice"
            assert answer.properties["groups"] == ["staff", "ops"]
            assert answer.properties["exp"] == expires + 30
        answer = ask(running.port, "alice", token, authz=True)  # as a password, which MQTT clients have
        assert {key: list(value.elements) for key, value in answer.properties["address-authz"].items()} == {
            "orders": ["send"]
        }
        assert answer.properties["exp"] == expires + 30
        assert "exp" not in ask(running.port, "bob", "bob's").properties
        assert not ask(running.port, "bob", token).opened
        assert not ask_engine(running.port, oauthbearer(token, "bob")).opened
        refused = oauthbearer(published.token(exp=1))
        assert not ask_engine(running.port, refused).opened
        assert refused.challenges == [b'{"status":"invalid_token"}']


def test_tokens_wait_for_the_failures_of_their_address_as_passwords_do(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    clock = Failures(lambda: 1000.0)
    with Running(relays=()) as running:
        monkeypatch.setattr(running.service.logins, "_failures", clock)
        running.users({"@staff": STAFF}, Issuer(issuer=published.url, audience=AUDIENCE))
        good, bad = published.token(), published.token(exp=1)
        assert ask_engine(running.port, oauthbearer(good)).opened
        for number in range(50):
            assert not ask_engine(running.port, oauthbearer(bad, f"user-{number}")).opened
        assert not ask_engine(running.port, oauthbearer(good, "someone")).opened
        assert not ask_engine(running.port, oauthbearer(good)).opened, "the user is not stated before the check"
        assert ask_engine(running.port, oauthbearer(good, "alice")).opened, "has logged in from here before"
        assert ask_engine(running.port, xoauth2(good, "alice")).opened


def test_new_keys_are_fetched_and_an_absent_issuer_changes_nothing(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    monkeypatch.setattr(issuer, "APART", 0.0)
    new = RSAKey.generate_key(2048, {"kid": "new"})
    with Running() as running:
        running.users({}, Issuer(issuer=published.url, audience=AUDIENCE))
        assert ask_engine(running.port, oauthbearer(published.token())).opened
        published.keys = public(RSA, new)
        assert ask_engine(running.port, oauthbearer(published.token(new))).opened
        published.discovery = {"issuer": "https://other.example", "jwks_uri": f"{published.url}/keys"}
        other = RSAKey.generate_key(2048, {"kid": "other"})
        published.keys = public(other)
        assert not ask_engine(running.port, oauthbearer(published.token(other))).opened
        assert "is of the issuer 'https://other.example'" in running.service.logins.issuers.problems()[0]
        assert ask_engine(running.port, oauthbearer(published.token(new))).opened


def test_unknown_keys_do_not_make_the_service_ask_each_time(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    new = RSAKey.generate_key(2048, {"kid": "new"})
    with Running() as running:
        running.users({}, Issuer(issuer=published.url, audience=AUDIENCE))
        for _ in range(5):
            assert not ask_engine(running.port, oauthbearer(published.token(new))).opened
        assert published.asked == 2


def test_issuers_without_users_json_let_in_nobody_without_a_token(published: Published) -> None:
    with Running() as running:
        running.users(None, Issuer(issuer=published.url, audience=AUDIENCE))
        assert not ask(running.port, mechanism="ANONYMOUS").opened
        assert ask_engine(running.port, oauthbearer(published.token())).opened
