"""Client of the HTTP endpoint of `enmasse up`: its paths are passed on, its status gives the components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from enmasse.api.types import Component, Window
from enmasse.identity.processes.operator import BEARER, read_line
from enmasse.spark_jobs import Query
from services.console.errors import RequestError

SECONDS = 60.0


class _Components(msgspec.Struct):
    components: list[Component] = []


class Pipeline(msgspec.Struct):
    """The Spark pipeline beside the suite: its queries, and its newest windows."""

    queries: list[Query] = []
    windows: list[Window] = []


class Supervisor:
    """The endpoint at `address` (host:port). `secret`: the file with the operator's secret."""

    def __init__(self, address: str, secret: str | None) -> None:
        self._address = address
        self._secret = None if secret is None else Path(secret)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> tuple[int, str, bytes]:
        """Return status, content type and body of an answer. Raises RequestError."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        url = f"http://{self._address}{path}"
        try:
            async with self._session.request(method, url, headers=headers, data=body, allow_redirects=False) as answer:
                return answer.status, answer.headers.get("Content-Type", "text/plain"), await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            raise RequestError("console.service.unavailable", "`enmasse up` does not answer; try again") from None

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
        status, _, content = await self.send("GET", "/api/components", self.headers(), None)
        if status != 200:
            raise RequestError("console.service.failed", f"`enmasse up` answered with status {status}")
        try:
            found = msgspec.json.decode(content, type=_Components).components
        except msgspec.DecodeError:
            raise RequestError("console.service.failed", "the answer of `enmasse up` cannot be read") from None
        return {each.name: each for each in found}

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
