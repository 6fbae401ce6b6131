"""Sentences of failed queries: each is shown once, by the program or in place of Spark's line."""

from __future__ import annotations

import re
import threading
from unittest.mock import Mock

import pytest

from enmasse.spark import failed_queries
from enmasse.spark.session import LOGGING
from enmasse.testing import wait_for
from tests.spark.conftest import DEADLINE

OURS = "org.apache.spark.SparkException: [X] Failed: enmasse.spark.errors.QueryError: amqp source: gone\n"


@pytest.fixture(autouse=True)
def no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_queries, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(failed_queries, "ends", threading.Event())


def test_a_query_that_no_program_waits_for_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []

    def said() -> bool:
        shown.append(capsys.readouterr().err)
        return "".join(shown) == "amqp source: gone\n"

    listener = failed_queries.FailedQueries()
    for error in ("ValueError: of the program", None, OURS):
        option = Mock(**{"isDefined.return_value": error is not None, "get.return_value": error})
        listener.onQueryTerminated(Mock(**{"exception.return_value": option}))
    wait_for("the sentence", said, DEADLINE)


def test_an_error_that_ends_the_program_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed_queries.show(Exception, Exception(OURS), None)
    failed_queries.show_later("amqp source: gone")
    assert capsys.readouterr().err == "amqp source: gone\n"


def test_sparks_line_about_an_error_of_ours_is_left_out() -> None:
    (written,) = re.findall(r"layout\.pattern = %replace\{.*%n\}\{(.*)\}\{\}$", LOGGING.read_text(), re.MULTILINE)
    left_out = re.compile(written.replace("\\\\", "\\"))
    line = "19:50:22 ERROR MicroBatchExecution: Query a [id = 1, runId = 2] terminated with error: "
    assert left_out.fullmatch(f"{line}{OURS} SQLSTATE: 38000\n\n")
    assert not left_out.search(f"{line}[FOREACH_BATCH_USER_FUNCTION_ERROR] ValueError: my enmasse.spark bug\n")
