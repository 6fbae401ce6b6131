"""`users`: users and groups with their permissions, never a hash; `tokens`: their API tokens, each secret once."""

from __future__ import annotations

import asyncio
import base64
import time
from itertools import chain, product
from typing import Annotated, Any

import msgspec

from enmasse.api.types import Change, Decision, Entry, Fault, MadeToken, NewToken, Page, Token, User
from enmasse.identity.mqtt_permissions import decided
from enmasse.identity.permissions import NO_MANAGER, deciding, denial_warning, has_manager, pattern_warnings
from enmasse.identity.principal import Principal
from enmasse.identity.proofs import api_tokens
from enmasse.logs import log
from enmasse.model.address_types import TYPES
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.permission_words import Operation as Right
from enmasse.model.topic_map import TopicMap
from enmasse.model.users import ANONYMOUS, GROUP, Permission, token_name_error
from services.console.door.access import Caller
from services.console.door.token_uses import key_of
from services.console.errors import RequestError, unknown
from services.console.following.configuration import instant, permission
from services.console.rest import writing
from services.console.rest.api_operations import IF_MATCH, Answer, Call, Operation, Parameter, etagged
from services.console.rest.components import Components
from services.console.rest.listing import Listing

FIRST_USER = "It is the first user: clients without a user are refused from now on, this page and scripts among them."
MOST_WARNED = 20
"""Patterns of a user that are looked for among the addresses."""


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration = parts.configuration
    rows = parts.principals
    listing: Listing[User] = Listing(
        rows=rows,
        shown=lambda caller, row: row if caller.viewer or caller.name == row.name else None,
        filters={"name": lambda row: row.name, "group": lambda row: row.groups},
        sorts={},
        kinds={},
    )

    def seen(caller: Caller, name: str) -> User:
        row = rows.get(name)
        if row is None or listing.shown(caller, row) is None:
            raise unknown(f"user {name[:200]!r}")
        return row

    async def shown(call: Call) -> Answer:
        call.parameters()
        row = seen(call.caller, call.name())
        return etagged(row, row.etag)

    async def may(call: Call) -> Answer:
        given = call.parameters()
        row = seen(call.caller, call.name())
        if row.name.startswith(GROUP):
            raise unknown(f"user {row.name!r}")
        rights = configuration.users.permissions_of(parts.space).rights(Principal(row.name, space=parts.space))
        topics = TopicMap(configuration.entries, space=parts.space)
        found, about = decided(rights, topics, given["operation"], given["address"])
        rule = None if found.rule is None else permission(found.rule)
        return Answer(Decision(allowed=found.allowed, address=about, permission=rule))

    def managed() -> bool:
        """Return True if a user may manage the space."""
        return has_manager(configuration.users.permissions_of(parts.space), [name for name, _ in rows])

    async def put(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        writing.changes_users(call.caller)
        entry = await _hashed(await call.body(Entry))
        name, exists = call.name(), rows.get(call.name()) is not None
        was_managed = managed()
        is_first = parts.space == DEFAULT_SPACE and next(iter(rows), None) is None and name != ANONYMOUS
        etag = await writing.put(parts, call, "users", name, entry, exists=exists)
        row, granted = rows.get(name), configuration.users.granted(name, parts.space)
        if row is not None:
            lost = [NO_MANAGER] if (was_managed or is_first) and not managed() else []
            row = msgspec.structs.replace(row, warnings=[*([FIRST_USER] if is_first else ()), *lost])
        if row is not None and granted is not None and granted.permissions:
            viewed = (each for _, each in parts.addresses if call.caller.views(each.name))
            levels = {each.name: TYPES[each.type].levels for each in viewed if each.type is not None}
            found = await asyncio.to_thread(_warnings, name, granted.permissions, levels)  # names are compared
            row = msgspec.structs.replace(row, warnings=[*row.warnings, *found])
        return etagged(row, etag, 200 if exists else 201)

    tokens = parts.tokens
    of_tokens: Listing[Token] = Listing(
        rows=tokens,
        shown=lambda caller, row: row if caller.viewer or caller.owns(row.user) else None,
        filters={"user": lambda row: row.user, "name": lambda row: row.name},
        sorts={"created": lambda row: row.created, "expires": lambda row: row.expires, "used": lambda row: row.used},
        kinds={},
    )

    async def add_token(call: Call) -> Answer:
        call.parameters()
        _may_change_tokens(call.caller, call.caller.name)
        if call.caller.token:
            text = "an API token makes no others, which would outlive it: log in with the password"
            raise RequestError("console.permission.denied", text)
        body = await call.body(NewToken)
        name = body.user or call.caller.name or ""
        _may_change_tokens(call.caller, name)
        row = rows.get(name)
        if row is None or name.startswith(GROUP):
            raise unknown(f"user {name[:200]!r} in users.json: tokens are of users with an entry there")
        if reason := token_name_error(body.name):
            fault = Fault(file="users.json", entry=name, field="name", reason=reason)
            raise RequestError("console.request.invalid", f"the body: `name`: {reason}", [fault])
        if tokens.get(key_of(name, body.name)) is not None:
            text = f"{name} has a token {body.name!r} already: remove it, or choose another name"
            raise RequestError(
                "console.name.in-use", text, [Fault(file="users.json", entry=name, field="name", reason=text)]
            )
        secret, created = api_tokens.made(), int(time.time())
        expires = {} if body.days is None else {"expires": created + body.days * 86400}
        entry = {"sha256": base64.b64encode(api_tokens.digest(secret)).decode(), "created": created, **expires}
        await _change_tokens(call, name, row.etag, body.name, {**entry, "readOnly": body.read_only})
        _audit_token(call, name, body.name, "made")
        made = Token(
            id=key_of(name, body.name), user=name, name=body.name, created=instant(created), read_only=body.read_only,
            expires=None if body.days is None else instant(expires["expires"]),
        )  # fmt: skip
        return Answer(MadeToken(**msgspec.structs.asdict(made), secret=secret), 201)

    async def remove_token(call: Call) -> Answer:
        call.parameters()
        found = await of_tokens.one(call.caller, call.name("id"), "API token")
        _may_change_tokens(call.caller, found.user)
        await _change_tokens(call, found.user, "*", found.name, None)
        _audit_token(call, found.user, found.name, "removed")
        return Answer(status=204)

    async def _change_tokens(call: Call, name: str, etag: str | None, token: str, entry: dict[str, Any] | None) -> None:
        change = Change(kind="users", set={name: {"tokens": {token: entry}}}, if_={name: etag})
        result = await writing.made(parts, call, change)
        if entry is None:
            parts.gate.withdraw(name, parts.space, token)
        await writing.seen(parts, "users", name, result.etags.get(name, ""))

    async def delete(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        writing.changes_users(call.caller)
        if rows.get(call.name()) is None:
            raise unknown(f"user {call.name()[:200]!r}")
        await writing.remove(parts, call, "users", call.name())
        return Answer(status=204)

    return [
        Operation(
            method="GET", path="/tokens", id="listTokens", tag="users",
            text="The API tokens: the own ones, or all for callers that may view everything.",
            handler=parts.lists.of(of_tokens), answer=Page[Token], parameters=of_tokens.parameters, watched=True,
        ),
        Operation(
            method="POST", path="/tokens", id="addToken", tag="users",
            text="Make an API token of the caller, or of another user. Only this answer has its secret.",
            handler=add_token, body=NewToken, answer=MadeToken, status=201, errors=(404, 409, 412, 422, 502),
        ),
        Operation(
            method="GET", path="/tokens/{id}", id="getToken", tag="users", text="An API token: `USER/NAME`.",
            handler=of_tokens.getter("API token", "id"), answer=Token,
        ),
        Operation(
            method="DELETE", path="/tokens/{id}", id="removeToken", tag="users",
            text="Remove an API token of a user: it is refused from now on.",
            handler=remove_token, status=204, errors=(412, 422, 502),
        ),
        Operation(
            method="PUT", path="/users/{name}", id="putUser", tag="users",
            text="Make a user or group (201), or change it. `password`: the new one as text; null: none; absent: kept. "
                 "`warnings` of the answer are about permissions that may not do what they say.",
            handler=put, body=Entry, answer=User, parameters=(IF_MATCH,), errors=(409, 412, 422, 428, 502),
        ),
        Operation(
            method="DELETE", path="/users/{name}", id="deleteUser", tag="users", text="Remove a user or group.",
            handler=delete, status=204, parameters=(IF_MATCH,), errors=(412, 422, 428, 502),
        ),
        Operation(
            method="GET", path="/users", id="listUsers", tag="users", text="The users and groups (`@NAME`).",
            handler=parts.lists.of(listing), answer=Page[User], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/users/{name}", id="getUser", tag="users", text="A user or group.",
            handler=shown, answer=User,
        ),
        Operation(
            method="GET", path="/users/{name}/may", id="mayUser", tag="users",
            text="Whether the user may do this on an address, and the permission that decides.",
            handler=may, answer=Decision,
            parameters=(
                Parameter("operation", "send, recv, view or manage", Right, required=True),
                Parameter("address", "an address, an MQTT topic, or a filter with + and #",
                          Annotated[str, msgspec.Meta(min_length=1, max_length=512)], required=True),
            ),
        ),
    ]  # fmt: skip


def _warnings(name: str, permissions: tuple[Permission, ...], levels: dict[str, bool]) -> list[str]:
    """Return sentences about permissions of an entry that may not do what they say. `levels`: address → whether it is a
    topic."""
    patterns = list(dict.fromkeys(pattern for each in permissions for pattern in each.addresses))
    allowing = [each for each in permissions if each.effect == "allow"]
    allowed = chain.from_iterable(product(each.operations, each.addresses) for each in allowing)
    denials = deciding(name, permissions, "deny", allowed)
    return pattern_warnings(patterns[:MOST_WARNED], levels) + [denial_warning(name, rule) for rule in denials]


def _may_change_tokens(caller: Caller, user: str | None) -> None:
    """Raise RequestError unless the caller may add and remove API tokens of a user."""
    if not caller.administrator and not caller.owns(user):
        raise RequestError("console.permission.denied", "tokens of others need the permission `manage` on `#`")


def _audit_token(call: Call, user: str, token: str, outcome: str) -> None:
    log.audit(
        "audit.token.changed", who=call.caller.title, role=call.caller.role, from_=call.host,
        what=f"API token {token} of {user}", outcome=outcome, space=call.caller.space,
    )  # fmt: skip


async def _hashed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the hashes of its password instead of the password. Raises RequestError."""
    if "tokens" in entry:
        raise RequestError("console.request.invalid", "the body: `tokens` are made by POST tokens; leave them out")
    if "scram" in entry:
        raise RequestError("console.request.invalid", "the body: `scram` is made from the password; leave it out")
    if "password" not in entry:
        return entry
    password = entry["password"]
    if password is None:
        return {**entry, "scram": None}
    if not isinstance(password, str):
        raise RequestError("console.request.invalid", "the body: `password` must be text or null")
    from enmasse.identity.proofs.passwords import Unsuitable, hashed  # its library takes memory

    try:
        hashes = await asyncio.to_thread(hashed, password)
    except Unsuitable as error:
        raise RequestError("console.request.invalid", f"the body: `password`: {error}") from None
    found: dict[str, Any] = msgspec.to_builtins({"password": hashes.password, "scram": hashes.scram})
    return {**entry, **found}
