"""issuers.json: which entries are valid, and where the errors of the others point."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from enmasse.model.issuers import ALGORITHMS, MAX_ISSUERS, Issuer, Ldap, parse_issuers, url_error
from enmasse.model.jsonfile import parse
from tests.certificates import Authority

LEAST: dict[str, Any] = {"issuer": "https://sso.example/realms/main", "audience": "messaging"}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority(tmp_path_factory.mktemp("ca")).file.read_text()


def parsed(entries: dict[str, Any]) -> tuple[dict[str, Issuer], list[str]]:
    good, problems = parse_issuers(parse("issuers.json", json.dumps(entries, indent=1).encode()))
    return good, [str(problem) for problem in problems]


def test_an_entry_has_defaults() -> None:
    assert parsed({"sso": LEAST}) == ({"sso": Issuer(**LEAST)}, [])


def test_issuers_of_the_default_space_may_prove_users_of_others() -> None:
    good, _ = parsed({"fixed": {**LEAST, "space": "one"}, "claimed": {**LEAST, "spaceClaim": "tenant"}})
    assert (good["fixed"].space, good["claimed"].space_claim) == ("one", "tenant")
    assert msgspec.to_builtins(good["claimed"]) == {**LEAST, "spaceClaim": "tenant"}
    for field in ("space", "spaceClaim"):
        text = json.dumps({"sso": {**LEAST, field: "one"}}).encode()
        found, problems = parse_issuers(parse("spaces/two/issuers.json", text), in_space=True)
        assert not found and [problem.field for problem in problems] == [field]


def test_an_entry_may_have_everything_and_its_repr_has_no_secret(ca: str) -> None:
    entry = {
        **LEAST, "jwks_url": "http://localhost:8080/keys", "ca": ca, "algorithms": [*ALGORITHMS],
        "user_claim": "sub", "groups_claim": "roles", "skew": 0, "client_id": "c", "client_secret": "hunter2",
    }  # fmt: skip
    good, problems = parsed({"sso": entry})
    assert problems == []
    assert good["sso"] == Issuer(**{**entry, "algorithms": ALGORITHMS})
    assert "hunter2" not in repr(good["sso"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"issuer": None}, "issuer"),
        ({"issuer": "http://sso.example"}, "issuer"),
        ({"issuer": "https://sso.example/?a=b"}, "issuer"),
        ({"issuer": "https://user:pw@sso.example/"}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"audience": ["a"]}, "audience"),
        ({"jwks_url": "file:///etc/passwd"}, "jwks_url"),
        ({"jwks_url": "https://a b/"}, "jwks_url"),
        ({"ca": "/etc/ssl/ca.pem"}, "ca"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, "ca"),
        ({"ca": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}, "ca"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"space": "One"}, "space"),
        ({"space": "default"}, "space"),
        ({"space": "one", "spaceClaim": "tenant"}, "spaceClaim"),
        ({"user_claim": 1}, "user_claim"),
        ({"skew": -1}, "skew"),
        ({"skew": 1e9}, "skew"),
        ({"client_secret": "hunter2"}, "client_secret"),
        ({"client_id": "c", "client_secret": ["hunter2"]}, "client_secret"),
        ({"client_id": "c", "client_secret": "hunter2\n"}, "client_secret"),
        ({"clientSecret": "hunter2"}, "clientSecret"),
    ],
)
def test_a_wrong_field_is_named_with_its_line_and_no_secret(change: dict[str, Any], field: str) -> None:
    good, problems = parsed({"one": LEAST, "sso": {**LEAST, **change}})
    assert list(good) == ["one"]
    (problem,) = problems
    assert problem.startswith("issuers.json:") and f": sso.{field}: " in problem
    assert "hunter2" not in problem


DIRECTORY: dict[str, Any] = {"url": "ldaps://ldap.example", "users": "ou=people,dc=example"}


def test_a_directory_has_defaults_and_its_repr_has_no_secret(ca: str) -> None:
    good, problems = parsed({"corp": {"ldap": DIRECTORY, "ca": ca, "space": "one"}})
    assert problems == []
    assert good == {"corp": Issuer(ldap=Ldap(**DIRECTORY), ca=ca, space="one")}
    assert "hunter2" not in repr(Issuer(ldap=Ldap(**DIRECTORY, bind_dn="cn=a", bind_password="hunter2")))
    for url, server in (("ldap://localhost", ("localhost", 389)), ("ldaps://[::1]:7/", ("::1", 7))):
        entry: dict[str, Any] = {**DIRECTORY, "url": url}
        assert parsed({"corp": {"ldap": entry}})[1] == []
        assert Ldap(**entry).server == server


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "ldap://ldap.example"}, "url"),
        ({"url": "https://ldap.example"}, "url"),
        ({"url": "ldaps://user:hunter2@ldap.example"}, "url"),
        ({"url": "ldaps://ldap.example/dc=example"}, "url"),
        ({"url": "ldaps://a:b"}, "url"),
        ({"url": "ldaps://"}, "url"),
        ({"starttls": True}, "starttls"),
        ({"starttls": "yes"}, "starttls"),
        ({"users": "people"}, "users"),
        ({"groups": ""}, "groups"),
        ({"bind_dn": "cn=a"}, "bind_dn"),
        ({"bind_password": "hunter2"}, "bind_password"),
        ({"bind_dn": "cn=a", "bind_password": ["hunter2"]}, "bind_password"),
        ({"bindPassword": "hunter2"}, "bindPassword"),
        ({"user_attribute": "uid)(a"}, "user_attribute"),
        ({"user_attribute": "uid:1.2:"}, "user_attribute"),
        ({"member_attribute": "member:1.2.840"}, "member_attribute"),
        ({"user_filter": "objectClass=person"}, "user_filter"),
        ({"user_filter": "(a=1)(b=2)"}, "user_filter"),
        ({"user_filter": "(a=1))(|(b=2"}, "user_filter"),
        ({"user_filter": "((a=1)"}, "user_filter"),
        ({"session": 59}, "session"),
    ],
)
def test_a_wrong_field_of_a_directory_is_named_and_no_secret(change: dict[str, Any], field: str) -> None:
    good, problems = parsed({"one": {"ldap": DIRECTORY}, "corp": {"ldap": {**DIRECTORY, **change}}})
    assert list(good) == ["one"]
    (problem,) = problems
    assert problem.startswith("issuers.json:") and f": corp.ldap.{field}: " in problem
    assert "hunter2" not in problem


def test_a_directory_is_no_issuer_of_tokens() -> None:
    both: list[dict[str, Any]] = [{"ldap": DIRECTORY, "audience": "a"}, {"ldap": DIRECTORY, "spaceClaim": "a"}]
    for entry in [*both, {"ldap": []}]:
        good, (problem,) = parsed({"corp": entry})
        assert good == {} and "corp." in problem


def test_missing_fields_names_and_their_number() -> None:
    good, problems = parsed({"a b": LEAST, "sso": {"issuer": LEAST["issuer"]}, "x": []})
    assert good == {}
    assert [problem.split(": ")[1] for problem in problems] == ["a b", "sso.audience", "x"]
    good, problems = parsed({f"i{number}": LEAST for number in range(MAX_ISSUERS + 1)})
    assert (len(good), len(problems)) == (MAX_ISSUERS, 1)


def test_certificates_with_a_private_key_are_refused(ca: str) -> None:
    _, problems = parsed(
        {"sso": {**LEAST, "ca": f"{ca}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}}
    )
    assert "and nothing else" in problems[0]


def test_a_key_that_occurs_twice_is_an_error() -> None:
    text = json.dumps({"sso": LEAST})[:-2] + ', "audience": "other"}}'
    good, problems = parse_issuers(parse("issuers.json", text.encode()))
    assert (good, [problem.field for problem in problems]) == ({}, ["audience"])


@pytest.mark.parametrize(
    "url",
    ["http://issuer.example", "file:///etc/passwd", "http://127.0.0.1.example", "http://localhost@evil.example/", "",
     "https://", "https:///x", "https://a:b", "ftp://127.0.0.1", "https://[::1", "https://ä.example", "https://a\\b",
     "http://[::ffff:192.0.2.1]/", "http://0.0.0.0/", "//127.0.0.1/"],
)  # fmt: skip
def test_urls_that_others_can_read_or_that_are_none_are_refused(url: str) -> None:
    assert url_error(url) is not None


@pytest.mark.parametrize(
    "url", ["https://issuer.example/x", "http://localhost:8080", "http://[::1]:1/", "http://127.0.0.1"]
)
def test_https_and_loopback_are_accepted(url: str) -> None:
    assert url_error(url) is None
