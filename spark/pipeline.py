"""The telemetry pipeline: readings of devices in, windowed maximum, minimum and mean per device out.

A reading is a JSON body `{"device": str, "time": ISO 8601, "temperature": number}`; a result is `{"device", "start",
"end", "maximum", "minimum", "mean", "readings"}`. A window's result is sent once, when the watermark has passed its
end.

`python -m spark.pipeline --url amqp://127.0.0.1:5672 --address telemetry --results results \
    --work DIR`

`python -m spark.pipeline FILE` runs the stages that a TOML or JSON file asks for (docs/spark.md).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from enmasse.spark import stages
from enmasse.spark.delta_table import DeltaTable
from enmasse.spark.errors import QueryError
from enmasse.spark.options import DEFAULT_URL, LOGIN, folder_fault
from enmasse.spark.parquet_table import ParquetTable
from enmasse.spark.scoring import ModelError, read_model, scored
from enmasse.spark.session import session
from enmasse.storage.files import read_json, write_changed_json
from spark import outputs, pipeline_file
from spark.last_values import LastValues
from spark.progress import ProgressFile
from spark.recent_windows import RecentWindows


def readings(messages: DataFrame, counts: str | Observation = "pipeline") -> DataFrame:
    """Return the readings in the text of messages. What is no reading (`stages.parsed`) is left out, and counted as
    `bad` beside `reading` in the progress of the query (`observedMetrics`), with a reason."""
    parsed = stages.parsed(messages)
    is_good = f.col("error").isNull()
    numbers = (f.count_if(is_good).alias("reading"), f.count_if(~is_good).alias("bad"))
    counted = parsed.observe(counts, *numbers, f.min("error").alias("badReason"))
    return counted.where("error is null").select("device", "time", f.col("value").alias("temperature"))


def windows(data: DataFrame, window: str, watermark: str) -> DataFrame:
    """Return maximum, minimum and mean of each device in tumbling windows of event time."""
    return (
        data.withWatermark("time", watermark)
        .groupBy(f.window("time", window).alias("w"), "device")
        .agg(
            f.max("temperature").alias("maximum"),
            f.min("temperature").alias("minimum"),
            f.avg("temperature").alias("mean"),
            f.count("*").alias("readings"),
        )
        .select(
            "device",
            f.col("w.start").alias("start"),
            f.col("w.end").alias("end"),
            "maximum",
            "minimum",
            "mean",
            "readings",
        )
    )


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query: address → spool → windows → results address."""
    work = Path(args.work).absolute()
    claim(work, {"address": args.address, "subscription": args.subscription}, {"windows": {"window": args.window}})
    login = {"url": args.url, "user": args.user, "passwordFile": args.password_file}
    source: Any = (
        spark.readStream.format("amqp")
        .options(**login)
        .option("address", args.address)
        .option("subscription", args.subscription)
        .option("spool", str(work / "spool"))
        .options(**flight(spark, args.flight_port))
    )
    results = windows(readings(source.load()), args.window, args.watermark)
    query = (
        results.writeStream.format("amqp")
        .options(**login)
        .option("address", args.results)
        .option("checkpointLocation", str(work / "checkpoint"))
        .outputMode("append")
        .start()
    )
    spark.streams.addListener(ProgressFile(work, query.runId, {}))
    return query


PLAN = "enmasse-plan.json"
"""In a checkpoint: what it is of."""


class WorkError(QueryError):
    """The work folder of a pipeline holds the checkpoint of another one: the text gives the difference."""


def claim(work: Path, source: Mapping[str, str], plan: Mapping[str, object]) -> None:
    """Note in the checkpoint of a work folder which messages the spool has and of which stages it holds the state.
    Raises WorkError if it has those of others, which Spark would take for this query's own."""
    file = work / "checkpoint" / PLAN
    file.parent.mkdir(parents=True, exist_ok=True)  # with the mode that Spark gives it
    parts = ("address", "subscription", *(["space"] if source.get("space") else []))  # not known to earlier versions
    now = {"source": {name: source[name] for name in parts}, "stages": plan}
    before = read_json(file)
    began = work / "checkpoint" / "offsets"
    if isinstance(before, dict) and before != json.loads(json.dumps(now)) and began.is_dir() and any(began.iterdir()):
        found, wanted = _paths(before), _paths(now)
        changes = [
            f"{path} was {found.get(path, 'not there')}, is {wanted.get(path, 'not there')}"
            for path in sorted(found.keys() | wanted.keys())
            if found.get(path) != wanted.get(path)
        ]
        raise WorkError(
            f"pipeline: the work folder {work} has the spool and checkpoint of another source or other stages: "
            f"{'; '.join(changes)}. Choose a new folder, or take the change back"
        )
    write_changed_json(file, now)


