"""Stages for telemetry, each usable alone: functions from DataFrame to DataFrame.

`parsed` makes readings of messages: `good` and `bad` ones. `windows`, `late`, `anomalies`, `commands` and `latest` work
on good readings, `enmasse.spark.scoring` on what `parsed` makes. `bad`, `commands` and `as_json` end in rows for the
sink without the option `address`: ADDRESSED.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from enmasse.spark import placeholders
from enmasse.spark.options import OptionError

ADDRESSED = ("address", "body", "content_type", "application_properties", "ttl")
PROPERTIES = "map<string,string>"
FOUND = "device string, us bigint, value double, mean double, deviation double"
"""Columns of anomalies, with the time in microseconds since 1970."""
TIME = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)$"
"""A time with date and zone. Spark takes one without either too, and adds the day and the session's zone."""
FORM = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
BUCKETS = 256
"""Groups of devices, each of which is one value of the state: the state is asked for once a group and batch, not once a
device."""


def parsed(
    messages: DataFrame,
    device: str = "device",
    time: str = "time",
    value: str = "temperature",
    ahead: str = "1 day",
    features: Sequence[str] = (),
) -> DataFrame:
    """Return `device`, `time`, `value`, `offset`, `body` and `error` of each message, and with names of `features` an
    array of these numbers, null where one is missing. `error` is null for a good reading.

    A reading is a JSON object with the named fields: a text that is not empty, a time in ISO 8601 with a zone, a finite
    number. A time before 1970, or later than now by more than `ahead`, is an error: it would move the watermark past
    the readings of all other devices.
    """
    names = dict.fromkeys((device, time, value, *features))
    fields = f.from_json("text", ", ".join(f"`{name}` string" for name in names))
    raw = messages.select(
        "body",
        "offset",
        f.col("error").alias("broken"),
        "text",
        f.col("text").isNull().alias("binary"),
        fields.alias("r"),
    )
    read = raw.select(
        "*",
        f.col("r").getField(device).alias("device"),
        f.try_to_timestamp(f.col("r").getField(time)).alias("time"),
        f.col("r").getField(value).try_cast("double").alias("value"),
    )
    number = f.col("value")
    finite = number.isNotNull() & ~f.isnan(number) & (f.abs(number) != f.lit(math.inf))
    error = (
        f.when(f.col("broken").isNotNull(), f.concat(f.lit("not a message: "), "broken"))
        .when(f.col("binary"), "not text in UTF-8")
        .when(~f.ltrim("text").startswith("{") | ~_alone("text"), "not a JSON object")
        .when(f.coalesce(f.length("device"), f.lit(0)) == 0, f"field {device}: missing or empty")
        .when(f.col("time").isNull(), f"field {time}: missing, or not a time in ISO 8601")
        .when(
            ~f.col("r").getField(time).rlike(TIME),
            f"field {time}: without a date or a zone: write it as 2026-01-02T03:04:05Z",
        )
        .when(f.col("time") < f.lit("1970-01-01T00:00:00Z").cast("timestamp"), f"field {time}: before 1970")
        .when(f.col("time") > f.current_timestamp() + f.expr(f"interval {ahead}"), f"field {time}: in the future")
        .when(~finite, f"field {value}: missing, or not a finite number")
    )
    columns: list[Column] = [f.col(name) for name in ("device", "time", "value", "offset", "body")]
    if features:
        numbers = [f.col("r").getField(name).try_cast("double") for name in features]
        columns.append(f.array(*numbers).alias("features"))
    return read.select(*columns, error.alias("error"))


def _alone(text: str) -> Column:
    """Return whether a text is one JSON value and nothing more. Spark's parser stops at the end of the first value;
    what may follow an element of an array may not follow a member of an object, and the other way round."""
    member = f.try_parse_json(f.concat(f.lit('{"":'), text, f.lit("}")))
    element = f.try_parse_json(f.concat(f.lit("["), text, f.lit("]")))
    return member.isNotNull() & element.isNotNull()


