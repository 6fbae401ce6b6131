"""`users`: users and groups with their permissions, never a hash."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from enmasse.api.types import Decision, Entry, Page, User
from enmasse.identity.principal import Principal
from enmasse.model.operations import Operation as Right
from enmasse.model.users import GROUP
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown
from services.console.following.configuration import permission
from services.console.rest import writing
from services.console.rest.components import Components
from services.console.rest.listing import Listing
from services.console.rest.operations import IF_MATCH, Answer, Answered, Call, Operation, Parameter, etagged


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

    async def listed(call: Call) -> Answered:
        return await parts.lists.answer(listing, call)

    async def shown(call: Call) -> Answer:
        call.parameters()
        row = seen(call.caller, call.name())
        return etagged(row, row.etag)

    async def may(call: Call) -> Answer:
        given = call.parameters()
        row = seen(call.caller, call.name())
        if row.name.startswith(GROUP):
            raise unknown(f"user {row.name!r}")
        permissions = configuration.users.permissions_of(parts.space)
        found = permissions.decide(Principal(row.name, space=parts.space), given["operation"], given["address"])
        return Answer(
            Decision(allowed=found.allowed, permission=None if found.rule is None else permission(found.rule))
        )

    async def put(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        entry = await _hashed(await call.body(Entry))
        name, exists = call.name(), rows.get(call.name()) is not None
        etag = await writing.put(parts, call, "users", name, entry, exists=exists)
        return etagged(rows.get(name), etag, 200 if exists else 201)

    async def delete(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        if rows.get(call.name()) is None:
            raise unknown(f"user {call.name()[:200]!r}")
        await writing.remove(parts, call, "users", call.name())
        return Answer(status=204)

    return [
        Operation(
            method="PUT", path="/users/{name}", id="putUser", tag="users",
            text="Make a user or group (201), or change it. `password`: the new one as text; null: none; absent: kept.",
            handler=put, body=Entry, answer=User, parameters=(IF_MATCH,), errors=(409, 412, 422, 428, 502),
        ),
        Operation(
            method="DELETE", path="/users/{name}", id="deleteUser", tag="users", text="Remove a user or group.",
            handler=delete, status=204, parameters=(IF_MATCH,), errors=(412, 422, 428, 502),
        ),
        Operation(
            method="GET", path="/users", id="listUsers", tag="users", text="The users and groups (`@NAME`).",
            handler=listed, answer=Page[User], parameters=listing.parameters, watched=True,
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
                Parameter("address", "the address", Annotated[str, msgspec.Meta(min_length=1, max_length=512)],
                          required=True),
            ),
        ),
    ]  # fmt: skip


async def _hashed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the hashes of its password instead of the password. Raises RequestError."""
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