def _paths(plan: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Return the values of a plan as JSON by their paths, such as stages.windows.window."""
    found: dict[str, str] = {}
    for name, value in plan.items():
        path = f"{above}{name}"
        found |= _paths(value, f"{path}.") if isinstance(value, dict) and value else {path: json.dumps(value)}
    return found


def stateful(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Return the stages of a file, with the fields on which the form of their state depends."""
    found: dict[str, object] = {name: {} for name in pipeline_file.STAGES if name in sections}
    if windows := sections.get("windows"):
        found["windows"] = {"window": windows["window"], "quantiles": windows["quantiles"]}
    return found


def flight(spark: SparkSession, port: str = "") -> dict[str, str]:
    """Return the source's options with which executors on other machines read the spool; none on this machine."""
    if spark.sparkContext.master.startswith("local"):
        return {}
    return {"flightHost": spark.conf.get("spark.driver.host"), **({"flightPort": port} if port else {})}


def start_file(
    spark: SparkSession, sections: dict[str, dict[str, Any]], name: str = "", recent: Path | None = None
) -> StreamingQuery:
    """Start the query of a file (`pipeline_file.load`): address → spool → stages → addresses and tables. `name`: of
    the query; empty: Spark's id. `recent`: file for the newest windows, which the console draws.

    One query, so that the stages share a spool and a checkpoint; `outputs` divides its batches. Raises ModelError,
    WorkError.
    """
    source = sections["source"]
    work = Path(source["work"]).absolute()
    claim(work, source, stateful(sections))
    login = {name: source[name] for name in ("url", *LOGIN) if source[name]}
    messages: Any = (
        spark.readStream.format("amqp")
        .options(**login)
        .option("address", source["address"])
        .option("subscription", source["subscription"])
        .option("spool", str(work / "spool"))
        .options(**flight(spark))
        .load()
    )
    stages.use_rocksdb(spark)
    rows = outputs.together(parts(messages, sections))
    to = destinations(sections, login, work / "checkpoint")
    if recent is not None and "windows" in sections:
        to.make_recent = functools.partial(RecentWindows, recent)
    stream = rows.writeStream.foreachBatch(to).option("checkpointLocation", str(work / "checkpoint"))
    if name:
        stream = stream.queryName(name)
    query = stream.outputMode("append").start()
    spark.streams.addListener(ProgressFile(work, query.runId, to.late))
    return query


def session_for(sections: dict[str, dict[str, Any]], name: str) -> SparkSession:
    """Return a session for a file. Its model is loaded while the JVM starts: `scored` needs it then, with what it
    imports, 1.8 s of processor time."""
    threading.Thread(target=load_model, args=(sections,), daemon=True).start()
    return session(name)


def load_model(sections: dict[str, dict[str, Any]]) -> None:
    """Load the model of a file, if it has one; `scored` reports what is wrong with it."""
    if scores := sections.get("scores"):
        with contextlib.suppress(ModelError):
            read_model(Path(scores["model"]), trusted=scores["trusted"])


def parts(messages: DataFrame, sections: dict[str, dict[str, Any]]) -> list[DataFrame]:
    """Return the rows that each stage of a file makes of messages, for `outputs.together`."""
    read = sections["readings"]
    scores = sections.get("scores")
    features = scores["features"] or (read["value"],) if scores else ()
    parsed = stages.parsed(messages, read["device"], read["time"], read["value"], read["ahead"], features)
    data = stages.good(parsed, read["watermark"])
    found = [
        outputs.readings(parsed, read["deadLetterAddress"])
        if "windows" in sections or "last" in sections
        else outputs.messages("bad", stages.bad(parsed, read["deadLetterAddress"]))  # without an address: counted
    ]
    if stage := sections.get("windows"):
        windows = stages.windows(data, stage["window"], stage["quantiles"] or ())
        found.append(outputs.messages("windows", stages.as_json(windows, stage["address"], beside="window"), "window"))
    if stage := sections.get("alerts"):
        idle = pipeline_file.seconds(stage["idle"]) * 1000
        alerts = stages.anomalies(data, stage["threshold"], stage["minimum"], idle)
        found.append(outputs.messages("alerts", stages.as_json(alerts, stage["address"])))
    if stage := sections.get("commands"):
        rule = {name: stage[name] for name in ("address", "body", "ttl", "above", "below")}
        found.append(outputs.messages("commands", stages.commands(data, **rule)))
    if scores:
        predicted = scored(parsed, scores["model"], features, trusted=scores["trusted"])
        sent = stages.scores(predicted, scores["address"], read["deadLetterAddress"])
        found.append(outputs.messages("scores", sent))
    return found


def destinations(sections: dict[str, dict[str, Any]], login: dict[str, str], checkpoint: Path) -> outputs.Outputs:
    """Return where the rows go."""
    sink = {**login, "duplicateId": "true"}
    # What a message holds decides on the address of a command: one that does not exist must not end the query.
    if dead := sections["readings"]["deadLetterAddress"]:
        sink |= {"onReject": "deadletter", "deadLetterAddress": dead}
    to = outputs.Outputs(sink, checkpoint)
    if stage := sections.get("table"):
        form = {"parquet": parquet, "delta": delta}[stage["format"]]
        to.make_table = functools.partial(form, stage["path"], stage["compact"])
    if stage := sections.get("last"):
        to.last = LastValues(Path(stage["path"]).absolute())
    if stage := sections.get("windows"):
        to.window, to.late_address = stage["window"], stage["lateAddress"]
    return to


def parquet(path: str, most: int, query: str) -> outputs.OutputTable:
    """Return the table of Parquet files in a folder."""
    return ParquetTable(Path(path).absolute(), query, most)


def delta(path: str, most: int, query: str) -> outputs.OutputTable:
    """Return the Delta table at a path or URL."""
    return DeltaTable(path, query, most)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line, or of `given`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=DEFAULT_URL)
    parser.add_argument("--user", default="", help="the user, with --password-file")
    parser.add_argument("--password-file", default="", help="file with the user's password")
    parser.add_argument("--address", default="telemetry", help="where readings come from: a topic or a queue")
    parser.add_argument("--subscription", default="", help="name of a durable subscription, for a topic")
    parser.add_argument("--results", default="results", help="where results go")
    parser.add_argument("--window", default="1 day")
    parser.add_argument("--watermark", default="1 hour")
    parser.add_argument("--work", help="folder for spool and checkpoint; required without FILE")
    parser.add_argument("--flight-port", default="", help="where executors elsewhere read the spool (default: any)")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a pipeline's file, instead of all options")
    found = parser.parse_args(given)
    if (found.file is None) == (found.work is None):
        parser.error("give either FILE or --work DIR")
    if found.work is not None and (wrong := folder_fault(found.work)):
        parser.error(f"--work: {wrong}")
    return found


def main() -> None:
    """Run the pipeline until SIGTERM, or until the query fails."""
    given = arguments()  # before a JVM is started
    # Also the first process of a container, which no signal ends by itself. A batch that is cut off is done again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sections = pipeline_file.load(Path(given.file)) if given.file else None
    except pipeline_file.PipelineFileError as error:
        sys.exit(str(error))
    work = given.work if sections is None else sections["source"]["work"]
    # Before there are executors: those in pods mount it.
    (Path(work).absolute() / "checkpoint").mkdir(parents=True, exist_ok=True)
    spark = session_for(sections or {}, "enmasse-telemetry")
    query = start(spark, given) if sections is None else start_file(spark, sections)
    print("pipeline running", flush=True)  # noqa: T201 - for the program that started this one
    query.awaitTermination()


if __name__ == "__main__":
    main()