def good(readings: DataFrame, watermark: str) -> DataFrame:
    """Return readings without an error, and without `body` and `error`, with a watermark of event time."""
    return readings.where("error is null").drop("body", "error").withWatermark("time", watermark)


def bad(readings: DataFrame, address: str) -> DataFrame:
    """Return readings with an error as ADDRESSED rows, the reason in the application property DeadLetterReason."""
    rows = readings.where("error is not null")
    return _addressed(rows, f.lit(address), f.col("body"), reason=f.col("error"))


def windows(readings: DataFrame, window: str, quantiles: Sequence[float] = ()) -> DataFrame:
    """Return `device`, `start`, `end`, `maximum`, `minimum`, `mean`, `readings` and `quantiles` (in the given order,
    exact, interpolated) of each device in tumbling windows of event time."""
    exact = f.percentile("value", [float(q) for q in quantiles]) if quantiles else None
    results = [
        f.max("value").alias("maximum"),
        f.min("value").alias("minimum"),
        f.avg("value").alias("mean"),
        f.count("*").alias("readings"),
    ]
    if exact is not None:
        results.append(exact.alias("quantiles"))
    names = ["maximum", "minimum", "mean", "readings", *(["quantiles"] if quantiles else [])]
    grouped = readings.groupBy(f.window("time", window).alias("w"), "device").agg(*results)
    return grouped.select("device", f.col("w.start").alias("start"), f.col("w.end").alias("end"), *names)


def late(readings: DataFrame, window: str, watermark_ms: int) -> DataFrame:
    """Return the readings of a batch that `windows` leaves out: the watermark has passed the end of their window.

    watermark_ms: the watermark of the batch before it, in milliseconds since 1970; Spark leaves out readings by that.
    """
    return readings.where(f.window("time", window)["end"] <= f.timestamp_millis(f.lit(watermark_ms)))


def latest(readings: DataFrame) -> DataFrame:
    """Return the latest reading of each device, by time; of several at the same time, the one that came last. For a
    batch: a stream would keep all devices in its state."""
    newest = f.max_by(f.struct("device", "time", "value", "offset"), f.struct("time", "offset"))
    return readings.groupBy("device").agg(newest.alias("r")).select("r.*")


def anomalies(readings: DataFrame, threshold: float, minimum: int, idle_ms: int) -> DataFrame:
    """Return readings that are further than `threshold` standard deviations from the mean of the readings of their
    device before them, once there are `minimum` of these: `device`, `time`, `value`, `mean` and `deviation`.

    Mean and deviation are kept for each device (Welford), in the order in which readings come, by time within a batch.
    A device is forgotten when it has had no reading for `idle_ms` of event time. The session needs RocksDB as state
    store: see `use_rocksdb`.
    """
    bucket = f.pmod(f.xxhash64("device"), f.lit(BUCKETS)).alias("bucket")
    rows = readings.select(bucket, "device", f.unix_micros("time").alias("us"), "value", "offset")
    found = rows.groupBy("bucket").transformWithState(Anomalies(threshold, minimum, idle_ms), FOUND, "Append", "None")
    return found.withColumn("us", f.timestamp_micros("us")).withColumnRenamed("us", "time")


def use_rocksdb(spark: Any) -> None:
    """Let queries that are started in a session from now on keep their state in RocksDB, as `anomalies` needs."""
    name = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", name)


