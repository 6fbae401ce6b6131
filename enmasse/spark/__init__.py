"""AMQP for Spark Structured Streaming: `spark.dataSource.register(AmqpDataSource)`, then format("amqp").

`receiver` is a process of its own that fills a spool; `source` and `sink` are the two ends inside Spark. `session`,
`stages`, `scoring` and the tables are for applications on them, as the telemetry pipeline in the folder `spark` is.
Imports `enmasse`, no service; the receiver's half does without PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enmasse.spark.datasource import AmqpDataSource
    from enmasse.spark.sink.message_ids import repeatable
    from enmasse.spark.sql_tables import register_addresses

__all__ = ["AmqpDataSource", "register_addresses", "repeatable"]


def __getattr__(name: str) -> Any:
    """PySpark is imported with the data source, not with the package: the receiver process does without it."""
    if name == "AmqpDataSource":
        from enmasse.spark.datasource import AmqpDataSource

        return AmqpDataSource
    if name == "repeatable":
        from enmasse.spark.sink.message_ids import repeatable

        return repeatable
    if name == "register_addresses":
        from enmasse.spark.sql_tables import register_addresses

        return register_addresses
    raise AttributeError(f"module 'enmasse.spark' has no attribute {name!r}")
