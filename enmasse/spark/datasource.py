"""The data source's name and its two ends."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from enmasse.spark.errors import plainly
from enmasse.spark.options import OptionError, checked
from enmasse.spark.sink import AmqpStreamWriter, AmqpWriter, sink_of
from enmasse.spark.source import AmqpStreamReader
from enmasse.spark.values import Values, columns_of, format_of


class AmqpDataSource(DataSource):
    """format("amqp"). Options of the source: url, address, spool, subscription, container, credit, spoolLimit,
    and more; of the sink: url, address, sinkId and more. Others are refused. docs/spark.md explains them."""

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
        options = checked(dict(self.options), "source")
        AmqpStreamReader(options)
        return columns_of(options)

    @plainly()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the source's end in Spark. Raises OptionError."""
        options = checked(dict(self.options), "source")
        form = format_of(options)
        return AmqpStreamReader(options, Values(form, schema) if form else None)

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the end of `write` in Spark. Raises OptionError, also for mode overwrite."""
        if overwrite:
            raise OptionError('amqp sink: messages of an address cannot be overwritten: write .mode("append")')
        return AmqpWriter(sink_of(checked(dict(self.options), "sink"), schema))

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the end of `writeStream` in Spark; `overwrite` (output mode complete) has no effect on messages.

        Raises OptionError.
        """
        return AmqpStreamWriter(sink_of(checked(dict(self.options), "sink"), schema))
