"""How much of a spool a batch takes, and where a query begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from enmasse.spark.options import OptionError
from enmasse.spark.source.batch_limits import admission_of, shares
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.spark.spool import segment_index
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.segment import RECORD, SpoolError, end_within, partition_folder, segments
from enmasse.spark.spool.segment_index import index_of
from enmasse.spark.spool.spool import SpoolWriter
from tests.spark.conftest import LIMIT

pytestmark = pytest.mark.timeout(LIMIT)


def filled(folder: Path, sizes: list[int]) -> None:
    writer = SpoolWriter(folder)
    for size in sizes:
        writer.append(b"m" * size, 1)
        writer.sync()
    writer.close()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=40),
    most=st.integers(1, 3000),
    stride=st.sampled_from([1, 200, 10_000]),
    indexed=st.booleans(),
    start=st.integers(0, 39),
)
def test_a_range_of_at_most_so_many_bytes_is_the_longest_one(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int, stride: int, indexed: bool, start: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooling, "SEGMENT_BYTES", 400)
        patch.setattr(segment_index, "STRIDE", stride)
        filled(folder, sizes)
        if not indexed:
            for _, path in segments(folder):
                index_of(path).unlink()
        start = min(start, len(sizes) - 1)
        expected, taken = start, 0
        while expected < len(sizes) and (taken := taken + RECORD.size + sizes[expected]) <= most:
            expected += 1
        assert end_within(folder, start, len(sizes), most) == max(expected, start + 1)
        assert end_within(folder, start, start + 1, most) == start + 1


def never(partition: int, start: int, end: int, most: int) -> int:
    raise AssertionError("bytes were counted without need")


def test_rows_of_a_batch_are_limited() -> None:
    limits = admission_of({"maxrowspertrigger": "10"})
    assert [limits.ends([0], [head], never, 0) for head in (0, 3, 10, 50)] == [[0], [3], [10], [10]]


def test_bytes_of_a_batch_are_limited_within_its_rows() -> None:
    asked = []

    def within(partition: int, start: int, end: int, most: int) -> int:
        asked.append((partition, start, end, most))
        return 7

    limits = admission_of({"maxrowspertrigger": "10", "maxbytespertrigger": "500"})
    assert limits.ends([5], [50], within, 0) == [7]
    assert limits.ends([7], [7], within, 0) == [7]
    assert asked == [(0, 5, 15, 500)]


def test_fewer_rows_than_asked_for_wait_for_the_delay() -> None:
    limits = admission_of({"minrowspertrigger": "10", "maxtriggerdelay": "30s"})
    assert [limits.ends([0], [4], never, now) for now in (100, 129)] == [[0], [0]]
    assert limits.ends([0], [10], never, 129.5) == [10], "enough rows wait for nothing"
    assert limits.ends([10], [14], never, 159) == [10], "the delay begins with the last batch"
    assert limits.ends([10], [14], never, 159.5) == [14]
    assert limits.ends([14], [14], never, 500) == [14]


@given(wanted=st.lists(st.integers(0, 50), min_size=1, max_size=5), most=st.integers(1, 120))
def test_partitions_share_a_limit_in_proportion(wanted: list[int], most: int) -> None:
    found = shares(most, wanted)
    assert sum(found) == min(most, sum(wanted))
    assert all(got <= each for got, each in zip(found, wanted, strict=True))
    assert all(
        abs(got * sum(wanted) - min(most, sum(wanted)) * each) < max(1, sum(wanted))
        for got, each in zip(found, wanted, strict=True)
    )


def test_bytes_are_shared_by_the_rows_of_partitions() -> None:
    limits = admission_of({"maxbytespertrigger": "90"})
    asked = []

    def within(partition: int, start: int, end: int, most: int) -> int:
        asked.append((partition, most))
        return start + 1

    assert limits.ends([0, 5, 8], [10, 25, 8], within, 0) == [1, 6, 8]
    assert asked == [(0, 30), (1, 60)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"maxTriggerDelay": "30s"}, 'needs the option "minRowsPerTrigger"'),
        ({"minRowsPerTrigger": "5", "maxTriggerDelay": "soon"}, "30s, 15m or 1h, not 'soon'"),
        ({"minRowsPerTrigger": "5", "maxRowsPerTrigger": "4"}, r'"minRowsPerTrigger" \(5\) is more than'),
        ({"maxBytesPerTrigger": "1parsec"}, "must be a positive number"),
        ({"startingOffsets": "newest"}, "earliest, latest or the number"),
        ({"startingOffsets": "-1"}, "earliest, latest or the number"),
    ],
)
def test_limits_and_beginnings_that_cannot_be_are_refused(wrong: dict[str, str], said: str) -> None:
    options = {name.lower(): value for name, value in wrong.items()}
    with pytest.raises(OptionError, match=f"amqp source: .*{said}"):
        AmqpStreamReader({"address": "a", "spool": "s", **options})


class Stored:
    """Receivers that have stored so many records, one of them or several."""

    def __init__(self, folder: Path, *counts: int) -> None:
        self.folder, self.counts, self.full, self.drained = folder, list(counts), False, False

    def heads(self) -> list[int]:
        return list(self.counts)

    def firsts(self) -> list[int]:
        return [segments(partition_folder(self.folder, n))[0][0] for n in range(len(self.counts))]

    def await_records(self, done: list[int]) -> None: ...

    def await_address(self) -> None: ...

    def check(self) -> None: ...

    def drain(self) -> None:
        self.drained = True


def reader(folder: Path, monkeypatch: pytest.MonkeyPatch, *counts: int, **options: str) -> AmqpStreamReader:
    made = AmqpStreamReader({"address": "a", "spool": str(folder), **options})
    stored = Stored(folder, *counts)
    monkeypatch.setattr(made, "started", lambda: stored)
    return made


def test_a_query_begins_where_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 400)
    filled(tmp_path, [50] * 30)
    writer = SpoolWriter(tmp_path)
    writer.forget(writer.forgettable(12))
    writer.close()
    first = segments(tmp_path)[0][0]
    assert first > 0
    for asked, record in ((None, first), ("earliest", first), ("Latest", 30), ("20", 20), ("30", 30)):
        options = {} if asked is None else {"startingoffsets": asked}
        assert reader(tmp_path, monkeypatch, 30, **options).initialOffset() == {"record": record}
    for asked in ("0", "31"):
        with pytest.raises(SpoolError, match=f'"startingOffsets" is {asked}, but the spool holds .* from {first} on'):
            reader(tmp_path, monkeypatch, 30, startingoffsets=asked).initialOffset()


def test_the_beginning_does_not_move_between_two_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, [5] * 30)
    latest = reader(tmp_path, monkeypatch, 30, startingoffsets="latest")
    assert latest.initialOffset() == {"record": 30}
    latest.started().counts[0] = 40  # type: ignore[attr-defined]  # of the double that `reader` puts there
    assert latest.initialOffset() == {"record": 30}


def test_all_limits_apply_whichever_spark_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, [84] * 30)
    both = reader(tmp_path, monkeypatch, 30, maxrowspertrigger="10", maxbytespertrigger="500")
    assert both.getDefaultReadLimit() == ReadMaxRows(10)
    assert both.latestOffset({"record": 2}, both.getDefaultReadLimit()) == {"record": 7}
    assert both.latestOffset({"record": 2}, ReadAllAvailable()) == {"record": 30}, "Trigger.Once takes all"
    assert reader(tmp_path, monkeypatch, 30, maxbytespertrigger="5").getDefaultReadLimit() == ReadMaxBytes(5)
    least = reader(tmp_path, monkeypatch, 30, minrowspertrigger="50")
    assert least.getDefaultReadLimit() == ReadMinRows(50)
    assert least.latestOffset({"record": 0}, ReadMinRows(50)) == {"record": 0}
    least.prepareForTriggerAvailableNow()  # more does not come
    assert least.latestOffset({"record": 0}, ReadMinRows(50)) == {"record": 30}


def test_a_query_has_an_offset_for_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that came later begin at their first record, and those without a receiver are read to their end."""
    filled(tmp_path, [5] * 30)
    filled(partition_folder(tmp_path, 1), [5] * 20)
    several = reader(tmp_path, monkeypatch, 30, 20, receivers="2", maxrowspertrigger="25")
    assert several.initialOffset() == {"record": 0, "record-1": 0}
    end = several.latestOffset({"record": 12}, several.getDefaultReadLimit())
    assert end == {"record": 24, "record-1": 13}, "25 of 18 and 20"
    ranges = several.partitions({"record": 12}, end)
    assert [(each.partition, each.start, each.end) for each in ranges] == [(0, 12, 24), (1, 0, 13)]
    rows = [row for each in ranges for batch in several.read(each) for row in batch.to_pylist()]
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, n) for n in range(12, 24)] + [
        (1, n) for n in range(13)
    ]
    with pytest.raises(SpoolError, match="has read 3 partitions of it, but it has only 2"):
        several.latestOffset({**end, "record-2": 0}, ReadAllAvailable())
    with pytest.raises(SpoolError, match='"startingOffsets" is 3, but the spool has 2 partitions'):
        reader(tmp_path, monkeypatch, 30, 20, receivers="2", startingoffsets="3").initialOffset()
