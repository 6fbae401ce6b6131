"""Tokens and bearer responses of any form: a token that no issuer has signed for us proves nothing, raises nothing but
UnknownKey, fetches nothing and takes no long time."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from enmasse.identity.principal import Principal
from enmasse.model.issuers import Issuer
from services.authserv.bearer import read_oauthbearer, read_xoauth2
from services.authserv.tokens import MAX_TOKEN, Tokens, UnknownKey
from tests.authserv.published import AUDIENCE, EC, ISSUER, NOW, RSA, claims, public

OTHER = RSAKey.generate_key(2048, {"kid": "other"})
SECONDS = 2.0
"""Processor time that a token may take, on a busy machine; a usual one takes under a millisecond."""


def made(*keys: Any) -> Tokens:
    found = Tokens(Issuer(issuer=ISSUER, audience=AUDIENCE), lambda: NOW)
    found.replace_keys(public(*keys))
    return found


TOKENS = made(RSA, EC)
ONE_KEY = made(RSA)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token makes nobody connect or look up a name."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a token made the service connect")

    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)


def part(data: bytes | Any) -> str:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def token(header: Any, body: Any = None, sign: Callable[[bytes], bytes] | None = None) -> str:
    """Return a token of any parts. Without `sign`: signed by the issuer's RSA key."""
    text = f"{part(header)}.{part(claims() if body is None else body)}"
    return f"{text}.{part((sign or by(RSA))(text.encode()))}"


def by(key: RSAKey) -> Callable[[bytes], bytes]:
    def sign(data: bytes) -> bytes:
        assert key.private_key is not None
        return key.private_key.sign(data, padding.PKCS1v15(), hashes.SHA256())

    return sign


def by_secret(secret: bytes, digest: str = "sha256") -> Callable[[bytes], bytes]:
    return lambda data: hmac.digest(secret, data, digest)


def proves(text: str, tokens: Tokens = TOKENS) -> Principal | None:
    """Return what a token proves; it may only be refused, or be of an unknown key, in time."""
    began = time.process_time()
    try:
        proof = tokens.check(text)
        return None if proof is None else proof.principal
    except UnknownKey:
        return None
    finally:
        assert time.process_time() - began < SECONDS


GOOD = {"alg": "RS256", "kid": "rsa"}
JWK = OTHER.as_dict(private=False)
DER = serialization.Encoding.DER
PUBLIC = [
    RSA.as_pem(private=False),
    RSA.as_pem(private=False).strip(),
    RSA.as_der(private=False),
    RSA.public_key.public_bytes(DER, serialization.PublicFormat.PKCS1),
    RSA.public_key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.PKCS1),
    json.dumps(RSA.as_dict(private=False)).encode(),
    RSA.as_dict(private=False)["n"].encode(),  # type: ignore[union-attr]  # a text
    b"",
]


def test_the_maker_of_these_tokens_makes_good_ones() -> None:
    assert proves(token(GOOD)) == Principal("alice", ("staff", "ops"))
    assert proves(token({"alg": "RS256"}), ONE_KEY) is not None


@pytest.mark.parametrize("tokens", [TOKENS, ONE_KEY], ids=["several keys", "one key"])
@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None, 0, [], {}, True, "RS256 ", "rs256"])
def test_no_form_of_no_algorithm(alg: Any, tokens: Tokens) -> None:
    for header in ({"alg": alg}, {"alg": alg, "kid": "rsa"}, {"typ": "JWT", "kid": "rsa"}):
        for sign in (lambda _: b"", lambda _: b"x" * 256, by(RSA)):
            assert proves(token(header, sign=sign), tokens) is None


@pytest.mark.parametrize("tokens", [TOKENS, ONE_KEY], ids=["several keys", "one key"])
@pytest.mark.parametrize("secret", PUBLIC)
@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_secret(alg: str, secret: bytes, tokens: Tokens) -> None:
    for header in ({"alg": alg, "kid": "rsa"}, {"alg": alg}, {"alg": "RS256", "kid": "rsa"}):
        assert proves(token(header, sign=by_secret(secret, f"sha{alg[2:]}")), tokens) is None


@pytest.mark.parametrize(
    "header",
    [
        {"jwk": JWK}, {"jwk": JWK, "kid": "other"}, {"jwk": JWK, "kid": "rsa"}, {"jwk": {**JWK, "kid": "rsa"}},
        {"jku": "http://127.0.0.1:1/keys"}, {"jku": "http://127.0.0.1:1/keys", "kid": "other"},
        {"x5u": "http://127.0.0.1:1/cert.pem", "kid": "rsa"}, {"x5u": "file:///etc/passwd"},
        {"x5c": [base64.b64encode(OTHER.as_der(private=False)).decode()], "kid": "rsa"},
        {"x5t": "AAAA", "kid": "rsa"}, {"x5t#S256": "AAAA"},
        {"kid": "other"}, {"kid": "../../../../dev/null"}, {"kid": "/dev/null"}, {"kid": "http://127.0.0.1:1/rsa"},
        {"kid": "rsa' OR '1'='1"}, {"kid": "rsa\0"}, {"kid": ""}, {"kid": "RSA"}, {"kid": 0}, {"kid": ["rsa"]},
        {"kid": {"rsa": 1}}, {"kid": None}, {"kid": True}, {"kid": "x" * 5000}, {"kid": "\ud800"},
    ],
)  # fmt: skip
def test_a_header_brings_no_key_of_its_own(header: dict[str, Any]) -> None:
    for tokens in (TOKENS, ONE_KEY):
        for sign in (by(OTHER), by_secret(b""), lambda _: b""):
            assert proves(token({"alg": "RS256", **header}, sign=sign), tokens) is None


