"""`login`, `logout`, `me`."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import web
from msgspec import UNSET

from enmasse.api.types import Login, LoginOptions, Me
from enmasse.identity.permissions import Rule
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.permission_words import OPERATIONS
from services.console.door.access import Caller
from services.console.door.gate import COOKIE
from services.console.errors import RequestError
from services.console.following.configuration import permission
from services.console.rest.api_operations import Answer, Call, Operation
from services.console.rest.components import Components


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    gate, authserv, configuration = parts.gate, parts.authserv, parts.configuration

    async def options(call: Call) -> Answer:
        call.parameters()
        space = gate.space_of(call.request)
        if configuration.users.is_open(space or DEFAULT_SPACE):
            return Answer(LoginOptions(anonymous=True, password=False))
        issuers = [each.name for each in await authserv.issuers(space)]
        return Answer(LoginOptions(anonymous=False, password=authserv.known, issuers=issuers))

    async def login(call: Call) -> web.Response:
        body = await call.body(Login)
        space, found = gate.space_of(call.request), None
        if configuration.users.anonymous and not configuration.users.hosts:
            raise RequestError("console.login.refused", "there are no users: no login is needed")
        if body.user:
            found = await authserv.check(body.user, body.password, call.host, space)
        caller = None if found is None else gate.begin(call.request, found)
        if caller is None:
            gate.refused(call.request, "login", body.user)
            raise RequestError("console.login.refused", "user or password is wrong, or you have to wait after failures")
        return gate.keep(call.request, Answer(_me(caller)).response(), caller, call.request.headers.get("Origin"))

    async def logout(call: Call) -> web.Response:
        if call.caller.session is not None:
            gate.sessions.end(call.caller.session)
            parts.lists.recheck()
        answer = Answer(status=204).response()
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return answer

    async def me(call: Call) -> Answer:
        call.parameters()
        return Answer(_me(call.caller))

    return [
        Operation(
            method="GET", path="/login", id="getLogin", tag="login", text="How callers may log in.",
            handler=options, answer=LoginOptions, public=True,
        ),
        Operation(
            method="POST", path="/login", id="login", tag="login", public=True, errors=(401, 403),
            text="Log in: the answer sets the cookie of a session, and has its token `csrf`.",
            handler=login, body=Login, answer=Me,
        ),
        Operation(
            method="POST", path="/logout", id="logout", tag="login", text="End the session.",
            handler=logout, status=204,
        ),
        Operation(method="GET", path="/me", id="getMe", tag="login", text="Who calls.", handler=me, answer=Me),
    ]  # fmt: skip


def _me(caller: Caller) -> Me:
    rules: tuple[Rule, ...] = () if caller.rights is None else caller.rights.rules
    expires = None if caller.expires is None else datetime.fromtimestamp(caller.expires, UTC)
    return Me(
        user=caller.name,
        space=UNSET if caller.space == DEFAULT_SPACE else caller.space,
        how=caller.how,
        groups=[] if caller.principal is None else list(caller.principal.groups),
        csrf=caller.csrf,
        expires=None if expires is None else expires.isoformat().replace("+00:00", "Z"),
        operations=list(OPERATIONS),
        administrator=caller.administrator,
        viewer=caller.viewer,
        permissions=[permission(rule) for rule in rules],
    )
