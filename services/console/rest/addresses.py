"""`addresses`: what there is, and how it is changed."""

from __future__ import annotations

from enmasse.api.types import Address, Page
from enmasse.model.addresses import AddressType
from services.console.access import Caller
from services.console.errors import unknown
from services.console.listing import Listing
from services.console.operations import Answer, Answered, Call, Operation, etagged
from services.console.parts import Parts


def operations(parts: Parts) -> list[Operation]:
    """Return the operations."""
    rows = parts.configuration.addresses
    listing: Listing[Address] = Listing(
        rows=rows,
        shown=lambda caller, row: row if caller.views(row.name) else None,
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
        if row is None or not caller.views(name):
            raise unknown(f"address {name[:200]!r}")
        return row

    async def listed(call: Call) -> Answered:
        return await parts.lists.answer(listing, call)

    async def shown(call: Call) -> Answer:
        call.parameters()
        row = seen(call.caller, call.name())
        return etagged(row, row.etag)

    return [
        Operation(
            method="GET", path="/addresses", id="listAddresses", tag="addresses", text="The addresses.",
            handler=listed, answer=Page[Address], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/addresses/{name}", id="getAddress", tag="addresses", text="An address.",
            handler=shown, answer=Address,
        ),
    ]  # fmt: skip
