"""`users`: users and groups with their permissions, never a hash."""

from __future__ import annotations

from typing import Annotated

import msgspec

from enmasse.api.types import Decision, Page, User
from enmasse.identity.principal import Principal
from enmasse.model.users import GROUP
from enmasse.model.users import Operation as Right
from services.console.access import Caller
from services.console.configuration import permission
from services.console.errors import unknown
from services.console.listing import Listing
from services.console.operations import Answer, Answered, Call, Operation, Parameter, etagged
from services.console.parts import Parts


def operations(parts: Parts) -> list[Operation]:
    """Return the operations."""
    configuration = parts.configuration
    rows = configuration.principals
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
        found = configuration.permissions.decide(Principal(row.name), given["operation"], given["address"])
        return Answer(
            Decision(allowed=found.allowed, permission=None if found.rule is None else permission(found.rule))
        )

    return [
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