class Anomalies(StatefulProcessor):
    """The state of the devices of a bucket: device → count, mean, sum of squared distances, time of the last reading
    (ms), in MessagePack. See `anomalies`."""

    def __init__(self, threshold: float, minimum: int, idle_ms: int) -> None:
        self.threshold = threshold
        self.minimum = minimum
        self.idle_ms = idle_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self.state = handle.getValueState("devices", "devices binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Yield the anomalies among the readings of a bucket in a batch."""
        kept = self.state.get()
        known: dict[str, tuple[int, float, float, int]] = {} if kept is None else DECODER.decode(bytes(kept[0]))
        newest = max((last for *_, last in known.values()), default=0)
        for row in sorted(rows, key=lambda row: (row.us, row.offset)):
            device, value, at = row.device, row.value, row.us // 1000
            count, mean, spread, last = known.get(device) or (0, 0.0, 0.0, at)
            if at - last > self.idle_ms:
                count, mean, spread = 0, 0.0, 0.0
            deviation = math.sqrt(spread / (count - 1)) if count > 1 else 0.0
            if count >= self.minimum and abs(value - mean) > self.threshold * deviation:
                yield Row(device=device, us=row.us, value=value, mean=mean, deviation=deviation)
            count += 1
            before = value - mean
            mean += before / count
            known[device] = count, mean, spread + before * (value - mean), max(last, at)
            newest = max(newest, at)
        kept = {device: state for device, state in known.items() if newest - state[3] <= self.idle_ms}
        self.state.update((msgspec.msgpack.encode(kept),))

    def close(self) -> None:
        """Do nothing: only the state is held, by Spark."""


DECODER = msgspec.msgpack.Decoder(dict[str, tuple[int, float, float, int]])


def commands(
    readings: DataFrame, address: str, body: str, ttl: int, above: float | None = None, below: float | None = None
) -> DataFrame:
    """Return a command as an ADDRESSED row for each reading above or below a limit.

    `{device}` in `address` and `body` stands for the device, `{value}` in `body` for the value; `ttl` in milliseconds.
    Raises OptionError for other placeholders.
    """
    for name, given, known in (("address", address, placeholders.IN_ADDRESS), ("body", body, placeholders.IN_BODY)):
        if wrong := placeholders.fault(given, known):
            raise OptionError(f"amqp stages: commands: {name}: {wrong}")
    beyond = f.lit(False)
    if above is not None:
        beyond = beyond | (f.col("value") > above)
    if below is not None:
        beyond = beyond | (f.col("value") < below)
    to = f.replace(f.lit(address), f.lit("{device}"), f.col("device"))
    text = f.replace(f.lit(body), f.lit("{device}"), f.col("device"))
    text = f.replace(text, f.lit("{value}"), f.col("value").cast("string"))
    return _addressed(readings.where(beyond), to, f.encode(text, "utf-8"), ttl=ttl)


def scores(rows: DataFrame, address: str, dead_letters: str) -> DataFrame:
    """Return the rows of `enmasse.spark.scoring.scored` as ADDRESSED rows: predictions as JSON, and readings without
    one to another address, with the reason in DeadLetterReason."""
    text = f.to_json(f.struct("device", "time", "prediction"), FORM)
    good = f.col("error").isNull()
    return _addressed(
        rows,
        f.when(good, address).otherwise(dead_letters),
        f.when(good, f.encode(text, "utf-8")).otherwise(f.col("body")),
        content_type="application/json",
        reason=f.col("error"),
    )


def as_json(rows: DataFrame, address: str, beside: str = "") -> DataFrame:
    """Return any rows as ADDRESSED rows, each as JSON, and with the column `beside`, which has the whole row."""
    text = f.to_json(f.struct(*rows.columns), FORM)
    if beside:
        rows = rows.withColumn(beside, f.struct(*rows.columns))
    return _addressed(rows, f.lit(address), f.encode(text, "utf-8"), content_type="application/json", beside=beside)


def _addressed(
    rows: DataFrame,
    address: Column,
    body: Column,
    *,
    content_type: str | None = None,
    reason: Column | None = None,
    ttl: int | None = None,
    beside: str = "",
) -> DataFrame:
    properties = f.lit(None).cast(PROPERTIES)
    if reason is not None:
        properties = f.when(reason.isNotNull(), f.create_map(f.lit("DeadLetterReason"), reason))
    return rows.select(
        *([beside] if beside else []),
        address.alias("address"),
        body.alias("body"),
        f.lit(content_type).cast("string").alias("content_type"),
        properties.alias("application_properties"),
        f.lit(ttl).cast("bigint").alias("ttl"),
    )
