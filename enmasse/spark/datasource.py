"""The data source's name and its two ends."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from enmasse.spark.errors import QueryError, plainly
from enmasse.spark.options import KNOWN, OptionError, checked
from enmasse.spark.schema.message_columns import DDL
from enmasse.spark.schema.value_column import Values, chosen, columns_of, format_of
from enmasse.spark.sink.sink import AmqpStreamWriter, AmqpWriter, RowStreamWriter, sink_of
from enmasse.spark.source.browse import AmqpReader, SelectingReader
from enmasse.spark.source.earlier import EarlierStreamReader
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.spark.versions import HAS_ARROW_SINKS, HAS_LIMITS


class AmqpDataSource(DataSource):
    """format("amqp"). Options of the source: url, address, spool, subscription, container, credit, spoolLimit,
    and more; of the sink: url, address, sinkId and more. Others are refused. docs/spark.md explains them."""

    _reads = AmqpReader

    @classmethod
    def name(cls) -> str:
        """Return the name for format(…)."""
        return "amqp"

    @plainly()
    def schema(self) -> str:
        """Return the columns.

        Spark asks for them at load(), in the user's program: there a wrong option of a source is refused (OptionError).
        Spark does not ask a sink.
        """
        if not self._streams():
            AmqpReader(checked(dict(self.options), "table"))
            return DDL
        options = checked(dict(self.options), "source")
        AmqpStreamReader(options)
        return columns_of(options)

    def _streams(self) -> bool:
        """Return whether the options are those of a stream, which needs a spool: Spark does not tell what it asks for.
        A source without one is refused at the start of its query."""
        own = {name.lower() for name in KNOWN["source"]} - {name.lower() for name in KNOWN["table"]}
        return any(str(name).lower() in own for name in self.options)

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the end of `read` in Spark. Raises OptionError."""
        return self._reads(checked(dict(self.options), "table"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the source's end in Spark; of wrong options RefusedReader."""
        try:
            options = checked(dict(self.options), "source")
            columns, form = chosen(options, schema), format_of(options)
            values = Values(form, schema) if form and "value" in columns else None
            return (AmqpStreamReader if HAS_LIMITS else EarlierStreamReader)(options, values, columns)
        except QueryError as error:
            return RefusedReader(error)

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the end of `write` in Spark. Raises OptionError, also for mode overwrite."""
        if overwrite:
            raise OptionError('amqp sink: messages of an address cannot be overwritten: write .mode("append")')
        return AmqpWriter(sink_of(checked(dict(self.options), "table"), schema))

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the end of `writeStream` in Spark; `overwrite` (output mode complete) has no effect on messages.

        Raises OptionError.
        """
        sink = sink_of(checked(dict(self.options), "sink"), schema)
        if sink.write_id:
            raise OptionError('amqp sink: the option "writeId" is for write: a stream names its batches itself')
        return AmqpStreamWriter(sink) if HAS_ARROW_SINKS else RowStreamWriter(sink, schema)


class RefusedReader(DataSourceStreamReader):
    """The source's end of a query that has wrong options: whatever Spark asks for first raises the reason. An error of
    `streamReader` itself would be lost: PySpark's process ends with an UnboundLocalError of its own instead."""

    def __init__(self, reason: QueryError) -> None:
        self.reason = reason

    @plainly()
    def initialOffset(self) -> Any:
        """Raise the reason."""
        raise self.reason

    @plainly()
    def latestOffset(self, *_: Any) -> Any:
        """Raise the reason. Spark 4.0 and 4.1 give no arguments."""
        raise self.reason

    @plainly()
    def getDefaultReadLimit(self) -> Any:
        """Raise the reason."""
        raise self.reason

    @plainly()
    def partitions(self, start: Any, end: Any) -> Any:
        """Raise the reason."""
        raise self.reason

    def read(self, partition: Any) -> Any:
        """Raise the reason."""
        raise self.reason


class SelectingDataSource(AmqpDataSource):
    """AmqpDataSource that gives filters of `read` to the server as a selector. For sessions that have
    spark.sql.python.filterPushdown.enabled."""

    _reads = SelectingReader
