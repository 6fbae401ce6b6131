"""A gateway that leaves: each client gets ERROR at a quiet moment, what it had not acknowledged goes to another one."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.kit.health import detail, has_ended
from tests.kit.waiting import wait_for
from tests.stomp_gateway.stomp_environment import RawClient, running


def test_all_clients_are_told_to_connect_again(tmp_path: Path) -> None:
    with running(tmp_path, leave_within=600.0) as gateway:
        silent = socket.create_connection(("127.0.0.1", gateway.port))
        idle, holding, sending = gateway.raw(), gateway.raw(), gateway.raw()
        idle.done("SUBSCRIBE", id="1", destination="news")
        holding.done("SUBSCRIBE", id="1", destination="ask", ack="client-individual")
        sending.send("SEND", b"held", receipt="s", destination="ask")
        assert holding.read().body == b"held"
        os.kill(gateway.pid, signal.SIGTERM)
        wait_for(lambda: detail(gateway.health).startswith("leaving, "), "it leaves")
        with pytest.raises(ConnectionRefusedError):
            RawClient(gateway.port)
        for client in (idle, holding):
            assert client.error().headers["message"] == "the gateway ends"
        found = sending.read()  # its message was given back
        assert found.headers["message"]
        assert silent.recv(1) == b""
        wait_for(lambda: has_ended(gateway.pid), "it ends long before 600 s")
        silent.close()
