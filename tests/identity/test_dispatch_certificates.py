"""Qpid Dispatch with a certificate of the suite, configured as in the chart: it dials, and is dialled, by EXTERNAL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.identity.processes.process_certificates import Certificate
from enmasse.identity.processes.roles import Listener, Peer, Role
from enmasse.testing import free_port
from tests.identity.kit import DEADLINE
from tests.identity.test_process_certificates import Certified, stub
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

pytestmark = pytest.mark.needs("qdrouterd")

TO = {"sslProfile": "identity", "saslMechanisms": "EXTERNAL"}
FROM = {"requireSsl": True, "authenticatePeer": True, **TO}


@pytest.fixture
def suite(tmp_path: Path) -> Certified:
    return Certified(tmp_path)


class Router:
    """A router called `router-s-0` with a listener for services, a connector to an agent and one to a broker."""

    def __init__(self, suite: Certified, agent: int, broker: int) -> None:
        self.port = free_port()
        to = {"host": "localhost", **TO}  # Proton compares the names of hosts only, not addresses
        entities = [
            ["router", {"id": "router-s-0", "mode": "interior"}],
            suite.profile(Role.ROUTER),
            ["connector", {"name": "ragent", "port": str(agent), "role": "normal", **to}],
            ["connector", {"name": "b", "port": str(broker), "role": "route-container", **to}],
            ["listener", {"name": "services", "host": "127.0.0.1", "port": str(self.port), **FROM}],
        ]
        file = suite.folder / "qdrouterd.json"
        file.write_text(json.dumps(entities))
        self._log = (suite.folder / "qdrouterd.log").open("wb")
        command = ["qdrouterd", "--config", str(file)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        print(Path(self._log.name).read_text(errors="replace")[-3000:])  # shown if the test fails


@asyncio_test
async def test_dispatch_connects_and_is_connected_to_by_certificates(suite: Certified) -> None:
    async with (
        stub(Listener.AGENT, suite.of(Role.AGENT)) as agent,
        stub(Listener.BROKER, suite.of(Role.BROKER)) as broker,
    ):
        router = Router(suite, agent.port, broker.port)
        try:
            peer = Peer("router-s", Role.ROUTER, of_service=True)
            await until(lambda: peer in agent.opened and peer in broker.opened)
            own: dict[str, Any] = {"host": "127.0.0.1", "port": router.port, "timeout": DEADLINE}
            async with connect(**own, credential=Certificate(suite.of(Role.GATEWAY))) as c:
                receiver = await c.receiver("x", timeout=DEADLINE)
                sender = await c.sender("x", timeout=DEADLINE)
                sending = asyncio.ensure_future(sender.send(Message("hello"), timeout=DEADLINE))
                delivery = await receiver.receive(timeout=DEADLINE)
                await delivery.accept()
                assert await sending is ACCEPTED
            for wrong in ("another authority", "expired"):
                folder = suite.wrong(wrong)
                assert folder is not None
                with pytest.raises((AmqpError, OSError)):
                    await connect(**own, credential=Certificate(folder)).open()
        finally:
            router.close()
