"""A caller without credentials may be a page of another site, whose name was made to resolve to the console."""

from __future__ import annotations

import ssl
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from enmasse.api.types import Job
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges
from enmasse.model.users import Permission
from services.console.door.access import Caller
from services.console.door.gate import Gate
from services.console.jobs import queue_messages
from services.console.rest.listing import WATCHERS_OF_CALLER, Lists
from tests.kit.marks import first_soon
from tests.kit.running import asyncio_test

EVERYTHING = Permission(effect="allow", operations=("view", "manage"), addresses=("#",))
USERS = UserDirectory()
USERS.take(PermissionChanges(users={name: GrantedUser(permissions=(EVERYTHING,)) for name in (ANONYMOUS, "operator")}))
NOT_ITS_NAME = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""]
ITS_NAME = ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7:8080"]


def gate() -> Gate:
    return Gate(USERS, cast(Any, None), None)


@pytest.mark.parametrize(
    "path", first_soon(["/api/v1/connections?watch=1", "/metrics", "/api/v1/me", "/api/v1/events"], 2)
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("host", [*ITS_NAME, *NOT_ITS_NAME])
@asyncio_test
async def test_the_entry_anonymous_lets_in_by_names_that_cannot_be_rebound(host: str, method: str, path: str) -> None:
    """Nor does an Origin header help, which is the page's own and so that of the Host header."""
    for more in ({}, {"Origin": f"http://{host}"}, {"Sec-Fetch-Site": "same-origin"}):
        request = make_mocked_request(method, path, headers={"Host": host, **more})
        found = await gate().find(request)
        assert (found is not None) is (host in ITS_NAME)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        over_tls = make_mocked_request(method, path, headers={"Host": host, **more}, sslcontext=tls)
        assert await gate().find(over_tls) is not None  # the certificate is not that of the page's name


def test_a_user_called_operator_is_not_the_operator(audited: list[Any]) -> None:
    principal = Principal("operator")
    user, operator = Caller("bearer", principal, USERS.rights(principal)), Caller("operator")
    job = Job(id="1", address="orders", operation="purge", state="done", total=1)
    for caller in (user, operator):
        queue_messages.audit(job, caller, "192.0.2.1")
    assert [(each["who"], each["role"]) for each in audited] == [("operator", None), ("operator", "operator")]
    watching = Lists(gate()).watching
    for _ in range(WATCHERS_OF_CALLER):
        watching.begin(user)
    watching.begin(operator)()


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr("enmasse.logs.log.audit", lambda event, **facts: found.append({"event": event, **facts}))
    return found
