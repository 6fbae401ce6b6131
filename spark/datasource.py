"""The data source's name and its two ends."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark.options import checked
from spark.schema import DDL
from spark.sink import AmqpStreamWriter
from spark.source import AmqpStreamReader


class AmqpDataSource(DataSource):
    """format("amqp"). Options of the source: url, address, spool, subscription, container, credit, spoolLimit,
    maxRowsPerTrigger; of the sink: url, address, sinkId. Others are refused. docs/spark.md explains them."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return AmqpStreamReader(checked(dict(self.options), "source"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return AmqpStreamWriter(checked(dict(self.options), "sink"))
