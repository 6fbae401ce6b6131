"""Client of the HTTP endpoint of `enmasse up`: its paths are passed on, its status gives the components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from enmasse.api.types import Component, Window
from enmasse.http.async_client import AsyncClient
from enmasse.http.http11 import MAX_ANSWER
from enmasse.identity.processes.operator import BEARER, read_line
from enmasse.process.settings import host_port
from enmasse.spark_jobs import Query
from services.console.errors import RequestError

SECONDS = 60.0


class SuiteProcesses(msgspec.Struct):
    """Processes of the suite. `certificates`: sentences about certificates that expire or cannot be used."""

    components: list[Component] = []
    certificates: list[str] = []


class Pipeline(msgspec.Struct):
    """The Spark pipeline beside the suite: its queries, and its newest windows."""

    queries: list[Query] = []
    windows: list[Window] = []


class Supervisor:
    """The endpoint at `address` (host:port). `secret`: the file with the operator's secret."""

    def __init__(self, address: str, secret: str | None) -> None:
        self._client = AsyncClient(*host_port(address), timeout=SECONDS)
        self._secret = None if secret is None else Path(secret)

    async def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> tuple[int, str, bytes]:
        """Return status, content type and body of an answer. Raises RequestError."""
        try:
            answer = await self._client.request(method, path, headers, body, most=MAX_ANSWER)
        except (OSError, ValueError):
            raise RequestError("console.service.unavailable", "`enmasse up` does not answer; try again") from None
        return answer.status, answer.headers.get("content-type", "text/plain"), answer.body

    def headers(self) -> dict[str, str]:
        """Return the headers of a request of the console itself."""
        secret = None if self._secret is None else read_line(self._secret)
        return {} if secret is None else {"Authorization": f"{BEARER}{secret}"}

    async def order(self, path: str, body: Any) -> tuple[bool, str]:
        """POST an order: whether it was accepted, and the reason or what happens. Raises RequestError."""
        headers = self.headers() | {"Content-Type": "application/json"}
        _, _, content = await self.send("POST", path, headers, msgspec.json.encode(body))
        answer = msgspec.json.decode(content)
        return bool(answer.get("accepted")), str(answer.get("message", ""))

    async def pipeline(self) -> Pipeline:
        """Return the state of the Spark pipeline. Raises RequestError."""
        status, _, content = await self.send("GET", "/api/queries", self.headers(), None)
        if status != 200:
            raise RequestError("console.service.failed", f"`enmasse up` answered with status {status}")
        try:
            return msgspec.json.decode(content, type=Pipeline)
        except msgspec.DecodeError:
            raise RequestError("console.service.failed", "the answer of `enmasse up` cannot be read") from None

    async def components(self) -> dict[str, Component]:
        """Return the processes of the suite by name. Raises RequestError."""
        return {each.name: each for each in (await self.suite()).components}

    async def suite(self) -> SuiteProcesses:
        """Return the processes of the suite, and what is wrong with its certificates. Raises RequestError."""
        status, _, content = await self.send("GET", "/api/components", self.headers(), None)
        if status != 200:
            raise RequestError("console.service.failed", f"`enmasse up` answered with status {status}")
        try:
            return msgspec.json.decode(content, type=SuiteProcesses)
        except msgspec.DecodeError:
            raise RequestError("console.service.failed", "the answer of `enmasse up` cannot be read") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
