"""A driver on a cluster (arguments: URL SOURCE TARGET WORK) that sends what the queue SOURCE has to TARGET.

Nothing is shared: the spool and the checkpoint are the driver's, the results go to an address.
"""

from __future__ import annotations

import sys

from enmasse.spark.session import session

if __name__ == "__main__":
    url, source, target, work = sys.argv[1:]
    spark = session("resending")
    options = {"url": url, "address": source, "spool": f"{work}/spool", "flightHost": "127.0.0.1"}
    data = spark.readStream.format("amqp").options(**options, maxRowsPerTrigger="40").load()
    sink = data.select("message_id", "body").writeStream.format("amqp").option("url", url).option("address", target)
    query = sink.option("checkpointLocation", f"{work}/checkpoint").start()
    query.awaitTermination()
