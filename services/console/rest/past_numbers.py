"""`stats`: numbers of addresses over the last day, of all addresses of an address space together, and of brokers and
routers."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any, Literal

import msgspec

from enmasse.api.types import History, ProcessHistory, ProcessSample, Sample, SampledRates, Totals
from services.console.errors import unknown, unknown_address
from services.console.following.address_history import COARSE, DAY, FINE, HOUR, AddressHistory, Point, ProcessPoint
from services.console.following.followers import past_name
from services.console.following.traffic import moment
from services.console.rest.api_operations import Answer, Call, Handler, Operation, Parameter
from services.console.rest.components import Components

MINUTES = Parameter(
    "minutes",
    "how far back, 60 unless stated: a sample every 10 seconds; beyond an hour one for every 5 minutes",
    Annotated[int, msgspec.Meta(ge=1, le=DAY // 60)],
)


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    live = parts.live

    async def of_address(call: Call) -> Answer:
        minutes = call.parameters().get("minutes", HOUR // 60)
        await parts.addresses.fresh()
        row = parts.addresses.get(call.name())
        if row is None or not call.caller.views(row.name):
            raise unknown_address(call.name())
        return Answer(History(stats=row.stats, **_past(live.history, parts.inside(row.name), minutes)))

    async def of_all(call: Call) -> Answer:
        minutes = call.parameters().get("minutes", HOUR // 60)
        if not call.caller.viewer:  # sums contain addresses that the caller may not view
            raise unknown("such path for you: it needs `view` on all addresses")
        await parts.addresses.fresh()
        return Answer(Totals(**_past(live.totals, parts.space, minutes)))

    def of_process(kind: Literal["broker", "router"]) -> Handler:
        async def past(call: Call) -> Answer:
            minutes = call.parameters().get("minutes", HOUR // 60)
            await live.first_state()
            name, routers = call.name(), {node.component for node in live.routers}
            if not parts.gate.oversees(call.caller) or name not in (live.brokers if kind == "broker" else routers):
                raise unknown(f"{kind} {name[:200]!r}")
            now, interval, points = _points(live.processes, past_name(kind, name), minutes)
            samples = [_process_sample(at, ProcessPoint._make(point)) for at, point in points]
            return Answer(ProcessHistory(time=now, interval=interval, samples=samples))

        return past

    return [
        *(
            Operation(
                method="GET", path=f"/{kind}s/{{name}}/stats", id=f"get{kind.title()}Stats",
                text=f"The numbers of a {kind} over time.", handler=of_process(kind), answer=ProcessHistory,
                parameters=(MINUTES,),
            )
            for kind in ("broker", "router")
        ),
        Operation(
            method="GET", path="/stats", id="getTotals", tag="addresses",
            text="The traffic of all addresses together over time.", handler=of_all, answer=Totals,
            parameters=(MINUTES,),
        ),
        Operation(
            method="GET", path="/addresses/{name}/stats", id="getStats", tag="addresses",
            text="The traffic of an address, now and over time.", handler=of_address, answer=History,
            parameters=(MINUTES,),
        ),
    ]  # fmt: skip


def _points(history: AddressHistory, name: str, minutes: int) -> tuple[str, int, list[tuple[float, Point]]]:
    """Return the time, the interval of samples, and the points of the last `minutes`."""
    now = time.time()
    interval = FINE if minutes * 60 <= HOUR else COARSE
    return moment(now) or "", interval, history.points(name, now - minutes * 60, interval)


def _past(history: AddressHistory, name: str, minutes: int) -> dict[str, Any]:
    """Return the fields of Totals."""
    now, interval, points = _points(history, name, minutes)
    return {"time": now, "interval": interval, "samples": [_sample(at, point) for at, point in points]}


def _sample(at: float, point: Point) -> Sample:
    return Sample(
        time=moment(at) or "",
        messages=_whole(point.messages),
        size=_whole(point.size),
        consumers=_whole(point.consumers),
        producers=_whole(point.producers),
        rates=SampledRates(in_=round(point.in_, 2), out=round(point.out, 2)),
    )


def _process_sample(at: float, point: ProcessPoint) -> ProcessSample:
    return ProcessSample(
        time=moment(at) or "",
        messages=_whole(point.messages),
        memory=_whole(point.memory),
        connections=_whole(point.connections),
        busy=round(point.busy, 3) if math.isfinite(point.busy) else None,
        rates=SampledRates(in_=round(point.in_, 2), out=round(point.out, 2)),
    )


def _whole(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
