"""`login/issuers/NAME` and `login/callback`: a browser logs in at an issuer of OpenID Connect."""

from __future__ import annotations

import time
from typing import Literal

from aiohttp import web

from enmasse.api.types import LoginAtIssuer
from enmasse.model.names import DEFAULT_SPACE
from services.console.door.access import Caller
from services.console.door.authserv_client import Refresh
from services.console.door.browsers import SECONDS, BrowserLogins
from services.console.door.gate import is_secure
from services.console.errors import RequestError, unknown
from services.console.rest.api_operations import PREFIX, Answer, Call, Operation, Parameter
from services.console.rest.components import Components

COOKIE = "enmasse-login"
"""Has the secret of a login. The browser has to bring it when the issuer sends it back, so it is SameSite=Lax."""
CALLBACK = f"{PREFIX}/login/callback"
MAX_ORIGIN, MAX_CODE = 300, 8192
"""Characters."""
Failure = Literal["denied", "refused", "stale", "unavailable"]
"""Why a login has failed; the page has texts for them."""


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    gate, authserv, configuration = parts.gate, parts.authserv, parts.configuration
    begun = BrowserLogins(time.monotonic)

    async def begin(call: Call) -> web.Response:
        name, origin = call.name(), _origin(call)
        space = gate.space_of(call.request)
        if configuration.users.is_open(space or DEFAULT_SPACE):
            raise RequestError("console.login.refused", "there are no users: no login is needed")
        issuer = next((each for each in await authserv.issuers(space) if each.name == name), None)
        if issuer is None:
            raise unknown(f"issuer {name[:100]!r} at which browsers can log in")
        if not issuer.endpoint:
            text = f"the issuer {name} cannot be reached, or lets no browsers in; the status of authserv says why"
            raise RequestError("console.login.limited", text)
        url, secret = begun.begin(issuer, origin + CALLBACK, space)
        answer = Answer(LoginAtIssuer(url=url)).response()
        answer.set_cookie(
            COOKIE, secret, path=CALLBACK, max_age=int(SECONDS), httponly=True, samesite="Lax",
            secure=is_secure(call.request, origin),
        )  # fmt: skip
        return answer

    async def end(call: Call) -> web.Response:
        found = await redeemed(call)
        answer = web.Response(status=303, headers={"Location": f"/?login={found}" if isinstance(found, str) else "/"})
        if not isinstance(found, str):
            caller, origin = found
            gate.keep(call.request, answer, caller, origin)
        answer.del_cookie(COOKIE, path=CALLBACK, httponly=True, samesite="Lax")
        return answer

    async def redeemed(call: Call) -> tuple[Caller, str] | Failure:
        """Return the user, as a caller with a session, and the origin of its page."""
        query = call.request.query
        if any(len(query.getall(name)) > 1 for name in query):
            return refused(call, "stale")
        login = begun.end(query.get("state", ""), call.request.cookies.get(COOKIE, ""))
        if login is None:
            return refused(call, "stale")
        code = query.get("code", "")
        if "error" in query or not 0 < len(code) <= MAX_CODE:
            return refused(call, "denied")
        try:
            found = await authserv.redeem(
                issuer=login.issuer, code=code, verifier=login.verifier, nonce=login.nonce, redirect=login.redirect,
                stated=query.get("iss"), client=call.host, space=login.space,
            )  # fmt: skip
        except RequestError:
            return "unavailable"
        caller = None
        if found is not None:
            refresh = None if found.token is None else Refresh(login.issuer, found.token, call.host, login.space)
            caller = gate.begin(call.request, found.login, refresh)
        return refused(call, "refused") if caller is None else (caller, login.redirect.removesuffix(CALLBACK))

    def refused(call: Call, failure: Failure) -> Failure:
        gate.refused(call.request, "login at an issuer")
        return failure

    return [
        Operation(
            method="POST", path="/login/issuers/{name}", id="loginAtIssuer", tag="login", public=True,
            errors=(401, 403, 404), handler=begin, answer=LoginAtIssuer,
            text="Begin to log in at an issuer: the answer has the URL to which the browser goes. For pages of the "
                 "console: the request needs the header Origin.",
        ),
        Operation(
            method="GET", path="/login/callback", id="endLoginAtIssuer", tag="login", public=True, status=303,
            handler=end, parameters=(
                Parameter("state", "of the login"), Parameter("code", "for authserv"),
                Parameter("error", "instead of a code"), Parameter("iss", "what the issuer calls itself"),
            ),
            text="Where the issuer sends the browser back: sets the cookie of a session, and leads to the page. Other "
                 "parameters are ignored.",
        ),
    ]  # fmt: skip


def _origin(call: Call) -> str:
    """Return the origin of the page that asks, which the gate has found to be that of this console."""
    origins = call.request.headers.getall("Origin", [])
    if len(origins) != 1 or len(origins[0]) > MAX_ORIGIN:
        raise RequestError("console.request.invalid", "logins at an issuer begin in a page of the console: no Origin")
    return origins[0].lower()
