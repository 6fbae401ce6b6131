"""Ends of jobs: what becomes of their state, and what auditors read."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from enmasse.amqp.messages.message import Message
from enmasse.api.types import Job
from enmasse.engines.messages.product import WaitingMessage
from enmasse.identity.annotations import RETAIN, RETAINED_BY
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.jobs import queue_messages
from services.console.jobs.jobs import Jobs, Running
from tests.kit.logs import logged
from tests.kit.running import asyncio_test

PURGE = Job(id="", address="a", operation="purge", state="running", user="jane")


def test_a_message_that_is_shown_has_no_seal() -> None:
    payload = Message("x", annotations={RETAINED_BY: b"seal", RETAIN: True}).encode()
    row = WaitingMessage(
        1, len(payload), durable=True, priority=4, expires=0, payload=payload, body=payload.index(b"\x00Sw")
    )
    assert queue_messages.shown("b0", row, 100, bodies=True).annotations == {RETAIN: True}


@pytest.mark.parametrize(
    ("end", "outcome"),
    [("returns", "done"), ("is refused", "failed"), ("fails", "failed"), ("console ends", "cancelled")],
)
def test_auditors_read_how_a_job_ended(end: str, outcome: str, tmp_path: Path) -> None:
    async def work(running: Running) -> None:
        running.done = 7
        if end == "is refused":
            raise RequestError("console.change.refused", "no")
        if end == "fails":
            raise KeyError(end)
        if end == "console ends":
            await asyncio.Event().wait()

    @asyncio_test
    async def main() -> None:
        jobs = Jobs()
        caller = Caller("operator")
        running = await jobs.begin(caller, PURGE, work, partial(queue_messages.audit, caller=caller, host="::1"))
        await jobs.close()
        assert running.now.state == outcome

    with logged(audit_file=tmp_path / "audit.log"):
        main()
    (line,) = map(json.loads, (tmp_path / "audit.log").read_text().splitlines())
    assert (line["event"], line["outcome"], line["result"]) == ("audit.messages.ordered", outcome, 7)
