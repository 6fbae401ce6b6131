"""`messages` of queues, and `jobs`, the work on many of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from enmasse.api.types import Address, Job, Message, Move, NewMessage, Page, Selected
from enmasse.model.address_types import TYPES
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown
from services.console.jobs import queue_messages
from services.console.jobs.jobs import Running
from services.console.jobs.queue_messages import MessagePlace, Order
from services.console.rest.components import Components
from services.console.rest.operations import Answer, Call, Operation, Parameter

S = TypeVar("S", bound=Selected)
Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
LIMIT, BODY = 50, 4096
IDS = 10_000
Kind = Literal["purge", "remove", "move", "redrive"]


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration, live = parts.configuration, parts.live

    def seen(caller: Caller, name: str) -> Address:
        row = configuration.addresses.get(name)
        if row is None or not caller.views(name):
            raise unknown(f"address {name[:200]!r}")
        return row

    def queue(caller: Caller, name: str) -> tuple[Address, list[str]]:
        """Return a queue and its brokers."""
        row = seen(caller, name)
        if row.type is None or not TYPES[row.type].takes_dead_letters:
            text = f"{name[:200]!r} has the type {row.type}; messages of queues only can be looked at and moved"
            raise RequestError("console.change.refused", text)
        return row, configuration.brokers_of(name)

    def managed(caller: Caller, name: str) -> tuple[Address, list[str]]:
        found = queue(caller, name)
        if not caller.may("manage", name):
            raise RequestError("console.permission.denied", f"this needs the permission `manage` on {name!r}")
        return found

    async def browse(call: Call) -> Answer:
        given = call.parameters()
        row, brokers = queue(call.caller, call.name())
        after = MessagePlace.read(given["after"]) if "after" in given else None
        with parts.browses.held(call.caller):
            items, following = await queue_messages.browse(
                live, row.name, brokers, after, given.get("limit", LIMIT), given.get("bytes", BODY),
                bodies=call.caller.may("recv", row.name),
            )  # fmt: skip
        return Answer(Page(items=items, next=following, total=row.stats.messages or len(items)))

    async def send(call: Call) -> Answer:
        call.parameters()
        new = await call.body(NewMessage)
        row = seen(call.caller, call.name())
        if not call.caller.may("send", row.name):
            raise RequestError("console.permission.denied", f"this needs the permission `send` on {row.name!r}")
        await queue_messages.send(live, row.name, new, call.caller.name)
        return Answer(status=204)

    def origins(caller: Caller, name: str) -> list[str]:
        """Return the addresses that name this one for their dead letters, and to which the caller may redrive them."""
        entries = ((row.name, row.entry) for _, row in configuration.addresses if caller.may("manage", row.name))
        return [
            source
            for source, entry in entries
            if isinstance(entry, dict) and name in (entry.get("deadletter"), entry.get("expiry"))
        ]

    async def begin(kind: Kind, shape: type[Selected], call: Call) -> Answer:
        call.parameters()
        wanted = await call.body(shape)
        row, brokers = managed(call.caller, call.name())
        to = ""
        if isinstance(wanted, Move):
            to = wanted.to
            managed(call.caller, to)
        if len(wanted.ids) > IDS:
            raise RequestError("console.request.too-large", f"there are more than {IDS} ids")
        if wanted.ids and wanted.selector:
            raise RequestError("console.request.invalid", "the body: give `ids` or `selector`, not both")
        if kind == "purge" and (wanted.ids or wanted.selector or wanted.limit):
            raise RequestError("console.request.invalid", "the body: purge removes everything; use `remove`")
        homes = origins(call.caller, row.name) if kind == "redrive" else []
        ids = [MessagePlace.read(each) for each in wanted.ids] or None
        order = Order(row.name, kind, ids, wanted.selector, wanted.limit, to, homes)
        work = partial(queue_messages.work, live, configuration.nearest, brokers, order)

        async def followed(running: Running) -> None:
            with live.followed():
                await work(running)

        job = await parts.jobs.begin(
            call.caller,
            Job(
                id="", address=row.name, operation=kind, state="running", total=_total(row, wanted),
                user=call.caller.name,
            ),
            followed,
            partial(queue_messages.audit, caller=call.caller, host=call.host),
        )  # fmt: skip
        return Answer(job.now, 202 if job.is_running else 200)

    def visible(caller: Caller) -> Sequence[Running]:
        return [each for each in parts.jobs.all() if caller.views(each.first.address)]

    def job(call: Call) -> Running:
        found = parts.jobs.get(call.name("id"))
        if found is None or not call.caller.views(found.first.address):
            raise unknown(f"job {call.name('id')[:100]!r}")
        return found

    async def jobs(call: Call) -> Answer:
        call.parameters()
        rows = [each.now for each in visible(call.caller)]
        return Answer(Page(items=rows, next=None, total=len(rows)))

    async def get_job(call: Call) -> Answer:
        call.parameters()
        return Answer(job(call).now)

    async def cancel(call: Call) -> Answer:
        call.parameters()
        found = job(call)
        if not call.caller.may("manage", found.first.address):
            raise RequestError("console.permission.denied", f"this needs `manage` on {found.first.address!r}")
        if found.is_running:
            found.stopped = True
        return Answer(status=204)

    def work(kind: Kind, text: str, shape: Any = Selected) -> Operation:
        return Operation(
            method="POST", path=f"/addresses/{{name}}/{kind}", id=f"{kind}Messages", tag="messages", text=text,
            handler=partial(begin, kind, shape), body=shape, answer=Job, status=202, errors=(413, 422, 502, 503),
        )  # fmt: skip

    return [
        Operation(
            method="GET", path="/addresses/{name}/messages", id="listMessages", tag="messages",
            text="The waiting messages of a queue, oldest first. Bodies need `recv`.",
            handler=browse, answer=Page[Message], errors=(422, 502, 503),
            parameters=(
                Parameter("limit", "messages in the answer, at most 200", Limit),
                Parameter("after", "`next` of the page before, or the id of a message"),
                Parameter("bytes", "bytes of a body, at most 1 MiB", Bytes),
            ),
        ),
        Operation(
            method="POST", path="/addresses/{name}/messages", id="sendMessage", tag="messages",
            text="Send a message, and wait until it is accepted.",
            handler=send, body=NewMessage, status=204, errors=(422, 502, 503),
        ),
        work("remove", "Remove messages."),
        work("purge", "Remove all waiting messages. Consumers keep those that they have."),
        work("move", "Move messages to another queue.", Move),
        work("redrive", "Send dead letters back to the queues they came from."),
        Operation(
            method="GET", path="/jobs", id="listJobs", tag="messages", text="Work on messages.",
            handler=jobs, answer=Page[Job],
        ),
        Operation(
            method="GET", path="/jobs/{id}", id="getJob", tag="messages", text="Work on messages.",
            handler=get_job, answer=Job,
        ),
        Operation(
            method="DELETE", path="/jobs/{id}", id="cancelJob", tag="messages",
            text="Stop work on messages. Messages that it has dealt with are not put back.", handler=cancel, status=204,
        ),
    ]  # fmt: skip


def _total(row: Address, wanted: Selected) -> int | None:
    if wanted.ids:
        return len(wanted.ids)
    if wanted.selector or row.stats.messages is None:
        return None
    return row.stats.messages if wanted.limit is None else min(wanted.limit, row.stats.messages)
