"""`stats`: numbers of addresses over the last day, and of all addresses of an address space together."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import msgspec

from enmasse.api.types import History, Sample, SampledRates, Totals
from services.console.errors import unknown
from services.console.following.address_history import COARSE, DAY, FINE, HOUR, AddressHistory, Point
from services.console.following.traffic import moment
from services.console.rest.components import Components
from services.console.rest.operations import Answer, Call, Operation, Parameter

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
            raise unknown(f"address {call.name()[:200]!r}")
        return Answer(History(stats=row.stats, **_past(live.history, parts.inside(row.name), minutes)))

    async def of_all(call: Call) -> Answer:
        minutes = call.parameters().get("minutes", HOUR // 60)
        if not call.caller.viewer:  # sums contain addresses that the caller may not view
            raise unknown("such path for you: it needs `view` on all addresses")
        await parts.addresses.fresh()
        return Answer(Totals(**_past(live.totals, parts.space, minutes)))

    return [
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


def _past(history: AddressHistory, name: str, minutes: int) -> dict[str, Any]:
    """Return the fields of Totals."""
    now = time.time()
    interval = FINE if minutes * 60 <= HOUR else COARSE
    points = history.points(name, now - minutes * 60, interval)
    return {"time": moment(now), "interval": interval, "samples": [_sample(at, point) for at, point in points]}


def _sample(at: float, point: Point) -> Sample:
    return Sample(
        time=moment(at) or "",
        messages=_whole(point.messages),
        size=_whole(point.size),
        consumers=_whole(point.consumers),
        producers=_whole(point.producers),
        rates=SampledRates(in_=round(point.in_, 2), out=round(point.out, 2)),
    )


def _whole(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
