"""TLS 1.3 KeyUpdate: a gateway answers each one, which counts as output that the client does not read."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, Connect
from services.mqtt_gateway.network import wire
from tests.amqp.test_key_updates import flood
from tests.certificates import Authority
from tests.kit.waiting import wait_for
from tests.mqtt_gateway.live import live


@pytest.mark.slow  # test_hostile.py, and test_key_updates.py of amqp
def test_key_updates_of_a_client_that_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HIGH_WATER", 4096)
    monkeypatch.setattr(wire, "LOW_WATER", 1024)
    authority = Authority(tmp_path)
    cert, key = authority.issue("gateway")
    with live(Limits(stall_seconds=1), str(cert), str(key)) as gateway, contextlib.ExitStack() as stack:
        raw = stack.enter_context(socket.socket())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", gateway.ports["mqtts"]))
        client = stack.enter_context(authority.client_context().wrap_socket(raw, server_hostname="localhost"))
        assert client.version() == "TLSv1.3"
        client.sendall(encode.encode(Connect("flooder"), V5, True))
        wait_for(lambda: gateway.clients == 1, "the client is in")
        client.setblocking(False)
        ended = threading.Event()
        flooding = threading.Thread(target=flood, args=(client, ended))
        flooding.start()
        try:
            wait_for(lambda: gateway.clients == 0, "the client is disconnected")
        finally:
            ended.set()
            flooding.join()
