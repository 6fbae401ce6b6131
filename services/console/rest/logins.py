"""`login`, `logout`, `me`."""

from __future__ import annotations

from datetime import UTC, datetime

from enmasse import log
from enmasse.api.types import Login, LoginOptions, Me
from enmasse.identity.permissions import Rule
from services.console.access import Caller
from services.console.configuration import permission
from services.console.errors import RequestError
from services.console.gate import COOKIE
from services.console.operations import Answer, Call, Operation
from services.console.parts import Parts


def operations(parts: Parts) -> list[Operation]:
    """Return the operations."""
    gate, passwords, configuration = parts.gate, parts.passwords, parts.configuration

    async def options(call: Call) -> Answer:
        call.parameters()
        anonymous = configuration.permissions.anonymous
        return Answer(LoginOptions(anonymous=anonymous, password=passwords.known and not anonymous))

    async def login(call: Call) -> Answer:
        body = await call.body(Login)
        if configuration.permissions.anonymous:
            raise RequestError("console.login.refused", "there are no users: no login is needed")
        found = await passwords.check(body.user, body.password, call.host) if body.user else None
        session = None if found is None else gate.sessions.begin(found)
        caller = None if session is None else gate.of_session(session)
        if found is None or session is None or caller is None:
            gate.refused(call.request, "login")
            raise RequestError("console.login.refused", "user or password is wrong, or you have to wait after failures")
        log.audit("audit.login.accepted", who=caller.name, from_=call.host, what="console", outcome="accepted", count=1)
        secure = "; Secure" if gate.is_tls else ""
        cookie = f"{COOKIE}={session.key}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return Answer(_me(caller), headers={"Set-Cookie": cookie})

    async def logout(call: Call) -> Answer:
        if call.caller.session is not None:
            gate.sessions.end(call.caller.session)
        cookie = f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        return Answer(status=204, headers={"Set-Cookie": cookie})

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
        how=caller.how,
        groups=[] if caller.principal is None else list(caller.principal.groups),
        csrf=caller.csrf,
        expires=None if expires is None else expires.isoformat().replace("+00:00", "Z"),
        administrator=caller.administrator,
        viewer=caller.viewer,
        permissions=[permission(rule) for rule in rules],
    )
