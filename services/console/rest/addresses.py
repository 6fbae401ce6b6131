"""`addresses`: what there is, and how it is changed."""

from __future__ import annotations

from enmasse.api.types import Address, Entry, Page
from enmasse.model.address_types import AddressType
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown_address
from services.console.following.redaction import shown_address
from services.console.rest import writing
from services.console.rest.api_operations import IF_MATCH, Answer, Call, Operation, Parameter, etagged
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    rows = parts.addresses
    listing: Listing[Address] = Listing(
        rows=rows,
        shown=lambda caller, row: shown_address(rows, caller, row),
        filters={
            "name": lambda row: row.name,
            "type": lambda row: row.type,
            "flavor": lambda row: row.flavor,
            "phase": lambda row: row.phase,
            "ready": lambda row: row.ready,
            "broker": lambda row: row.brokers,
        },
        sorts={
            "type": lambda row: row.type,
            "messages": lambda row: row.stats.messages,
            "oldest": lambda row: row.stats.oldest,
            "consumers": lambda row: row.stats.consumers,
            "in": lambda row: row.stats.rates.in_,
            "out": lambda row: row.stats.rates.out,
        },
        kinds={"ready": bool, "type": AddressType},
    )

    def seen(caller: Caller, name: str) -> Address:
        row = rows.get(name)
        found = None if row is None else shown_address(rows, caller, row)
        if found is None:
            raise unknown_address(name, rows, caller.views)
        return found

    async def shown(call: Call) -> Answer:
        call.parameters()
        await rows.fresh()
        row = seen(call.caller, call.name())
        return etagged(row, row.etag)

    def managed(caller: Caller, name: str) -> Address | None:
        """Return the address that the caller may manage; None if it can be made. Raises RequestError."""
        row = rows.get(name) if caller.views(name) else None
        if not caller.may("manage", name):
            if row is None:
                raise unknown_address(name)
            raise RequestError("console.permission.denied", f"this needs the permission `manage` on {name!r}")
        if row is None and rows.get(name) is not None:
            raise unknown_address(name)
        return row

    async def write(call: Call, name: str, row: Address | None, entry: Entry) -> Answer:
        writing.may_have(call.caller, name, entry)
        exists = row is not None and row.phase != "Terminating"
        etag = await writing.put(parts, call, "addresses", name, entry, exists=exists)
        now = rows.get(name)
        found = None if now is None else shown_address(rows, call.caller, now)
        return etagged(found, etag, 200 if exists else 201)

    async def put(call: Call) -> Answer:
        call.parameters()
        managed(call.caller, call.name())  # before a body that may be long
        entry = await call.body(Entry)
        return await write(call, call.name(), managed(call.caller, call.name()), entry)

    async def patch(call: Call) -> Answer:
        call.parameters()
        managed(call.caller, call.name())  # as above
        change = await call.body(Entry)
        row = managed(call.caller, call.name())
        if row is None or row.entry is None:
            raise unknown_address(call.name())
        return await write(call, row.name, row, writing.merged(row.entry, change))

    async def delete(call: Call) -> Answer:
        force = call.parameters().get("force", False)
        row = managed(call.caller, call.name())
        if row is None:
            raise unknown_address(call.name())
        if row.phase != "Terminating" or not force:
            await writing.remove(parts, call, "addresses", row.name)
        if force:
            await parts.configuration.force([parts.inside(row.name)])
        return Answer(status=204)

    return [
        Operation(
            method="PUT", path="/addresses/{name}", id="putAddress", tag="addresses",
            text="Make an address (201), or change it.",
            handler=put, body=Entry, answer=Address, parameters=(IF_MATCH,), errors=(409, 412, 422, 428, 502),
        ),
        Operation(
            method="PATCH", path="/addresses/{name}", id="patchAddress", tag="addresses",
            text="Change keys of the entry of an address (RFC 7396: null removes a key).",
            handler=patch, body=Entry, answer=Address, parameters=(IF_MATCH,), errors=(412, 422, 428, 502),
        ),
        Operation(
            method="DELETE", path="/addresses/{name}", id="deleteAddress", tag="addresses",
            text="Remove an address. One that holds messages goes when it is empty, with `force` with its messages.",
            handler=delete, status=204, errors=(412, 422, 428, 502),
            parameters=(IF_MATCH, Parameter("force", "delete its messages, too", bool)),
        ),
        Operation(
            method="GET", path="/addresses", id="listAddresses", tag="addresses", text="The addresses.",
            handler=parts.lists.of(listing), answer=Page[Address], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/addresses/{name}", id="getAddress", tag="addresses", text="An address.",
            handler=shown, answer=Address,
        ),
    ]  # fmt: skip
