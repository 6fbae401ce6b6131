"""Stages of the telemetry pipeline, each usable alone: functions from DataFrame to DataFrame.

`parsed` makes readings of messages; `windows`, `anomalies` and `commands` work on good readings; `bad`, `windows_out`,
`alerts_out` and `commands` end in rows for the sink without the option `address`: ADDRESSED.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

ADDRESSED = ("address", "body", "content_type", "application_properties", "ttl")
PROPERTIES = "map<string,string>"
STATE = "count bigint, mean double, spread double"
ALERT = "device string, time timestamp, value double, mean double, deviation double"


def parsed(
    messages: DataFrame, device: str = "device", time: str = "time", value: str = "temperature", ahead: str = "1 day"
) -> DataFrame:
    """Return `device`, `time`, `value`, `body` and `error` of each message: error is null for a good reading.

    A reading is a JSON object with the named fields: a text that is not empty, a time in ISO 8601, a finite number. A
    time before 1970, or later than now by more than `ahead`, is an error: it would move the watermark past the readings
    of all other devices.
    """
    fields = f.from_json("text", f"`{device}` string, `{time}` string, `{value}` string")
    raw = messages.select(
        "body", f.col("error").alias("broken"), "text", f.col("text").isNull().alias("binary"), fields.alias("r")
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
        .when(~f.ltrim("text").startswith("{") | f.try_parse_json("text").isNull(), "not a JSON object")
        .when(f.coalesce(f.length("device"), f.lit(0)) == 0, f"field {device}: missing or empty")
        .when(f.col("time").isNull(), f"field {time}: missing, or not a time in ISO 8601")
        .when(f.col("time") < f.lit("1970-01-01T00:00:00Z").cast("timestamp"), f"field {time}: before 1970")
        .when(f.col("time") > f.current_timestamp() + f.expr(f"interval {ahead}"), f"field {time}: in the future")
        .when(~finite, f"field {value}: missing, or not a finite number")
    )
    return read.select("device", "time", "value", "body", error.alias("error"))


def good(readings: DataFrame, watermark: str) -> DataFrame:
    """Return `device`, `time` and `value` of readings without an error, with a watermark of event time."""
    return readings.where("error is null").select("device", "time", "value").withWatermark("time", watermark)


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


def anomalies(readings: DataFrame, threshold: float, minimum: int, idle_ms: int) -> DataFrame:
    """Return readings that are further than `threshold` standard deviations from the mean of the readings of their
    device before them, once there are `minimum` of these: the columns of ALERT.

    Mean and deviation are kept for each device (Welford), in the order in which readings come, by time within a batch.
    A device without readings for `idle_ms` of event time is forgotten.
    """

    def of_device(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            state.remove()
            return
        data = pd.concat(list(frames)).sort_values("time", kind="stable")
        count, mean, spread = state.get if state.exists else (0, 0.0, 0.0)
        found: list[tuple[Any, ...]] = []
        for at, value in zip(data["time"], data["value"], strict=True):
            deviation = math.sqrt(spread / (count - 1)) if count > 1 else 0.0
            if count >= minimum and abs(value - mean) > threshold * deviation:
                found.append((key[0], at, value, mean, deviation))
            count += 1
            before = value - mean
            mean += before / count
            spread += before * (value - mean)
        state.update((count, mean, spread))
        last = int(data["time"].max().timestamp() * 1000)
        state.setTimeoutTimestamp(max(last + idle_ms, state.getCurrentWatermarkMs() + 1))
        if found:
            yield pd.DataFrame(found, columns=["device", "time", "value", "mean", "deviation"])

    return readings.groupBy("device").applyInPandasWithState(
        of_device, ALERT, STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


def commands(
    readings: DataFrame, address: str, body: str, ttl: int, above: float | None = None, below: float | None = None
) -> DataFrame:
    """Return a command as an ADDRESSED row for each reading above or below a limit.

    `{device}` in `address` and `body` stands for the device, `{value}` in `body` for the value; `ttl` in milliseconds.
    """
    beyond = f.lit(False)
    if above is not None:
        beyond = beyond | (f.col("value") > above)
    if below is not None:
        beyond = beyond | (f.col("value") < below)
    to = f.replace(f.lit(address), f.lit("{device}"), f.col("device"))
    text = f.replace(f.lit(body), f.lit("{device}"), f.col("device"))
    text = f.replace(text, f.lit("{value}"), f.col("value").cast("string"))
    return _addressed(readings.where(beyond), to, f.encode(text, "utf-8"), ttl=ttl)


def as_json(rows: DataFrame, address: str) -> DataFrame:
    """Return any rows as ADDRESSED rows, each as JSON."""
    form = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    text = f.to_json(f.struct(*rows.columns), form)
    return _addressed(rows, f.lit(address), f.encode(text, "utf-8"), content_type="application/json")


def _addressed(
    rows: DataFrame,
    address: Column,
    body: Column,
    *,
    content_type: str | None = None,
    reason: Column | None = None,
    ttl: int | None = None,
) -> DataFrame:
    properties = f.lit(None).cast(PROPERTIES) if reason is None else f.create_map(f.lit("DeadLetterReason"), reason)
    return rows.select(
        address.alias("address"),
        body.alias("body"),
        f.lit(content_type).cast("string").alias("content_type"),
        properties.alias("application_properties"),
        f.lit(ttl).cast("bigint").alias("ttl"),
    )
