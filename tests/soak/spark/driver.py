"""The driver that is killed: `python -m tests.soak.spark.driver URL WORK`.

Three queries that are started again whenever they fail: `raw` to Parquet; `sent` through the sink to `back`; and
`back` to Parquet. Nothing after the source looks for duplicates.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from enmasse.spark.session import session

TARGETS = {"raw": "", "sent": "back", "back": ""}
"""Address → the address to which its messages are sent; empty: they become Parquet."""
FLIGHT = "back"
"""The address whose spool executors read over Arrow Flight, because they do not see its files."""
LIMIT = "131072"
"""Bytes of a spool: its segments have half of that, so commits delete some of them all the time."""


def start(spark: Any, url: str, address: str, work: Path, target: str = "") -> Any:
    """The running query from an address to Parquet in WORK/<address>/out, or to the address `target`."""
    folder = work / address
    options = {"url": url, "address": address, "spool": str(folder / "spool"), "spoolLimit": LIMIT}
    if address == FLIGHT:
        options["flightHost"] = "127.0.0.1"
    rows = spark.readStream.format("amqp").options(**options).load()
    writer = rows.select("message_id", "body").writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if target:
        return writer.format("amqp").options(url=url, address=target).start()
    return writer.format("parquet").option("path", str(folder / "out")).start()


def main() -> None:
    url, work = sys.argv[1], Path(sys.argv[2])
    spark = session("soak")
    queries: dict[str, Any] = {}
    while True:
        for address, target in TARGETS.items():
            query = queries.get(address)
            if query is None or not query.isActive:
                if query is not None:
                    print(f"{address}: {str(query.exception())[:400]!r}", flush=True)
                queries[address] = start(spark, url, address, work, target)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
