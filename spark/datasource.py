"""The data source's name and its two ends."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark.schema import DDL
from spark.sink import AmqpStreamWriter
from spark.source import AmqpStreamReader


class AmqpDataSource(DataSource):
    """format("amqp"). Options of the source: url, address, spool, subscription, container, credit, spoolLimit,
    maxRowsPerTrigger; of the sink: url, address, sinkId. docs/spark.md explains them."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return AmqpStreamReader(lowered(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return AmqpStreamWriter(lowered(self.options))


def lowered(options: Any) -> dict[str, str]:
    """Spark's options are case-insensitive; ours are looked up in lower case."""
    return {str(key).lower(): str(value) for key, value in dict(options).items()}
