"""The file of a pipeline as a Spark job: `python -m spark.run --state STATE --name NAME FILE`.

Options and exit status are those of `enmasse.spark.job`, by which other programs run as jobs. `--url` and `--work` are
for a file that has none.
"""

from __future__ import annotations

import argparse

from enmasse import spark_jobs
from enmasse.spark import job
from spark import pipeline_file


def run(given: argparse.Namespace) -> None:
    """Run the pipeline until its query ends; its newest windows are kept beside the job's state. Raises what
    ends it."""
    from spark import pipeline  # VersionError, as of any other reason why a job ends

    defaults = {name: value for name, value in (("url", given.url), ("work", given.work)) if value}
    sections = pipeline_file.load(given.program, defaults)  # before a JVM is started
    recent = spark_jobs.windows_of(given.state)
    spark = pipeline.session_for(sections, given.name)
    pipeline.start_file(spark, sections, given.name, recent).awaitTermination()


def main() -> None:
    """Run the job; end with its exit status."""
    parser = job.parser("python -m spark.run", __doc__ or "")
    parser.add_argument("--url", default="", help="server of a pipeline whose file names none")
    parser.add_argument("--work", default="", help="folder of a pipeline whose file names none")
    job.main(parser.parse_args(), run)


if __name__ == "__main__":
    main()
