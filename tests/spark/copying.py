"""A driver to be killed: `python -m tests.spark.copying URL ADDRESS WORK` copies messages to files until it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from enmasse.spark.session import session


def copy(spark: Any, url: str, address: str, work: Path) -> Any:
    """The running query: from the address to JSON files in WORK/out."""
    source = spark.readStream.format("amqp").option("url", url).option("address", address)
    data = source.option("spool", str(work / "spool")).schema("offset bigint, message_id string, text string").load()
    sink = data.writeStream.format("json").option("path", str(work / "out"))
    return sink.option("checkpointLocation", str(work / "checkpoint")).start()


if __name__ == "__main__":
    url, address, work = sys.argv[1:]
    query = copy(session("killed"), url, address, Path(work))
    print("running", flush=True)
    query.awaitTermination()
