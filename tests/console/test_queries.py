"""Answers of `enmasse up` about the pipeline, as the console reads them."""

from __future__ import annotations

import msgspec
import pytest

from enmasse.api.types import Window
from enmasse.spark_jobs import Query, Windows
from services.console.following.supervisor import Pipeline

QUERY = Query.begun("spark")
WINDOW = Window(device="d", start="s", end="e", minimum=1.0, maximum=3.0, mean=2.0, readings=2)


def test_queries_and_windows_are_read_as_the_job_has_written_them() -> None:
    written = msgspec.json.encode({"schema": 1, "queries": [QUERY], "windows": Windows("spark", [WINDOW]).windows})
    assert msgspec.json.decode(written, type=Pipeline) == Pipeline([QUERY], [WINDOW])


@pytest.mark.parametrize("part", ["queries", "windows"])
def test_an_answer_that_lacks_a_field_is_refused(part: str) -> None:
    whole = msgspec.to_builtins(QUERY if part == "queries" else WINDOW)
    for field in whole:
        lacking = {name: value for name, value in whole.items() if name != field}
        with pytest.raises(msgspec.ValidationError, match=field):
            msgspec.json.decode(msgspec.json.encode({part: [lacking]}), type=Pipeline)
