"""`spaces` and `plans`: address spaces beside the default one, and what they may use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from enmasse.api.types import Entry, Kind, Page, Plan, Space
from enmasse.model.names import DEFAULT_SPACE, space_prefix
from services.console.door.access import Caller
from services.console.errors import unknown, unknown_space
from services.console.following.space_rows import AnyRows, between
from services.console.rest import writing
from services.console.rest.api_operations import IF_MATCH, Answer, Call, Operation, Parameter, etagged
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def shown_space(caller: Caller, row: Space) -> Space | None:
    """Return what a caller sees of an address space: nothing of another one, and of its own what counts addresses only
    if it may view all of them."""
    acting = caller.within(row.name)
    if acting is None or acting.viewer:
        return None if acting is None else row
    return msgspec.structs.replace(row, ready=False, phases={}, used={}, limits={})


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration = parts.configuration
    spaces: Listing[Space] = Listing(
        rows=configuration.space_rows,
        shown=shown_space,
        filters={"name": lambda row: row.name, "plan": lambda row: row.plan, "ready": lambda row: row.ready},
        sorts={"plan": lambda row: row.plan},
        kinds={"ready": bool},
    )

    def plan_of_space() -> Sequence[str]:
        """Return the names of the plans that the space of these parts may name, or has."""
        entry = configuration.spaces.get(parts.space)
        if entry is None or entry.plan is None:
            return list(configuration.plans.addresses)
        terms = configuration.plans.spaces.get(entry.plan)
        return [entry.plan, *(() if terms is None else terms.address_plans)]

    def shown_plan(caller: Caller, row: Plan) -> Plan | None:
        if parts.space == DEFAULT_SPACE:
            return row if caller.is_operator else None
        return Plan(name=row.name, kind=row.kind, entry=row.entry) if row.name in plan_of_space() else None

    plans: Listing[Plan] = Listing(
        rows=configuration.plan_rows,
        shown=shown_plan,
        filters={"name": lambda row: row.name, "kind": lambda row: row.kind},
        sorts={"kind": lambda row: row.kind},
        kinds={},
    )

    async def shown(listing: Listing[Any], noun: str, call: Call) -> Answer:
        call.parameters()
        row = await listing.one(call.caller, call.name(), noun)
        return etagged(row, row.etag)

    async def put(kind: Kind, rows: AnyRows[Any], call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        entry, name = await call.body(Entry), call.name()
        row = rows.get(name)
        exists = row is not None and row.entry is not None
        etag = await writing.put(parts, call, kind, name, entry, exists=exists)
        return etagged(rows.get(name), etag, 200 if exists else 201)

    async def delete_plan(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        if configuration.plan_rows.get(call.name()) is None:
            raise unknown(f"plan {call.name()[:200]!r}")
        await writing.remove(parts, call, "plans", call.name())
        return Answer(status=204)

    async def delete_space(call: Call) -> Answer:
        force = call.parameters().get("force", False)
        writing.administers(call.caller)
        row = configuration.space_rows.get(call.name())
        if row is None:
            raise unknown_space(call.name())
        addresses = list(between(configuration.addresses.keys(), space_prefix(row.name)))
        if row.entry is not None or not force:
            await writing.remove(parts, call, "spaces", row.name)
        if force and addresses:
            await configuration.force(addresses)
        return Answer(status=204)

    def of(kind: Kind, one: str, text: str, listing: Listing[Any], shape: Any) -> list[Operation]:
        name = one.capitalize()
        return [
            Operation(
                method="PUT", path=f"/{kind}/{{name}}", id=f"put{name}", tag="spaces", body=Entry, answer=shape,
                text=f"Make {text} (201), or change it.", parameters=(IF_MATCH,), errors=(409, 412, 422, 428, 502),
                handler=partial(put, kind, listing.rows), in_spaces=False,
            ),
            Operation(
                method="GET", path=f"/{kind}", id=f"list{name}s", tag="spaces", answer=Page[shape],
                text=f"The {kind}.", handler=parts.lists.of(listing), parameters=listing.parameters, watched=True,
                in_spaces=kind == "plans",
            ),
            Operation(
                method="GET", path=f"/{kind}/{{name}}", id=f"get{name}", tag="spaces", text=f"{text.capitalize()}.",
                handler=partial(shown, listing, text.partition(" ")[2]), answer=shape, in_spaces=kind == "plans",
            ),
        ]  # fmt: skip

    return [
        *of("spaces", "space", "an address space", spaces, Space),
        Operation(
            method="DELETE", path="/spaces/{name}", id="deleteSpace", tag="spaces",
            text="Remove an address space with its files. Its addresses that hold messages go when they are empty, "
                 "with `force` with their messages.",
            handler=delete_space, status=204, errors=(412, 422, 428, 502), in_spaces=False,
            parameters=(IF_MATCH, Parameter("force", "delete its messages, too", bool)),
        ),
        *of("plans", "plan", "a plan", plans, Plan),
        Operation(
            method="DELETE", path="/plans/{name}", id="deletePlan", tag="spaces",
            text="Remove a plan that no address space has.",
            handler=delete_plan, status=204, parameters=(IF_MATCH,), errors=(412, 422, 428, 502), in_spaces=False,
        ),
    ]  # fmt: skip
