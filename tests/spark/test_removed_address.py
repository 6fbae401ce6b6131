"""A suite whose address is removed while a source receives from it: its router keeps the link."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.spark.source.source import AmqpStreamReader
from enmasse.testing import running, wait_for
from tests.spark.conftest import DEADLINE, LIMIT

pytestmark = [pytest.mark.timeout(LIMIT), pytest.mark.slow]  # test_trouble.py has it with a server in the test
QUEUE = {"q": {"type": "queue", "flavor": "small-persisted-queue"}}


def send(url: str, number: int) -> None:
    connection = BlockingConnection(url, timeout=DEADLINE)
    connection.create_sender("q").send(Message(id=f"m{number}", body="x", durable=True))
    connection.close()


def test_a_queue_that_goes_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path / "suite", QUEUE) as suite:
        suite.up(DEADLINE)
        suite.wait_ready()
        reader = AmqpStreamReader({"url": suite.url, "address": "q", "spool": str(tmp_path / "spool")})
        try:
            reader.started().await_address()
            send(suite.url, 1)
            wait_for("the first message", lambda: reader.reportLatestOffset()["record"] == 1, DEADLINE)
            suite.edit("addresses.json", {}, remove=QUEUE)
            wait_for("a warning that it is gone", lambda: "spark.source.interrupted" in caplog.text, DEADLINE)
            suite.edit("addresses.json", QUEUE)
            suite.wait_ready()
            send(suite.url, 2)
            wait_for("the second message", lambda: reader.reportLatestOffset()["record"] == 2, DEADLINE)
            wait_for("a warning that it is back", lambda: "spark.source.resumed" in caplog.text, DEADLINE)
        finally:
            reader.stop()
