"""`queries`: the Spark pipeline beside the suite."""

from __future__ import annotations

from enmasse import spark_jobs
from enmasse.api.types import Page, Query, QueryWindows
from services.console.errors import unknown
from services.console.following.polled import Polled
from services.console.following.supervisor import Pipeline
from services.console.rest.api_operations import Answer, Call, Operation
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""

    async def pipeline() -> Pipeline:
        return Pipeline() if parts.supervisor is None else await parts.supervisor.pipeline()

    async def queries() -> dict[str, Query]:
        return {each.name: _row(each) for each in (await pipeline()).queries}

    listing: Listing[Query] = Listing(
        rows=Polled(queries),
        shown=lambda caller, row: row if parts.gate.oversees(caller) else None,
        filters={"name": lambda row: row.name},
        sorts={"behind": lambda row: row.behind, "rowsPerSecond": lambda row: row.rows_per_second},
        kinds={},
    )

    async def windows(call: Call) -> Answer:
        call.parameters()
        name = call.name()
        found = await pipeline() if parts.gate.oversees(call.caller) else Pipeline()
        if all(query.name != name for query in found.queries):
            raise unknown(f"query {name[:200]!r}")
        return Answer(QueryWindows(name=name, windows=found.windows))

    return [
        Operation(
            method="GET", path="/queries", id="listQueries", tag="queries",
            text="The queries of the Spark pipeline beside the suite: progress, lag and rates.",
            handler=parts.lists.of(listing), answer=Page[Query], parameters=listing.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/queries/{name}", id="getQuery", tag="queries", text="A query.",
            handler=listing.getter("query"), answer=Query,
        ),
        Operation(
            method="GET", path="/queries/{name}/windows", id="getWindows", tag="queries",
            text="The newest windows of a query.", handler=windows, answer=QueryWindows, errors=(404,),
        ),
    ]  # fmt: skip


def _row(query: spark_jobs.Query) -> Query:
    return Query(
        name=query.name, batch=query.batch if query.batch >= 0 else None, at=query.at or None, rows=query.rows,
        rows_per_second=query.rows_per_second, behind=query.behind, oldest=query.oldest_seconds,
    )  # fmt: skip
