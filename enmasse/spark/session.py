"""A Spark session on this machine in which format("amqp") works: for a first job and for the telemetry pipeline."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from enmasse.spark import worker_start
from enmasse.spark.datasource import SelectingDataSource
from enmasse.spark.failed_queries import FailedQueries, show

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Variable of programs that spark-submit has started."""
LOGGING = Path(__file__).with_name("log4j2.properties")
WORKER_START = str(Path(worker_start.__file__).parent)


def session(app: str = "enmasse") -> SparkSession:
    """Return a session with the amqp source and sink registered; local[*] unless SPARK_MASTER names another master.

    An error of an amqp source or sink that ends the program is shown as one sentence; one of a query that the program
    does not wait for too, after some seconds. Spark logs warnings of the amqp source and errors only, each in one line,
    unless SPARK_CONF_DIR names a folder with another configuration. Settings that spark-submit was given are kept, its
    master too, and those of --conf in PYSPARK_SUBMIT_ARGS.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    settings = {
        "spark.master": os.environ.get("SPARK_MASTER", "local[*]"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",  # streaming does without it, and warns if it is on
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": "5m",  # a worker waits for the JVM, by default 15 s
        "spark.sql.python.filterPushdown.enabled": "true",  # off by default in Spark 4.2
    }
    logs = "SPARK_CONF_DIR" not in os.environ and SUBMITTED not in os.environ
    if logs:
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    new = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName(app)
    for name in settings.keys() - given():
        builder = builder.config(name, settings[name])
    spark = builder.getOrCreate()
    start_quickly(spark.sparkContext.environment)
    spark.dataSource.register(SelectingDataSource)
    if logs and new:
        spark.streams.addListener(FailedQueries())
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show
    return spark


def start_quickly(environment: dict[str, str]) -> None:
    """Put `worker_start` first on the Python path in the environment of Spark's Python processes."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(
        [WORKER_START, *(path for path in paths if path not in ("", WORKER_START))]
    )


def given() -> set[str]:
    """Return the names of the settings that spark-submit, the starter of the program, or PYSPARK_SUBMIT_ARGS gives."""
    if SUBMITTED in os.environ:
        SparkContext._ensure_initialized()
        return {name for name, _ in SparkConf().getAll()}
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return {word.partition("=")[0] for option, word in itertools.pairwise(words) if option in ("--conf", "-c")}