@pytest.mark.parametrize(
    "header",
    [
        {"b64": False, "crit": ["b64"]}, {"b64": True, "crit": ["b64"]}, {"crit": ["b64"]}, {"crit": ["exp"]},
        {"crit": ["x"]}, {"crit": ["x"], "x": 1}, {"crit": []}, {"crit": "alg"}, {"crit": {"x": 1}}, {"crit": 1},
        {"crit": [1]}, {"crit": [["x"]]},
    ],
)  # fmt: skip
def test_what_a_header_calls_critical_is_refused(header: dict[str, Any]) -> None:
    assert proves(token({**GOOD, **header})) is None


def test_an_unencoded_payload_is_refused() -> None:
    """RFC 7797: the signature is over the payload itself, not over its base64."""
    head = part({**GOOD, "b64": False})
    body = json.dumps(claims())
    signature = part(by(RSA)(f"{head}.{body}".encode()))
    assert proves(f"{head}.{body}.{signature}") is None
    assert proves(f"{head}.{part(body.encode())}.{signature}") is None


HUGE = 10**400
WRONG_VALUES: dict[str, list[Any]] = {
    "exp": ["", str(NOW + 60), "NaN", "Infinity", [NOW + 60], {}, True, False, 0, -1, -HUGE, NOW - 30.5, float("nan"),
            float("-inf"), [], "9" * 5000],
    "nbf": [NOW + 31, HUGE, float("inf"), float("nan"), str(NOW), "x", [], {}],
    "iat": ["x", [], {}, NOW + 31],
    "aud": ["", [], ["account"], {}, {AUDIENCE: 1}, [[AUDIENCE]], 1, True, f"{AUDIENCE} ", AUDIENCE.upper(),
            f"account {AUDIENCE}", AUDIENCE[:-1], AUDIENCE + "/"],
    "iss": ["", [], [ISSUER], {}, 1, ISSUER + "/", ISSUER.upper(), ISSUER[:-1]],
    "preferred_username": ["", 1, [], ["alice"], {}, True, "a" * 300, "a\0", "\ud800", " alice", "\u00a0alice"],
}  # fmt: skip
WRONG = [{name: value} for name, values in WRONG_VALUES.items() for value in values]
"""Claims of other values or types, in tokens that are signed well."""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:40])
def test_claims_of_other_values_or_types(wrong: dict[str, Any]) -> None:
    assert proves(token(GOOD, claims(**wrong))) is None


@pytest.mark.parametrize("exp", [HUGE, float("inf"), NOW + 60.5])
def test_an_expiry_may_be_any_number(exp: float) -> None:
    """A NumericDate may have a fraction (RFC 7519, 2). JSON has no infinity; a token with one is refused or lasts."""
    proves(token(GOOD, claims(exp=exp)))


def test_a_claim_that_occurs_twice_has_one_value() -> None:
    body = json.dumps(claims())
    twice = body[:-1] + f', "exp": 1, "preferred_username": "root", "exp": {NOW + 60}}}'
    assert proves(token(GOOD, twice.encode())) in (None, Principal("root", ("staff", "ops")))
    expired = body[:-1] + ', "exp": 1}'
    assert proves(token(GOOD, expired.encode())) is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 8000, '{"a":' * 1500, "[" * 4000 + "]" * 4000, '{"a":[' * 700 + "]}" * 700, "1" * 8000, "-" * 8000,
        '"' + "\\u0041" * 1300 + '"', "null", "true", "1", '"x"', "[]", "{}", "", "\0", "\xff", "{", '{"alg"',
        '{"alg": "RS256", "kid": "rsa", "alg": "none"}', '{"a": 1e999999999}',
    ],
)  # fmt: skip
def test_json_of_any_depth_and_kind(text: str) -> None:
    data = text.encode("latin-1")
    assert proves(token(data)) is None
    assert proves(token(GOOD, data)) is None
    assert proves(token(data, data)) is None


def test_a_token_of_any_size_is_looked_at_in_time() -> None:
    long = token(GOOD, {**claims(), "groups": ["x"] * 1500})
    assert len(long) < MAX_TOKEN and proves(long) is not None
    for text in ("." * 10_000_000, "e" * 10_000_000, "a." * 5_000_000, token(GOOD) + "A" * 10_000_000):
        assert proves(text) is None


PARTS = token(GOOD).split(".")
shapes = st.one_of(
    st.lists(st.sampled_from([*PARTS, "", "=", "e30", "eyJ", " ", "\n", "A" * 5]), max_size=6).map(".".join),
    st.permutations(PARTS).map(".".join),
)


