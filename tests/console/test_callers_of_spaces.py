"""Callers of the console in address spaces: which space a request means, and what each caller may view there."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from enmasse.identity.login import Login
from enmasse.identity.principal import Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges, ReachedSpace
from enmasse.model.permission_words import OPERATIONS
from enmasse.model.users import Permission
from services.console.door.access import Caller
from services.console.door.gate import Gate
from services.console.errors import RequestError


def granted(*operations: Any, on: str = "#") -> GrantedUser:
    allow = Permission(effect="allow", operations=operations, addresses=(on,))
    return GrantedUser(credentials="known", permissions=(allow,))


EVERYTHING = granted(*OPERATIONS)
BODY = PermissionChanges(
    users={"root": EVERYTHING, "viewer": granted("view"), "user": granted("view", on="orders")},
    spaces={"one": ReachedSpace(hosts=("one.example.com",)), "two": ReachedSpace()},
    in_spaces={
        "!!one/admin": EVERYTHING,
        "!!one/user": granted("view", on="orders"),
        "!!one/anonymous": granted("view", on="public"),
        "!!two/admin": EVERYTHING,
    },
)


class FakeAuthserv:
    """Knows each user of BODY by the password `right`."""

    known = True

    async def check(
        self, user: str, password: str, client: str, space: str | None = None, *, api: bool = False
    ) -> Login | None:
        name, _, suffix = user.partition("@")
        who = Principal(user, space=space) if space else Principal(name, space=suffix or "default")
        entries = {**BODY.users, **(BODY.in_spaces or {})}
        return Login(who, "known") if password == "right" and who.full_name in entries else None


@pytest.fixture
def users() -> UserDirectory:
    found = UserDirectory()
    found.take(BODY)
    return found


@pytest.fixture
def gate(users: UserDirectory) -> Gate:
    return Gate(users, FakeAuthserv(), None)  # type: ignore[arg-type]  # what the gate uses of it


def request(host: str, user: str | None = None, password: str = "right") -> web.Request:
    headers = {"Host": host}
    if user is not None:
        headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return make_mocked_request("GET", "/api/v1/me", headers=headers, sslcontext=tls)


def caller(gate: Gate, host: str, user: str | None = None) -> Caller | None:
    return asyncio.run(gate.find(request(host, user)))


@pytest.mark.parametrize(
    ("host", "user", "expected"),
    [
        ("console", "root", ("root", "default", True)),
        ("console", "admin@one", ("admin", "one", False)),
        ("one.example.com", "admin", ("admin", "one", False)),
        ("one.example.com:9443", "user", ("user", "one", False)),
        ("one", "user", ("user", "one", False)),
        ("console", "admin@two", ("admin", "two", False)),
        ("console", "viewer", ("viewer", "default", False)),
        ("one.example.com", None, ("anonymous", "one", False)),
        ("two", None, None),
        ("console", None, None),
    ],
)
def test_a_request_means_a_space_by_its_host_or_its_login(
    gate: Gate, host: str, user: str | None, expected: tuple[str, str, bool] | None
) -> None:
    found = caller(gate, host, user)
    assert (None if found is None else (found.name, found.space, gate.oversees(found))) == expected


@pytest.mark.parametrize("user", ["root", "admin@two", "user@none", "nobody@one"])
def test_users_of_another_space_are_refused_as_unknown_ones(gate: Gate, user: str) -> None:
    with pytest.raises(RequestError) as refused:
        caller(gate, "one.example.com", user)
    with pytest.raises(RequestError) as unknown:
        caller(gate, "console", "nobody")
    assert refused.value.answer().body == unknown.value.answer().body


@pytest.mark.parametrize(
    ("user", "spaces"),
    [
        ("root", {"default", "one", "two", "none"}),  # that there is no space `none` is found out behind the gate
        ("viewer", {"default"}),
        ("user", {"default"}),
        ("admin@one", {"one"}),
        ("user@one", {"one"}),
        ("admin@two", {"two"}),
    ],
)
def test_only_the_operator_acts_in_other_spaces(gate: Gate, user: str, spaces: set[str]) -> None:
    found = caller(gate, "console", user)
    assert found is not None
    assert {space for space in ("default", "one", "two", "none") if found.within(space) is not None} == spaces


def test_a_space_s_administrator_is_no_operator(gate: Gate) -> None:
    found = caller(gate, "console", "admin@one")
    assert found is not None
    assert found.administrator and found.viewer and not found.is_operator
    assert found.title == "!!one/admin" and found.name == "admin"


def test_who_may_view_everything_oversees_where_there_is_one_space_only(users: UserDirectory, gate: Gate) -> None:
    viewer = caller(gate, "console", "viewer")
    assert viewer is not None and not gate.oversees(viewer)
    users.take(PermissionChanges(users=BODY.users))
    viewer = caller(gate, "console", "viewer")
    assert viewer is not None and gate.oversees(viewer)


def test_a_removed_space_or_user_ends_its_sessions_and_streams(users: UserDirectory, gate: Gate) -> None:
    login = Login(Principal("admin", space="one"), "known")
    began = gate.begin(request("one.example.com"), login)
    operator = gate.begin(request("console"), Login(Principal("root"), "known"))
    assert began is not None and operator is not None
    acting = operator.within("two")
    assert acting is not None and gate.ended(acting) is None and gate.ended(began) is None
    users.take(PermissionChanges(full=False, spaces=BODY.spaces, in_spaces={"!!one/admin": granted("view")}))
    assert gate.ended(began) == "permissions"
    users.take(PermissionChanges(users=BODY.users, spaces={"two": ReachedSpace()}))
    assert gate.ended(began) == "login" and gate.ended(acting) is None
    users.take(PermissionChanges(users={"viewer": granted("view")}, spaces={"two": ReachedSpace()}))
    assert gate.ended(acting) == "login"
