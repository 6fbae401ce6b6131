"""A program that ends with the first rows of an address or topic: `amqp URL ADDRESS` or `kafka HOST:PORT TOPIC`."""

from __future__ import annotations

import os
import sys
import tempfile
import time

from enmasse.spark.session import session


def main() -> None:
    kind, server, name = sys.argv[1:]
    spark = session("first-row")
    with tempfile.TemporaryDirectory() as work:
        if kind == "amqp":
            options = {"url": server, "address": name, "spool": f"{work}/spool"}
        else:
            options = {"kafka.bootstrap.servers": server, "subscribe": name, "startingOffsets": "earliest"}
        data = spark.readStream.format(kind).options(**options).load()
        query = data.writeStream.format("noop").option("checkpointLocation", f"{work}/checkpoint").start()
        while not any(batch["numInputRows"] for batch in query.recentProgress):
            if query.exception() is not None:
                sys.exit(str(query.exception()))
            time.sleep(0.02)
        print("first", flush=True)
        query.stop()
        os._exit(0)  # the end is not measured


if __name__ == "__main__":
    main()
