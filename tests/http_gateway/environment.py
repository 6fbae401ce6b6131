"""A gateway process with a real router and a real configuration service."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from enmasse.testing import free_port
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.processes import Program, service, start_service
from tests.kit.waiting import DEADLINE, wait_for
from tests.mqtt_gateway.environment import ADDRESSES, Router


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Running(NamedTuple):
    """`port`: of the gateway; `tls`: with TLS, 0 without; `clients`: of the router, for AMQP clients."""

    port: int
    tls: int
    clients: int
    health: int
    pid: int
    configserv: Configserv

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, body, headers or {})
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()


HTTP_GATEWAY = service("http_gateway")


@contextmanager
def running(
    folder: Path, tls: tuple[str, str] | None = None, program: Program = HTTP_GATEWAY, **more: Any
) -> Iterator[Running]:
    configserv = Configserv(folder)
    configserv.write("flavors.json", FLAVORS)
    configserv.write("addresses.json", ADDRESSES)
    configserv.start()
    router = Router(folder)
    router.start()
    try:
        with beside(folder, configserv, router, tls, program, **more) as found:
            yield found
    finally:
        router.kill()
        configserv.stop()


@contextmanager
def beside(
    folder: Path,
    configserv: Configserv,
    router: Router,
    tls: tuple[str, str] | None = None,
    program: Program = HTTP_GATEWAY,
    **more: Any,
) -> Iterator[Running]:
    """Run a gateway beside a configuration service and a router that run."""
    port, secure, health = free_port(), free_port() if tls else 0, free_port()
    listeners = [{"kind": "http", "host": "127.0.0.1", "port": port}]
    if tls:
        listeners.append({"kind": "https", "host": "127.0.0.1", "port": secure, "cert": tls[0], "key": tls[1]})
    settings = {
        "name": "http-1",
        "health": f"127.0.0.1:{health}",
        "router": f"127.0.0.1:{router.services}",
        "configserv": configserv.settings["listen"],
        "listeners": listeners,
        **more,
    }
    file = folder / "gateway.json"
    file.write_text(json.dumps(settings))
    with (folder / "gateway.log").open("wb") as log:
        process = start_service(program, file, log=log)

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
        yield Running(port, secure, router.clients, health, process.pid, configserv)
        assert not process.poll(), (folder / "gateway.log").read_text()
    finally:
        process.terminate()
        process.wait()
