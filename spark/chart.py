"""Charts of a pipeline as PNG: its windows (`[table]`), and its lag over time.

`python -m spark.chart FILE windows|lag PICTURE.png [--device NAME …]`, FILE being the pipeline's file. Needs
the extra `charts`, and not Spark: the pipeline may run or not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from enmasse.spark.errors import QueryError
from spark import pipeline_file, progress

MOST = 5
"""Devices of a chart if none is named."""
SIZE = (9, 4.5)
INK, QUIET, GRID = "#222222", "#666666", "#e3e3e3"
LINES = ("#1b6ca8", "#d1622b", "#3a8a4d", "#8b5aa8", "#b08900")


class ChartError(QueryError):
    """There is nothing to be drawn: the text gives the reason and what to do."""


def windows_of(path: str, form: str, devices: Sequence[str]) -> pa.Table:
    """Return the windows of the devices in a table, in order of time; of the first MOST devices if none is named.

    Raises ChartError.
    """
    try:
        if form == "delta":
            import deltalake

            data: Any = deltalake.DeltaTable(path).to_pyarrow_dataset()
        else:
            data = ds.dataset(path, format="parquet", partitioning="hive")
        names = pc.unique(data.to_table(columns=["device"])["device"]).sort()
        chosen = devices or names.slice(0, MOST).to_pylist()
        rows = data.to_table(filter=ds.field("device").isin(chosen)).sort_by("start")
    except Exception as error:  # of two libraries, for any reason that the files give
        raise ChartError(f"chart: the table {path} cannot be read: {error}") from None
    if not rows.num_rows:
        raise ChartError(f"chart: the table {path} has no windows of {', '.join(devices) or 'any device'}")
    return rows


def draw_windows(rows: pa.Table, picture: Path) -> None:
    """Draw the mean of each device's windows, with the range from minimum to maximum behind it."""
    figure, axes = _axes("Windows: mean, and minimum to maximum")
    for n, device in enumerate(pc.unique(rows["device"]).to_pylist()):
        mine = rows.filter(pc.equal(rows["device"], device))
        times = mine["start"].to_pylist()
        low, high, mean = (mine[name].to_pylist() for name in ("minimum", "maximum", "mean"))
        color = LINES[n % len(LINES)]
        axes.fill_between(times, low, high, color=color, alpha=0.12, linewidth=0)
        axes.plot(times, mean, color=color, linewidth=1.6, marker="o" if len(times) < 40 else "", markersize=3)
        axes.annotate(
            device, (times[-1], mean[-1]), xytext=(6, 0), textcoords="offset points", color=color, va="center"
        )
    _save(figure, picture)


def draw_lag(work: Path, picture: Path) -> None:
    """Draw messages that are spooled and not processed, and the age of the oldest, at each batch. Raises ChartError."""
    found = [line for line in progress.lines(work) if line.get("behind") is not None]
    if not found:
        raise ChartError(
            f"chart: {work / progress.FILE} has no lag: it is written while the pipeline runs, from PySpark 4.2 on"
        )
    times = [dt.datetime.fromisoformat(line["at"]) for line in found]
    figure, axes = _axes("Messages behind")
    axes.step(times, [line["behind"] for line in found], where="post", color=LINES[0], linewidth=1.6)
    axes.set_ylim(bottom=0)
    ages = axes.twinx()
    ages.step(times, [line["oldestSeconds"] or 0 for line in found], where="post", color=LINES[1], linewidth=1.2)
    ages.set_ylim(bottom=0)
    ages.set_title("Seconds since the oldest arrived", loc="right", fontsize=11, color=LINES[1])
    ages.spines[["top", "left", "bottom", "right"]].set_visible(False)
    ages.tick_params(colors=QUIET, length=0)
    axes.title.set_color(LINES[0])
    _save(figure, picture)


def _axes(title: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ChartError("chart: matplotlib is missing: pip install '.[charts]' in the checkout") from None
    figure = Figure(figsize=SIZE, dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, length=0)
    return figure, axes


def _save(figure: Any, picture: Path) -> None:
    import matplotlib.dates as dates

    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    for axes in figure.axes:
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    try:
        figure.savefig(picture, format="png")
    except OSError as error:
        raise ChartError(f"chart: {picture} cannot be written ({error.strerror})") from None


def draw(file: Path, what: str, picture: Path, devices: Sequence[str] = ()) -> None:
    """Draw the `windows` or the `lag` of the pipeline of a file. Raises PipelineFileError, ChartError."""
    sections = pipeline_file.load(file)
    if what == "lag":
        return draw_lag(Path(sections["source"]["work"]).absolute(), picture)
    table = sections.get("table")
    if table is None:
        raise ChartError(f"chart: {file} has no section [table], whose windows would be drawn")
    draw_windows(windows_of(table["path"], table["format"], devices), picture)


def main() -> None:
    """Draw one chart; end with status 1 and one sentence if that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("what", choices=("windows", "lag"))
    parser.add_argument("picture", metavar="PICTURE", type=Path)
    parser.add_argument("--device", action="append", default=[], help="of the windows; else the first ones by name")
    given = parser.parse_args()
    try:
        draw(given.file, given.what, given.picture, given.device)
    except QueryError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
