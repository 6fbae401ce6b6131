"""`flavors`: the kinds of infrastructure. Every caller may view them, as a choice for addresses."""

from __future__ import annotations

import msgspec

from enmasse.api.types import Flavor, Page
from services.console.errors import unknown
from services.console.listing import Listing
from services.console.operations import Answer, Answered, Call, Operation, etagged
from services.console.parts import Parts


def operations(parts: Parts) -> list[Operation]:
    """Return the operations."""
    rows = parts.configuration.flavors
    listing: Listing[Flavor] = Listing(
        rows=rows,
        shown=lambda caller, row: row if caller.viewer else msgspec.structs.replace(row, addresses=None),
        filters={"name": lambda row: row.name, "type": lambda row: row.type},
        sorts={"type": lambda row: row.type, "addresses": lambda row: row.addresses},
        kinds={},
    )

    async def listed(call: Call) -> Answered:
        return await parts.lists.answer(listing, call)

    async def shown(call: Call) -> Answer:
        call.parameters()
        row = rows.get(call.name())
        if row is None:
            raise unknown(f"flavor {call.name()[:200]!r}")
        found = listing.shown(call.caller, row)
        return etagged(found, row.etag)

    return [
        Operation(
            method="GET", path="/flavors", id="listFlavors", tag="flavors", text="The flavors.",
            handler=listed, answer=Page[Flavor], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/flavors/{name}", id="getFlavor", tag="flavors", text="A flavor.",
            handler=shown, answer=Flavor,
        ),
    ]  # fmt: skip
