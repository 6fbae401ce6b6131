"""`wills`: what the last-will service is to publish for clients that are lost."""

from __future__ import annotations

import asyncio
from contextlib import closing

import msgspec

from enmasse.api.types import Page, Will
from enmasse.control import ControlError
from enmasse.control.jsonmessage import body
from enmasse.identity.owned import owner
from enmasse.identity.principal import ANONYMOUS
from enmasse.model import sessions as wire
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.following.polled import Polled
from services.console.rest.components import Components
from services.console.rest.listing import Listing
from services.console.rest.operations import Answer, Answered, Call, Operation

SECONDS = 20.0
AWAY = "the last-will service does not answer; try again"
WINDOW = 10


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""

    async def all_wills() -> dict[str, Will]:
        connection = await parts.live.router.reached()
        found: dict[str, Will] = {}
        try:
            with closing(connection.receiver(wire.WILLS, window=WINDOW)) as receiver:
                async with asyncio.timeout(SECONDS):
                    async for delivery in receiver:
                        part = msgspec.json.decode(body(delivery), type=wire.Wills)
                        found.update((row.id, _will(row)) for row in part.wills)
        except ControlError as error:
            if error.condition != "detached" or not connection.is_open:
                raise RequestError("console.service.unavailable", AWAY) from None
        except (TimeoutError, msgspec.DecodeError):
            raise RequestError("console.service.unavailable", AWAY) from None
        return found

    wills: Listing[Will] = Listing(
        rows=Polled(all_wills),
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

    async def listed(call: Call) -> Answered:
        return await parts.lists.answer(wills, call)

    async def shown(call: Call) -> Answer:
        call.parameters()
        return Answer(await wills.one(call.caller, call.name("id"), "will"))

    return [
        Operation(
            method="GET", path="/wills", id="listWills", tag="subscriptions",
            text="Wills: messages that are published for clients that are lost. Never their bodies.", handler=listed,
            answer=Page[Will], parameters=wills.parameters, errors=(503,), watched=True,
        ),
        Operation(
            method="GET", path="/wills/{id}", id="getWill", tag="subscriptions", text="A will, without its body.",
            handler=shown, answer=Will, errors=(503,),
        ),
    ]  # fmt: skip


def shown_will(caller: Caller, row: Will) -> Will | None:
    """Return the row if it is the caller's own, or if the caller may view its topic."""
    return row if caller.views(row.topic) or caller.owns(row.user) else None


def _will(row: wire.WillRow) -> Will:
    user = owner(row.client).principal.full_name if row.mqtt else None
    return Will(
        id=row.id, client=owner(row.client).client if row.mqtt else row.client,
        user=None if user == ANONYMOUS else user, topic=row.topic, qos=row.qos, retain=row.retain, delay=row.delay,
        size=row.size, state=row.state, due=row.due,
    )  # fmt: skip
