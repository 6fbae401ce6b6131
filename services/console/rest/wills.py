"""`wills`: what the last-will service is to publish for clients that are lost."""

from __future__ import annotations

from enmasse.api.types import Page, Will
from services.console.door.access import Caller
from services.console.rest.api_operations import Operation
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""

    wills: Listing[Will] = Listing(
        rows=parts.wills,
        shown=shown_will,
        filters={
            "topic": lambda row: row.topic,
            "client": lambda row: row.client,
            "user": lambda row: row.user,
            "state": lambda row: row.state,
        },
        sorts={"topic": lambda row: row.topic, "client": lambda row: row.client, "delay": lambda row: row.delay},
        kinds={},
    )

    return [
        Operation(
            method="GET", path="/wills", id="listWills", tag="subscriptions",
            text="Wills: messages that are published for clients that are lost. Never their bodies.",
            handler=parts.lists.of(wills), answer=Page[Will], parameters=wills.parameters, errors=(503,), watched=True,
        ),
        Operation(
            method="GET", path="/wills/{id}", id="getWill", tag="subscriptions", text="A will, without its body.",
            handler=wills.getter("will", "id"), answer=Will, errors=(503,),
        ),
    ]  # fmt: skip


def shown_will(caller: Caller, row: Will) -> Will | None:
    """Return the row if it is the caller's own, or if the caller may view its topic."""
    return row if caller.views(row.topic) or caller.owns(row.user) else None
