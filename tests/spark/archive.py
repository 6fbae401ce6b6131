"""An archive of the classes that Spark loads, shared by the JVMs of tests: a third of the work of a start is saved.

Made once, by a session that is thrown away (half a minute of processor time, 170 MB), for one PySpark and one Java;
kept in the user's cache. Checkouts share it, since uv links their jars to the same files. A JVM with other jars or
another collector ignores it.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from enmasse.engines.maven import cache
from enmasse.spark import stages
from enmasse.spark.session import session

QUICK = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the JVMs. The quick compiler alone: the other one takes as much time again, and repays it after minutes.
Of the collectors, the one that has no threads of its own."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""The JVM warns on standard output of a thousand classes that it leaves out, and of an archive that it ignores."""


def options() -> str:
    """Return the options of a JVM with the archive, for the variable JDK_JAVA_OPTIONS. Makes the archive on first use;
    without one the string is empty."""
    java = shutil.which("java")
    if java is None:
        return ""
    program = os.path.realpath(java)
    core = next(Path(pyspark.__file__).with_name("jars").glob("spark-core_*.jar")).stat()
    key = f"{program}:{os.stat(program).st_mtime_ns}:{core.st_ino}:{core.st_mtime_ns}:{QUICK}"
    path = cache() / f"spark-{pyspark.__version__}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _make(path)
    return f"-XX:SharedArchiveFile={path} {_QUIET}"


def _make(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".spark-") as scratch:
        made = Path(scratch) / path.name
        environment = {
            **os.environ,
            "SPARK_LOCAL_DIRS": scratch,
            "SPARK_SUBMIT_OPTS": f"{QUICK} {_QUIET} -XX:ArchiveClassesAtExit={made} -Djava.io.tmpdir={scratch}",
        }
        command = [sys.executable, "-m", "tests.spark.archive", scratch]
        # The JVM has its output from the program, and writes the archive after that has ended.
        subprocess.run(command, env=environment, capture_output=True, check=True)
        made.replace(path)


class Readings(DataSource):
    """A source in Python: ten readings in each batch."""

    def schema(self) -> str:
        return "device string, time timestamp, value double"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _Reader()


class _Reader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = {"at": start["at"] + 10}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        first = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        rows = [(f"d{n % 2}", first + dt.timedelta(hours=n), float(n % 7)) for n in range(start["at"], end["at"])]
        return iter(rows)  # of a list: Spark copies it


def main(folder: str) -> None:
    """Use what the tests use: a source in Python, windows, state, JSON, tables."""
    spark = session("archive")
    spark.dataSource.register(Readings)
    readings = spark.readStream.format("Readings").load().withWatermark("time", "1 day")
    windows = stages.windows(readings, "1 day", [0.5])
    for name, rows in (("w", stages.as_json(windows, "a")), ("a", stages.anomalies(readings, 3.0, 5, 1000))):
        writer = rows.writeStream.format("memory").queryName(name).option("checkpointLocation", f"{folder}/{name}")
        query = writer.start()
        while len(query.recentProgress) < 3:
            query.awaitTermination(0.1)  # raises what ends the query
        query.stop()
        spark.sql(f"select count(*) from {name}").collect()
    spark.range(9).selectExpr("cast(id as string) as id").write.json(f"{folder}/written")
    spark.read.json(f"{folder}/written").where("id > 3").collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
