"""users.json: valid entries, and the place and reason of what is wrong with others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from enmasse.model.jsonfile import parse
from enmasse.model.users import (
    MAX_ARGON2_MEMORY,
    ConnectionLimits,
    Known,
    Permission,
    User,
    Verifier,
    name_error,
    parse_users,
    pattern_error,
    prepared,
    unknown_groups,
)

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQxMjM0NTY$" + "A" * 43
KEY = base64.b64encode(bytes(32)).decode()
SCRAM = {"salt": base64.b64encode(b"s" * 16).decode(), "iterations": 4096, "stored_key": KEY, "server_key": KEY}


def parsed(entries: Any) -> tuple[dict[str, User], list[str]]:
    good, problems = parse_users(parse("users.json", json.dumps(entries, indent=1).encode()))
    return good, [str(problem) for problem in problems]


def test_a_user_and_a_group() -> None:
    permissions = [{"allow": ["send", "recv"], "addresses": ["devices/${user}/#"]}]
    entries = {
        "sensor-1": {"password": HASH, "scram": {"SCRAM-SHA-256": SCRAM}, "groups": ["devices"]},
        "@devices": {"permissions": [*permissions, {"deny": ["send"], "addresses": ["a.b", "c/*", "#"]}]},
        "anonymous": {"permissions": []},
        "by certificate": {},
    }
    good, problems = parsed(entries)
    assert not problems
    assert good == {
        "sensor-1": User(
            password=HASH,
            scram={"SCRAM-SHA-256": Verifier(b"s" * 16, 4096, bytes(32), bytes(32))},
            groups=("devices",),
        ),
        "@devices": User(
            permissions=(
                Permission(effect="allow", operations=("send", "recv"), addresses=("devices/${user}/#",)),
                Permission(effect="deny", operations=("send",), addresses=("a.b", "c/*", "#")),
            )
        ),
        "anonymous": User(),
        "by certificate": User(),
    }
    assert HASH not in repr(good)
    assert "stored" not in repr(good)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (["x"], "alice: must be an object with password, scram, tokens, groups, permissions, limits, not an array"),
        ({"color": 1}, "alice.color: unknown key; known are password, scram, tokens, groups, permissions"),
        ({"password": "hunter2"}, "alice.password: is not a hash by argon2id; passwords are not written here: "
                                  "remove this, then run `enmasse user password alice`"),
        ({"password": 7}, "alice.password: is not a hash by argon2id; passwords"),
        ({"Passwd": "hunter2"}, "alice.Passwd: passwords are not written here: remove this, then run"),
        ({"password": HASH.replace("argon2id", "argon2i")}, "alice.password: is not a hash by argon2id, version 19"),
        ({"password": HASH.replace("m=19456", "m=9999999")}, f"alice.password: m must be 8 to {MAX_ARGON2_MEMORY}"),
        ({"password": HASH.replace("t=2", "t=99")}, "alice.password: t must be 1 to 16, p 1 to 16"),
        ({"scram": {"SCRAM-MD5": SCRAM}}, "alice.scram.SCRAM-MD5: unknown mechanism"),
        ({"scram": {"SCRAM-SHA-512": SCRAM}}, "alice.scram.SCRAM-SHA-512.stored_key: must be 64 bytes in base64"),
        ({"scram": {"SCRAM-SHA-256": {**SCRAM, "iterations": 1}}}, "SCRAM-SHA-256.iterations: must be a whole number"),
        ({"scram": {"SCRAM-SHA-256": {**SCRAM, "salt": "AA=="}}}, "SCRAM-SHA-256.salt: must be 12 to 64 bytes"),
        ({"scram": {"SCRAM-SHA-256": {"salt": ""}}}, "alice.scram.SCRAM-SHA-256: must be an object with salt, iter"),
        ({"tokens": []}, "alice.tokens: must be an object: name → token, not an array"),
        ({"tokens": {"a b": {}}}, "alice.tokens.a b: the name of a token has 1 to 64 letters"),
        ({"tokens": {"t": {"created": 1}}}, "alice.tokens.t: needs sha256 and created: make tokens with"),
        ({"tokens": {"t": {"sha256": "AA==", "created": 1}}}, "alice.tokens.t.sha256: must be 32 bytes in base64"),
        ({"tokens": {f"t{n}": {} for n in range(21)}}, "alice.tokens: a user may have 20 API tokens at most"),
        ({"groups": "g"}, "alice.groups: must be an array of names of groups, not a string"),
        ({"groups": ["@g"]}, "alice.groups: groups are named without @ here; write 'g'"),
        ({"groups": ["g\n"]}, "alice.groups: 'g\\n': the name of a group must not have control characters"),
        ({"permissions": {}}, "alice.permissions: must be an array such as"),
        ({"permissions": [{"addresses": ["a"]}]}, "alice.permissions.0: must have allow or deny, and not both"),
        ({"permissions": [{"allow": ["send"], "deny": ["send"], "addresses": ["a"]}]}, "0: must have allow or deny"),
        ({"permissions": [{"allow": ["write"], "addresses": ["a"]}]}, "permissions.0.allow: must be an array of send"),
        ({"permissions": [{"allow": ["send"]}]}, "permissions.0.addresses: must be an array of patterns"),
        ({"permissions": [{"allow": ["send"], "addresses": ["a*"]}]}, "permissions.0.addresses: 'a*' may have * (one"),
        ({"permissions": [{"allow": ["send"], "addresses": ["a"], "to": 1}]}, "alice.permissions.0.to: unknown key"),
    ],
)  # fmt: skip
def test_an_invalid_user_is_reported_with_its_place(entry: Any, expected: str) -> None:
    good, (problem,) = parsed({"bob": {}, "alice": entry})
    assert expected in problem
    assert list(good) == ["bob"]
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("anonymous", "password", "clients without credentials have no password"),
        ("@g", "password", "unknown key; a group has permissions"),
        ("anonymous", "tokens", "clients without credentials have no API tokens"),
        ("@g", "tokens", "unknown key; a group has permissions"),
        ("@g", "groups", "unknown key; a group has permissions"),
    ],
)
def test_some_entries_have_no_credentials(name: str, key: str, expected: str) -> None:
    _, (problem,) = parsed({name: {key: HASH}})
    assert f"users.json:3: {name}.{key}: {expected}" in problem


def test_a_name_that_occurs_twice_is_not_used() -> None:
    good, problems = parse_users(parse("users.json", b'{"a": {},\n"a": {}}'))
    assert not good
    assert [str(problem) for problem in problems] == ["users.json:2: a: occurs twice; remove one of the two"]


def test_a_group_without_an_entry_is_reported_and_the_user_applies() -> None:
    document = parse("users.json", b'{"a": {"groups": ["x", "devcies"]}, "@x": {}, "@devices": {}}')
    good, _ = parse_users(document)
    (problem,) = unknown_groups(document, good)
    assert problem.applies
    assert "a.groups: no entry '@devcies'" in str(problem) and "Did you mean '@devices'?" in str(problem)


@pytest.mark.parametrize(
    "name", ["alice", "a/b", "#", "a.b*", "${user}", "alice@example.com", "Jörg", "John Smith", "@g"]
)
def test_legal_names(name: str) -> None:
    assert name_error(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "@", "@@g", " a", "a ", "a\nb", "a\0", "n" * 256, "é", "ﬁ", "a\u200bb", "\ud800", "a\u00a0b", "!!a", "@!!a"],
)
def test_illegal_names(name: str) -> None:
    name = "e\u0301" if name == "é" else name  # not composed
    assert name_error(name) is not None


def test_names_are_compared_in_the_form_of_saslprep() -> None:
    assert prepared("e\u0301") == prepared("\u00e9") == "\u00e9"
    assert prepared("a\u0007") is None
    assert prepared("\u0627\u0031") is None  # RFC 4013, 3: prohibited bidirectional sequence


@pytest.mark.parametrize(
    "pattern", ["a", "a/b.c", "a/#", "a.*", "*", "#", "$lwt", "${user}/#", "d-${user}.x/*", "a%2Fb", "a//b", "a/!!b"]
)
def test_legal_patterns(pattern: str) -> None:
    assert pattern_error(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a/#/b",
        "*/a",
        "a#",
        "a/b*",
        "+",
        "a/+",
        "a b",
        "a::b",
        "${name}",
        "a" * 600,
        "!!a",
        "!!a/#",
        "!!a.b",
        "!!*",
        "!!#",
        "/!!a",
        "/a",
        ".a/#",
        "a/",
        "a.",
        "/",
        "/#",
    ],
)
def test_illegal_patterns(pattern: str) -> None:
    assert pattern_error(pattern) is not None


def test_entries_that_have_not_changed_are_not_parsed_again() -> None:
    known: Known = {}

    def users(**entries: Any) -> tuple[dict[str, User], list[str]]:
        good, problems = parse_users(parse("users.json", json.dumps(entries).encode()), known)
        return good, [str(problem.entry) for problem in problems]

    one, other = {"groups": ["a"]}, {"permissions": [{"allow": ["send"], "addresses": ["x"]}]}
    first, _ = users(alice=one, bob=other, carol={})
    second, _ = users(alice=one, bob={**other, "groups": ["b"]}, dave={})
    assert second["alice"] is first["alice"]
    assert second["bob"].groups == ("b",)
    assert known.keys() == {"alice", "bob", "dave"}
    third, wrong = users(alice={"groups": "a"}, bob=other)
    assert (list(third), wrong) == (["bob"], ["alice"])
    assert users(alice=one, bob=other)[0] == {"alice": first["alice"], "bob": first["bob"]}


def test_a_key_that_occurs_twice_is_found_again_in_an_entry_that_is_known() -> None:
    known: Known = {}
    for text, good in (('{"a": {"groups": ["x"]}}', True), ('{"a": {"groups": [], "groups": ["x"]}}', False)):
        assert bool(parse_users(parse("users.json", text.encode()), known)[0]) is good


@pytest.mark.parametrize("permission", ['{"allow": ["send"], "allow": ["send"], "addresses": ["a"]}', "{}, {}"])
def test_objects_in_arrays_are_read_as_others_are(permission: str) -> None:
    document = parse("users.json", f'{{"a": {{"permissions": [{permission}]}}}}'.encode())
    assert document.duplicates == ([("a", "permissions", "0", "allow")] if "allow" in permission else [])


def test_limits_of_users_and_groups() -> None:
    limits = {"connections": 5, "connects_per_second": 2}
    good, problems = parsed({"a": {"limits": limits}, "@g": {"limits": {"connections": 1}}, "b": {"limits": {}}})
    assert not problems
    assert good["a"].granted.limits == ConnectionLimits(connections=5, connects_per_second=2)
    assert good["@g"].limits == ConnectionLimits(connections=1)
    assert good["b"].limits == ConnectionLimits()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([], "limits: must be an object"),
        ({"sessions": 1}, "limits.sessions: unknown key"),
        ({"connections": 0}, "limits.connections: must be a whole number from 1"),
        ({"connects_per_second": 1.5}, "limits.connects_per_second: must be a whole number"),
        ({"connections": True}, "limits.connections: must be a whole number"),
    ],
)
def test_limits_that_are_none(limits: Any, expected: str) -> None:
    good, (problem,) = parsed({"a": {"limits": limits}})
    assert expected in problem
    assert not good
