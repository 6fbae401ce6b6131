"""`flavors`: the kinds of infrastructure. Every caller may view them, as a choice for addresses."""

from __future__ import annotations

import msgspec

from enmasse.api.types import Entry, Fields, Flavor, Page, Template
from enmasse.model import addresses, flavors
from enmasse.model.names import DEFAULT_SPACE
from services.console.door.access import Caller
from services.console.errors import unknown
from services.console.rest import writing
from services.console.rest.api_operations import IF_MATCH, Answer, Call, Operation, etagged
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration = parts.configuration
    rows = configuration.flavors

    def seen(caller: Caller, row: Flavor) -> Flavor | None:
        if parts.space == DEFAULT_SPACE:
            return row if caller.viewer else msgspec.structs.replace(row, addresses=None)
        entry = configuration.spaces.get(parts.space)
        terms = None if entry is None or entry.plan is None else configuration.plans.spaces.get(entry.plan)
        if terms is not None and terms.flavors is not None and row.name not in terms.flavors:
            return None
        return msgspec.structs.replace(row, addresses=None, etag=None)

    listing: Listing[Flavor] = Listing(
        rows=rows,
        shown=seen,
        filters={"name": lambda row: row.name, "type": lambda row: row.type},
        sorts={"type": lambda row: row.type, "addresses": lambda row: row.addresses},
        kinds={},
    )

    async def shown(call: Call) -> Answer:
        call.parameters()
        row = await listing.one(call.caller, call.name(), "flavor")
        return etagged(row, row.etag)

    async def put(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        entry = await call.body(Entry)
        name, exists = call.name(), rows.get(call.name()) is not None
        etag = await writing.put(parts, call, "flavors", name, entry, exists=exists)
        row = rows.get(name)
        return etagged(None if row is None else listing.shown(call.caller, row), etag, 200 if exists else 201)

    async def delete(call: Call) -> Answer:
        call.parameters()
        writing.administers(call.caller)
        if rows.get(call.name()) is None:
            raise unknown(f"flavor {call.name()[:200]!r}")
        await writing.remove(parts, call, "flavors", call.name())
        return Answer(status=204)

    known = Fields(
        addresses=list(addresses.FIELDS),
        templates=[
            Template(name=name, type=type, text=flavors.about(name), fields=flavors.fields_of(name))
            for name, type in flavors.TEMPLATES.items()
        ],
    )

    async def fields(call: Call) -> Answer:
        call.parameters()
        return Answer(known)

    return [
        Operation(
            method="GET", path="/fields", id="getFields", tag="config",
            text="The fields of addresses, and of flavors by template, for forms.",
            handler=fields, answer=Fields,
        ),
        Operation(
            method="PUT", path="/flavors/{name}", id="putFlavor", tag="flavors",
            text="Make a flavor (201), or change it.",
            handler=put, body=Entry, answer=Flavor, parameters=(IF_MATCH,), errors=(409, 412, 422, 428, 502),
            in_spaces=False,
        ),
        Operation(
            method="DELETE", path="/flavors/{name}", id="deleteFlavor", tag="flavors",
            text="Remove a flavor that no address uses.",
            handler=delete, status=204, parameters=(IF_MATCH,), errors=(412, 422, 428, 502), in_spaces=False,
        ),
        Operation(
            method="GET", path="/flavors", id="listFlavors", tag="flavors", text="The flavors.",
            handler=parts.lists.of(listing), answer=Page[Flavor], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/flavors/{name}", id="getFlavor", tag="flavors", text="A flavor.",
            handler=shown, answer=Flavor,
        ),
    ]  # fmt: skip
