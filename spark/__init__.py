"""AMQP for Spark Structured Streaming: `spark.dataSource.register(AmqpDataSource)`, then format("amqp")."""

from spark.datasource import AmqpDataSource

__all__ = ["AmqpDataSource"]
