"""Asks a child how it is: GET /healthz on its health port (docs/contracts.md)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from enmasse.decoding import decode_any

TIMEOUT = 2.0
MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class ChildHealth:
    """A child's answer to /healthz. `endpoints`: name → host:port it serves on; `counts`: name → number."""

    ready: bool
    detail: str
    endpoints: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Probe:
    """Asks one child again and again, over one connection as long as that lasts."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._last: tuple[bytes, ChildHealth] | None = None
        self._request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: keep-alive\r\n\r\n".encode()

    async def ask(self) -> ChildHealth:
        """One question, answered within two seconds; never raises but for cancellation."""
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._exchange()
            if self._last is None or answer != self._last[0]:  # seldom: they are the same for hours
                self._last = (answer, _read_health(answer))
            return self._last[1]
        except TimeoutError:
            self.close()
            return ChildHealth(False, f"does not answer its health check within {TIMEOUT:g} s")
        except ConnectionRefusedError:
            return ChildHealth(False, "starting")
        except (OSError, ValueError) as error:
            return ChildHealth(False, f"health check failed: {error}")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self) -> bytes:
        if self._streams is not None:
            with contextlib.suppress(OSError):
                answer = await self._get(*self._streams)
                if answer:
                    return answer
            self.close()  # it is of a process that has ended, or was kept for too long
        self._streams = await asyncio.open_connection(self._host, self._port)
        return await self._get(*self._streams)

    async def _get(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """An answer: as long as its head states, or up to the end of the connection."""
        writer.write(self._request)
        answer = bytearray()
        end: int | None = None
        while len(answer) != end and (chunk := await reader.read(65536)):
            answer += chunk
            if len(answer) > MAX_ANSWER:
                self.close()
                raise ValueError("answer too long")
            if end is None and b"\r\n\r\n" in answer:
                end = _end(bytes(answer))
        if len(answer) != end:
            self.close()
        return bytes(answer)


class LazyProbe:
    """The probe `name` of `module`, made with these arguments when it asks first: until then the processes are being
    started, and its library is not imported.
    """

    def __init__(self, module: str, name: str, *arguments: str) -> None:
        self._module, self._name, self._arguments = module, name, arguments
        self._probe: Any = None

    async def ask(self) -> ChildHealth:
        if self._probe is None:
            module = await asyncio.to_thread(importlib.import_module, self._module)
            self._probe = getattr(module, self._name)(*self._arguments)
        health: ChildHealth = await self._probe.ask()
        return health

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()


def _end(answer: bytes) -> int | None:
    """How long the answer is, if the peer states it and keeps the connection."""
    head, _, _ = answer.partition(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: *([0-9]{1,9})\r\n", head + b"\r\n", re.IGNORECASE)
    kept = re.search(rb"\r\nConnection: *keep-alive\r\n", head + b"\r\n", re.IGNORECASE)
    return len(head) + 4 + int(length[1]) if length and kept else None


def _read_health(answer: bytes) -> ChildHealth:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    value = decode_any(body) if body else None
    if not status or not isinstance(value, dict):
        raise ValueError("not a health answer")
    endpoints, counts = value.get("endpoints"), value.get("counts")
    return ChildHealth(
        ready=status[0] == b"200" and value.get("ready") is True,
        detail=str(value.get("detail") or ""),
        endpoints={str(k): str(v) for k, v in endpoints.items()} if isinstance(endpoints, dict) else {},
        counts={str(k): v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {},
    )
