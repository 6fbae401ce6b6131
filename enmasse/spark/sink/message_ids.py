"""Message-ids that do not depend on how Spark divides a batch into partitions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import MapType

from enmasse.spark.sink.encoding import KEY


def repeatable(rows: DataFrame) -> DataFrame:
    """Return the rows for the sink, equal ones in one partition, with the column KEY: a hash of all columns.

    The sink then makes message-ids that a repeated batch has again also if Spark divides it in another way, as it does
    on a cluster of another size. Costs a shuffle. A map inside of another column cannot be hashed: Spark refuses it.
    """
    columns: list[Column] = []
    for field in rows.schema.fields:
        column = rows[field.name]
        # Maps have no order of their own.
        columns.append(f.array_sort(f.map_entries(column)) if isinstance(field.dataType, MapType) else column)
    return rows.withColumn(KEY, f.xxhash64(*columns)).repartition(KEY)
