"""`messages` of queues, and `jobs`, the work on many of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from enmasse.api.types import Address, Job, Message, Move, NewMessage, Page, Selected
from enmasse.identity.annotations import DEATH, ORIGINAL_ADDRESS, ORIGINAL_QUEUE
from enmasse.model.address_types import TYPES
from enmasse.model.names import DEFAULT_SPACE, AddressName, in_space, split_name
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown, unknown_address
from services.console.jobs import queue_messages
from services.console.jobs.jobs import Running
from services.console.jobs.queue_messages import MessagePlace, Order
from services.console.rest.api_operations import Answer, Call, Operation, Parameter
from services.console.rest.components import Components

S = TypeVar("S", bound=Selected)
Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Text = Annotated[str, msgspec.Meta(max_length=8 << 10)]
LIMIT, BODY = 50, 4096
IDS = 10_000
ADDRESSES_OF_BROKERS = (ORIGINAL_ADDRESS, ORIGINAL_QUEUE)
"""Annotations in which brokers state names."""
Kind = Literal["purge", "remove", "move", "redrive"]


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration, live = parts.configuration, parts.live

    def seen(caller: Caller, name: str) -> Address:
        row = parts.addresses.get(name)
        if row is None or not caller.views(name):
            raise unknown_address(name, parts.addresses, caller.views)
        return row

    def queue(caller: Caller, name: str) -> tuple[Address, list[str]]:
        """Return a queue and its brokers."""
        row = seen(caller, name)
        if row.type is None or not TYPES[row.type].takes_dead_letters:
            text = f"{name[:200]!r} has the type {row.type}; only queues keep messages to be looked at, moved or purged"
            raise RequestError("console.change.refused", text)
        return row, configuration.brokers_of(parts.inside(name))

    def managed(caller: Caller, name: str) -> tuple[Address, list[str]]:
        found = queue(caller, name)
        if not caller.may("manage", name):
            raise RequestError("console.permission.denied", f"this needs the permission `manage` on {name!r}")
        return found

    async def browse(call: Call) -> Answer:
        given = call.parameters()
        row, brokers = queue(call.caller, call.name())
        if "selector" in given and not (call.caller.may("recv", row.name) or call.caller.may("manage", row.name)):
            text = f"a selector needs the permission `recv` or `manage` on {row.name!r}, as on AMQP"
            raise RequestError("console.permission.denied", text)
        after = MessagePlace.read(given["after"]) if "after" in given else None
        with parts.browses.held(call.caller):
            items, following = await queue_messages.browse(
                live, parts.inside(row.name), brokers, after, given.get("limit", LIMIT), given.get("bytes", BODY),
                given.get("selector", ""), bodies=call.caller.may("recv", row.name),
            )  # fmt: skip
        items = [in_the_space(each) for each in items]
        total = len(items) if "selector" in given else row.stats.messages or len(items)
        return Answer(Page(items=items, next=following, total=total))

    def in_the_space(message: Message) -> Message:
        """Return a message with the names that clients of the space use, where brokers have written full ones."""
        if parts.space == DEFAULT_SPACE:
            return message
        stated = {
            key: in_space(parts.space, value) if isinstance(value, str) and key in ADDRESSES_OF_BROKERS else value
            for key, value in message.annotations.items()
            if key != DEATH
        }
        deaths = [
            msgspec.structs.replace(
                each,
                source=None if each.source is None else in_space(parts.space, each.source),
                description=None if each.description is None else in_space(parts.space, each.description),
            )
            for each in message.deaths
        ]
        return msgspec.structs.replace(message, annotations=stated, deaths=deaths)

    def sent_to(call: Call) -> Address:
        """Return the address that the caller may send to. Raises RequestError."""
        row = seen(call.caller, call.name())
        if not call.caller.may("send", row.name):
            raise RequestError("console.permission.denied", f"this needs the permission `send` on {row.name!r}")
        return row

    async def send(call: Call) -> Answer:
        call.parameters()
        sent_to(call)  # before a body that may be long
        new = await call.body(NewMessage)
        row = sent_to(call)
        await queue_messages.send(live, parts.inside(row.name), row.name, new, call.caller.name)
        return Answer(status=204)

    def origins(caller: Caller, name: str) -> list[str]:
        """Return the addresses that name this one for their dead letters, and to which the caller may redrive them."""
        entries = ((row.name, row.entry) for _, row in parts.addresses if caller.may("manage", row.name))
        return [
            source
            for source, entry in entries
            if isinstance(entry, dict) and name in (entry.get("deadletter"), entry.get("expiry"))
        ]

    async def begin(kind: Kind, shape: type[Selected], call: Call) -> Answer:
        call.parameters()
        managed(call.caller, call.name())
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
        homes = [parts.inside(each) for each in origins(call.caller, row.name)] if kind == "redrive" else []
        inside = parts.inside(row.name)
        ids = [MessagePlace.read(each) for each in wanted.ids] or None
        order = Order(inside, kind, ids, wanted.selector, wanted.limit, parts.inside(to) if to else "", homes)
        work = partial(queue_messages.work, live, configuration.nearest, brokers, order)

        async def followed(running: Running) -> None:
            with live.followed():
                await work(running)

        job = await parts.jobs.begin(
            call.caller,
            Job(
                id="", address=inside, operation=kind, state="running", total=_total(row, wanted),
                user=call.caller.name,
            ),
            followed,
            partial(queue_messages.audit, caller=call.caller, host=call.host),
        )  # fmt: skip
        return Answer(as_seen(job), 202 if job.is_running else 200)

    def as_seen(job: Running) -> Job:
        """Return a job with the names of the space."""
        now, space = job.now, parts.space
        return msgspec.structs.replace(now, address=in_space(space, now.address), detail=in_space(space, now.detail))

    def of(job: Running) -> str | None:
        """Return the address of a job; None: it is one of another space."""
        space, local = split_name(AddressName(job.first.address))
        return local if space == parts.space else None

    def visible(caller: Caller) -> Sequence[Running]:
        return [each for each in parts.jobs.all() if (name := of(each)) is not None and caller.views(name)]

    def job(call: Call) -> Running:
        found = parts.jobs.get(call.name("id"))
        name = None if found is None else of(found)
        if found is None or name is None or not call.caller.views(name):
            raise unknown(f"job {call.name('id')[:100]!r}")
        return found

    async def jobs(call: Call) -> Answer:
        call.parameters()
        rows = [as_seen(each) for each in visible(call.caller)]
        return Answer(Page(items=rows, next=None, total=len(rows)))

    async def get_job(call: Call) -> Answer:
        call.parameters()
        return Answer(as_seen(job(call)))

    async def cancel(call: Call) -> Answer:
        call.parameters()
        found = job(call)
        name = of(found) or ""
        if not call.caller.may("manage", name):
            raise RequestError("console.permission.denied", f"this needs `manage` on {name!r}")
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
            text="The waiting messages of a queue, oldest first. Bodies need `recv`, a selector that or `manage`.",
            handler=browse, answer=Page[Message], errors=(422, 502, 503),
            parameters=(
                Parameter("limit", "messages in the answer, at most 200", Limit),
                Parameter("after", "`next` of the page before, or the id of a message"),
                Parameter("bytes", "bytes of a body, at most 1 MiB", Bytes),
                Parameter("selector", "only messages that it takes; `total` is the number in this answer then", Text),
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