@given(shapes)
@settings(deadline=None)
def test_parts_that_are_missing_moved_or_more(text: str) -> None:
    assert (proves(text) is not None) == (text == ".".join(PARTS))


@given(st.integers(0, 5000), st.characters(max_codepoint=0x17F), st.sampled_from(["set", "insert", "delete"]))
@settings(deadline=None, max_examples=400)
def test_a_changed_token_proves_nothing_else(at: int, character: str, how: str) -> None:
    """The last character of a signature has bits without a meaning, so some changes are none."""
    good = ".".join(PARTS)
    at %= len(good)
    bad = good[:at] + ("" if how == "delete" else character) + good[at + (how != "insert") :]
    assert proves(bad) is None or bad.split(".")[:2] == PARTS[:2]


any_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
header_names = st.sampled_from(
    ["alg", "kid", "typ", "cty", "crit", "b64", "jwk", "jku", "x5u", "x5c", "zip", "enc", "epk", "p2c"]
)
claim_names = st.sampled_from(["exp", "nbf", "iat", "aud", "iss", "sub", "jti", "preferred_username", "groups", "x"])


@given(st.dictionaries(header_names, any_value, max_size=5), st.booleans())
@settings(deadline=None, max_examples=300)
def test_headers_of_any_value_with_another_signature(header: dict[str, Any], named: bool) -> None:
    found = {**header, **(GOOD if named else {})}
    assert proves(token(found, sign=by_secret(PUBLIC[0]))) is None
    assert proves(token(found, sign=lambda _: b""), ONE_KEY) is None


@given(st.dictionaries(claim_names, any_value, max_size=5))
@settings(deadline=None, max_examples=300)
def test_claims_of_any_value_in_a_token_of_the_issuer(changed: dict[str, Any]) -> None:
    """What is accepted is for us, by the issuer, in time, and for a user with a legal name."""
    body = {**claims(), **changed}
    found = proves(token(GOOD, body))
    if found is not None:
        assert body["iss"] == ISSUER
        assert AUDIENCE in (body["aud"] if isinstance(body["aud"], list) else [body["aud"]])
        assert body["exp"] > NOW - 31 and body.get("nbf", 0) <= NOW + 30
        assert found.name == body["preferred_username"]
        assert all(isinstance(group, str) for group in found.groups)


# --- OAUTHBEARER and XOAUTH2 ------------------------------------------------------------------------------------------

A = "\x01"


@pytest.mark.parametrize(
    "text",
    [
        "", A, A * 3, f"n,,{A}", f"n,,{A}{A}", f"n,,{A}auth=Bearer t", f"n,,{A}auth=Bearer t{A}{A}x",
        "n,,auth=Bearer t",
        f"n,{A}auth=Bearer t{A}{A}", f"n{A}auth=Bearer t{A}{A}", f",,{A}auth=Bearer t{A}{A}",
        f"n,,,{A}auth=Bearer t{A}{A}", f"n,,x{A}auth=Bearer t{A}{A}", f"n,alice,{A}auth=Bearer t{A}{A}",
        f"p=tls-unique,,{A}auth=Bearer t{A}{A}", f"N,,{A}auth=Bearer t{A}{A}", f"n,,{A}auth={A}{A}",
        f"n,,{A}auth=Bearer{A}{A}", f"n,,{A}auth=Bearer {A}{A}", f"n,,{A}auth=BearerX t{A}{A}", f"n,,{A}auth{A}{A}",
        f"n,,{A}Auth=Bearer t{A}{A}", f"n,,{A}host=h{A}port=1{A}{A}", f"n,,{A}=Bearer t{A}{A}",
        f"n,,{A}auth=Bearer t{A}auth=Basic x{A}{A}", f"n,,{A}{A}auth=Bearer t{A}{A}",
    ],
)  # fmt: skip
def test_a_response_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_oauthbearer(text)


@pytest.mark.parametrize(
    "text",
    [
        "", A, "user=alice", f"user=alice{A}{A}", f"user=alice{A}auth=Bearer t", f"user=alice{A}auth=Bearer t{A}",
        f"auth=Bearer t{A}{A}", f"auth=Bearer t{A}user=alice{A}{A}", f"User=alice{A}auth=Bearer t{A}{A}",
        f"user=alice{A}auth=Basic t{A}{A}", f"n,,{A}auth=Bearer t{A}{A}",
    ],
)  # fmt: skip
def test_an_xoauth2_response_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_xoauth2(text)


@given(st.text(alphabet=f"{A},=ny pauthBerTk.u\0\u00fc", max_size=80) | st.text(max_size=80))
@settings(deadline=None, max_examples=300)
def test_any_response_is_read_or_refused(text: str) -> None:
    for read in (read_oauthbearer, read_xoauth2):
        for each in (text, f"n,,{A}{text}{A}{A}", f"user={text}", f"n,,{A}auth=Bearer {text}{A}{A}"):
            with contextlib.suppress(ValueError):
                user, found = read(each)
                assert found and A not in found and A not in user
