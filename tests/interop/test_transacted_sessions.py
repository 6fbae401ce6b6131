"""Transacted sessions of Qpid JMS and ProtonJ2: the same scenario at our broker and beside it at Artemis, and through a
router."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import running
from tests.contract.engines import BROKERS
from tests.interop.clients import JMS_VERSIONS, jms, protonj2
from tests.interop.test_clients import Conversation
from tests.interop.test_jms import prefix
from tests.interop.test_jms import run as run_jms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

VERSION = JMS_VERSIONS[-1]
NAMES = ("protonj2-transacted", prefix(VERSION) + "transacted")


@pytest.fixture(scope="module", params=[*BROKERS, "suite"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "suite":
        with running(folder, {name: {"type": "queue", "flavor": "small-persisted-queue"} for name in NAMES}) as suite:
            suite.up()
            yield 5672 + suite.offset
        return
    broker = BROKERS[request.param](folder)
    try:
        broker.start()
        with broker.manage() as m:
            for name in NAMES:
                m.queue(name)
        yield int(broker.url.rpartition(":")[2])
        with broker.manage() as m:
            assert [m.count(name) for name in NAMES] == [0, 0]
    finally:
        broker.end()


def test_protonj2(port: int) -> None:
    conversation = Conversation([*protonj2(), "127.0.0.1", str(port), "protonj2-"])
    try:
        conversation.run("transacted")
    finally:
        conversation.end()


def test_qpid_jms(port: int) -> None:
    assert run_jms(jms(VERSION), "broker", port, VERSION, "transacted") == {"transacted": ""}
