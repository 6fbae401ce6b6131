"""A gateway process with a real router and a real configuration service, and a client of raw frames."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from enmasse.testing import free_port
from enmasse.wire_formats.stomp_frames import StompFrame, StompParser, encoded
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.processes import start_service
from tests.kit.waiting import DEADLINE, wait_for
from tests.mqtt_gateway.environment import ADDRESSES, Router


class RawClient:
    """Frames over a socket, read and written one by one."""

    def __init__(self, port: int, version: str = "1.2", **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.version = version
        self._parser = StompParser(1 << 26)
        self._parser.version = version
        self._headers = {"accept-version": version, "host": "localhost", **headers}

    def connect(self) -> StompFrame:
        self.send("CONNECT", **self._headers)
        found = self.read()
        assert found.command == "CONNECTED", found
        return found

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        named = [(name if name[0] == "_" else name.replace("_", "-"), value) for name, value in headers.items()]
        self.write(encoded(command, named, body, self.version))

    def ask(self, command: str, body: bytes = b"", /, **headers: str) -> StompFrame:
        """Send a frame with a receipt, and return the next frame."""
        self.send(command, body, receipt="r", **headers)
        return self.read()

    def done(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        found = self.ask(command, body, **headers)
        assert (found.command, found.headers.get("receipt-id")) == ("RECEIPT", "r"), found

    def read(self) -> StompFrame:
        """Return the next frame. Raises EOFError once the gateway has closed."""
        while (found := self._parser.next()) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._parser.feed(data)
        return found

    def error(self) -> StompFrame:
        """Return the ERROR that comes, after which the connection is closed."""
        found = self.read()
        assert found.command == "ERROR", found
        try:
            while True:
                self.read()
        except (EOFError, ConnectionResetError):
            return found

    def close(self) -> None:
        self.socket.close()


class Running(NamedTuple):
    """`port`: of the gateway; `web`: for WebSockets; `clients`: of the router, for AMQP clients."""

    port: int
    tls: int
    web: int
    clients: int
    health: int
    pid: int
    configserv: Configserv

    def raw(self, version: str = "1.2", **headers: str) -> RawClient:
        client = RawClient(self.port, version, **headers)
        client.connect()
        return client

    def metric(self, name: str) -> float:
        # limit: a whole page of metrics
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=DEADLINE) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextmanager
def running(folder: Path, tls: tuple[str, str] | None = None, **more: Any) -> Iterator[Running]:
    configserv = Configserv(folder)
    configserv.write("flavors.json", FLAVORS)
    configserv.write("addresses.json", ADDRESSES)
    configserv.start()
    router = Router(folder)
    router.start()
    port, web, secure, health = free_port(), free_port(), free_port() if tls else 0, free_port()
    kinds = {"stomp": port, "stompws": web}
    listeners = [{"kind": kind, "host": "127.0.0.1", "port": number} for kind, number in kinds.items()]
    if tls:
        listeners.append({"kind": "stomps", "host": "127.0.0.1", "port": secure, "cert": tls[0], "key": tls[1]})
    settings = {
        "name": "stomp-1",
        "health": f"127.0.0.1:{health}",
        "router": f"127.0.0.1:{router.services}",
        "configserv": configserv.settings["listen"],
        "listeners": listeners,
        **more,
    }
    file = folder / "gateway.json"
    file.write_text(json.dumps(settings))
    with (folder / "gateway.log").open("wb") as log:
        process = start_service("stomp_gateway", file, log=log)

    def ready() -> bool:
        assert process.poll() is None, (folder / "gateway.log").read_text()
        try:
            # limit: it is asked again
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/healthz", timeout=10) as answer:
                return bool(json.load(answer)["ready"])
        except OSError:
            return False

    try:
        wait_for(ready, "the gateway is ready")
        yield Running(port, secure, web, router.clients, health, process.pid, configserv)
        assert not process.poll(), (folder / "gateway.log").read_text()
    finally:
        process.terminate()
        process.wait()
        router.kill()
        configserv.stop()
