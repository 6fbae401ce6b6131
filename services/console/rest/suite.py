"""The suite: overview, components, errors of the configuration."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import msgspec

import enmasse
from enmasse.api.types import Change, ChangeResult, Component, Counters, Fault, Overview, Page, Rates
from enmasse.model.configuration import PLANS
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.spaces import FOLDER, split_file
from enmasse.process.service_table import CONTROL
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown, unknown_address
from services.console.following.configuration import OF_ALL_SPACES
from services.console.following.polled import Polled
from services.console.following.redaction import shown_address, shown_faults
from services.console.following.rows import Rows
from services.console.following.traffic import added
from services.console.rest import writing
from services.console.rest.api_operations import Answer, Call, Operation
from services.console.rest.components import Components
from services.console.rest.listing import Listing

ENTRIES_A_TURN = 50
"""Entries of a change that are looked at before other requests have a go."""
SHOWN = 20
"""Addresses in the overview."""


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `GET config`. `files`: file → SHA-256 of the content in force; `errors`: of what is not."""

    files: dict[str, str]
    errors: list[Fault]


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration = parts.configuration
    one_check = asyncio.Lock()  # at a time for an address space: they are long, and the service makes one after another
    none: Rows[Component] = Rows(tuple, lambda _: None)
    rows = none if parts.supervisor is None else Polled(parts.supervisor.components)
    listing: Listing[Component] = Listing(
        rows=rows,
        shown=lambda caller, row: row if parts.gate.oversees(caller) else None,
        filters={"name": lambda row: row.name, "kind": lambda row: row.kind, "ready": lambda row: row.ready},
        sorts={"kind": lambda row: row.kind},
        kinds={"ready": bool},
    )

    def concerns(caller: Caller, file: str) -> bool:
        """Return whether a file, or the folder of one, concerns a caller: who views the default space does not learn
        which others there are, but for the operator."""
        space = split_file(file).space
        if parts.space != DEFAULT_SPACE:
            return space == parts.space
        return caller.is_operator or (space == DEFAULT_SPACE and not file.startswith((FOLDER, PLANS)))

    def errors(caller: Caller) -> list[Fault]:
        """Return what is wrong with the files, as far as it concerns a caller."""
        if not caller.viewer:
            return []
        return [error for error in configuration.errors if concerns(caller, error.file)]

    async def overview(call: Call) -> Answer:
        call.parameters()
        caller = call.caller
        addresses = parts.addresses
        await addresses.fresh()
        with contextlib.suppress(RequestError):  # those of before, then
            await rows.fresh()
        shown = (shown_address(addresses, caller, row) for _, row in addresses)
        visible = [row for row in shown if row is not None]
        phases: dict[str, int] = dict.fromkeys(configuration.phases, 0)
        for row in visible:
            phases[row.phase] += 1
        components = [row for _, row in rows] if parts.space == DEFAULT_SPACE and parts.gate.oversees(caller) else []
        not_ready = (row for row in visible if not row.ready)
        away = [each for each in components if not (each.ready or each.leaving)]
        degraded = [each.name for each in away if each.redundant or each.kind in CONTROL]
        return Answer(
            Overview(
                version=enmasse.__version__,
                ready=all(row.ready or row.phase == "Terminating" for row in visible) and len(degraded) == len(away),
                degraded=degraded,
                phases=phases,
                not_ready=list(itertools.islice(not_ready, SHOWN)),
                components=components,
                errors=errors(caller),
                messages=sum(row.stats.messages or 0 for row in visible),
                size=sum(row.stats.size or 0 for row in visible),
                consumers=sum(row.stats.consumers or 0 for row in visible),
                producers=sum(row.stats.producers or 0 for row in visible),
                rates=added(Rates, (row.stats.rates for row in visible)),
                totals=added(Counters, (row.stats.totals for row in visible)),
                connections=parts.live.traffic.clients(parts.space) if caller.viewer else 0,
            )
        )

    async def component(call: Call) -> Answer:
        call.parameters()
        await rows.fresh()
        row = rows.get(call.name())
        if row is None or not parts.gate.oversees(call.caller):
            raise unknown(f"component {call.name()[:200]!r}")
        return Answer(row)

    async def config(call: Call) -> Answer:
        call.parameters()
        if not call.caller.viewer:
            raise unknown("configuration")
        files = {file: hash for file, hash in configuration.files.items() if concerns(call.caller, file)}
        return Answer(Configured(files=files, errors=errors(call.caller)))

    async def checked(call: Call) -> Answer:
        call.parameters()
        if not call.caller.manager:  # before a body that may be long
            raise RequestError("console.permission.denied", "this needs the permission `manage`")
        change = await call.body(Change)
        async with one_check:
            return await check(call, change)

    async def check(call: Call, change: Change) -> Answer:
        foreign = [kind for kind in (change.kind, *change.with_) if kind in OF_ALL_SPACES]
        if foreign and parts.space != DEFAULT_SPACE:
            raise RequestError("console.permission.denied", f"{foreign[0]} are the operator's, of all address spaces")
        if change.kind == "addresses":
            for number, name in enumerate((*change.set, *change.remove)):
                if number % ENTRIES_A_TURN == 0:
                    await asyncio.sleep(0)
                if not (call.caller.views(name) and call.caller.may("manage", name)):
                    raise unknown_address(name)
                if name in change.set:
                    writing.may_have(call.caller, name, change.set[name])
        else:
            writing.administers(call.caller)
        change = msgspec.structs.replace(change, check=True)
        result = await configuration.configure(change, call.caller, call.host)
        errors: list[Fault] = []
        for start in range(0, len(result.errors), ENTRIES_A_TURN):
            some = result.errors[start : start + ENTRIES_A_TURN]
            errors += shown_faults(parts.addresses, call.caller, change.kind, some)
            await asyncio.sleep(0)
        return Answer(msgspec.structs.replace(result, errors=errors))

    return [
        Operation(
            method="POST", path="/config", id="checkConfig", tag="config",
            text="Check a change of the configuration, without making it.",
            handler=checked, body=Change, answer=ChangeResult, errors=(404, 502),
        ),
        Operation(
            method="GET", path="/overview", id="getOverview", text="The suite at a glance.",
            handler=overview, answer=Overview,
        ),
        Operation(
            method="GET", path="/components", id="listComponents", text="The processes of the suite.",
            handler=parts.lists.of(listing), answer=Page[Component], parameters=listing.parameters, watched=True,
            in_spaces=False,
        ),
        Operation(
            method="GET", path="/components/{name}", id="getComponent", text="A process of the suite.",
            handler=component, answer=Component, in_spaces=False,
        ),
        Operation(
            method="GET", path="/config", id="getConfig", tag="config", text="What is in force, and what is wrong.",
            handler=config, answer=Configured, errors=(404,),
        ),
    ]  # fmt: skip
