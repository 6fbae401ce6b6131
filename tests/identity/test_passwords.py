"""Hashes of passwords, and their checks in threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from enmasse.identity.proofs import passwords
from enmasse.identity.proofs.passwords import LIFETIME, Busy, PasswordChecks, Unsuitable, generated, hashed
from enmasse.model.jsonfile import parse
from enmasse.model.users import User, parse_users
from tests.kit.clock import Clock


def runs(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]  # pytest reads it
    return run


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def checks(clock: Clock) -> Iterator[PasswordChecks]:
    found = PasswordChecks(clock)
    yield found
    found.close()


async def is_right(checks: PasswordChecks, user: str, hash: str | None, password: str) -> bool:
    return checks.at_once(user, hash, password) or await checks.check(user, hash, password)


HASH = hashed("right").password
CHEAP = hashed("right", random=True).password


@runs
async def test_only_the_right_password_of_a_known_user_is_accepted(checks: PasswordChecks) -> None:
    assert await is_right(checks, "alice", HASH, "right")
    assert not await is_right(checks, "alice", HASH, "wrong")
    assert not await is_right(checks, "alice", None, "right")
    assert not await is_right(checks, "alice", HASH, "right\0" * 1000)
    assert not await is_right(checks, "alice", "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAA$" + "A" * 23, "right")


@runs
async def test_a_success_is_remembered_for_its_time(checks: PasswordChecks, clock: Clock) -> None:
    for _ in range(3):
        assert await is_right(checks, "alice", CHEAP, "right")
    assert checks.computed == 1
    clock.now = LIFETIME
    assert await is_right(checks, "alice", CHEAP, "right")
    assert checks.computed == 2


@runs
async def test_a_check_is_at_once_if_it_is_remembered_or_cheap(checks: PasswordChecks) -> None:
    assert checks.at_once("alice", CHEAP, "right")
    assert not checks.at_once("alice", CHEAP, "wrong")
    assert not checks.at_once("alice", None, "right")
    assert not checks.at_once("alice", HASH, "right")
    assert await checks.check("alice", HASH, "right")
    assert checks.at_once("alice", HASH, "right")


@runs
async def test_failures_and_other_users_hashes_and_passwords_are_not_remembered(checks: PasswordChecks) -> None:
    assert await is_right(checks, "alice", CHEAP, "right")
    assert not await is_right(checks, "alice", hashed("changed", random=True).password, "right")
    assert not await is_right(checks, "alice", None, "right")
    assert not await is_right(checks, "alice", CHEAP, "wrong")
    assert not await is_right(checks, "alice", CHEAP, "wrong")
    assert await is_right(checks, "bob", CHEAP, "right")
    assert checks.computed == 6


@runs
async def test_the_same_check_at_the_same_time_is_computed_once(checks: PasswordChecks) -> None:
    assert await asyncio.gather(*[is_right(checks, "alice", HASH, "right") for _ in range(20)]) == [True] * 20
    assert checks.computed == 1


@runs
async def test_remembered_successes_and_waiting_checks_are_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "MAX_REMEMBERED", 1)
    checks = PasswordChecks(clock)
    assert await is_right(checks, "alice", CHEAP, "right")
    assert await is_right(checks, "bob", CHEAP, "right")
    assert await is_right(checks, "alice", CHEAP, "right")
    assert checks.computed == 3
    monkeypatch.setattr(passwords, "MAX_WAITING", 1)
    first = asyncio.ensure_future(is_right(checks, "carol", HASH, "right"))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await is_right(checks, "dave", HASH, "right")
    await first
    checks.close()


@pytest.mark.parametrize("hash", [None, HASH, CHEAP], ids=["unknown", "chosen", "generated"])
@runs
async def test_unknown_users_cost_what_wrong_passwords_cost(
    hash: str | None, checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    matches = passwords._matches

    def recorded(hash: str, password: bytes) -> bool:
        computed.append(hash.split("$")[3])
        return matches(hash, password)

    monkeypatch.setattr(passwords, "_matches", recorded)
    assert not await is_right(checks, "alice", hash, "wrong")
    assert sorted(computed) == ["m=19456,t=2,p=1", "m=64,t=1,p=1"]


@pytest.mark.parametrize("password", ["", "a\u0007", "x" * 1025, "\ud800", "\U0001f511"])
def test_unsuitable_passwords_are_refused_without_showing_them(password: str) -> None:
    with pytest.raises(Unsuitable) as error:
        hashed(password)
    assert not password or password not in str(error.value)


@runs
async def test_a_password_is_compared_in_the_form_of_saslprep(checks: PasswordChecks) -> None:
    assert await is_right(checks, "alice", hashed("e\u0301", random=True).password, "\u00e9")


def test_hashes_are_valid_in_users_json() -> None:
    import msgspec

    for hashes in (hashed("right"), hashed(generated(), random=True)):
        text = msgspec.json.encode({"alice": {"password": hashes.password, "scram": hashes.scram}})
        good, problems = parse_users(parse("users.json", text))
        assert not problems
        assert good == {"alice": User(password=hashes.password, scram=hashes.scram)}
