"""Health probe of a child: GET /healthz on its health port (docs/contracts.md).

HTTP by hand: aiohttp costs the supervisor a quarter of a second and 12 MiB, for this one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import re

from enmasse.engines.program import ChildHealth
from enmasse.storage.decoding import decode_any

TIMEOUT = 2.0
MAX_ANSWER = 1 << 20


class Probe:
    """Probes one child repeatedly, over one connection that is kept open."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._last: tuple[bytes, ChildHealth] | None = None
        self._request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: keep-alive\r\n\r\n".encode()

    async def ask(self) -> ChildHealth:
        """Probe once, within two seconds; raises nothing but cancellation."""
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._exchange()
            if self._last is None or answer != self._last[0]:  # rare: answers stay equal for hours
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
        """Close the connection, if there is one; the next question opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self) -> bytes:
        if self._streams is not None:
            with contextlib.suppress(OSError):
                answer = await self._get(*self._streams)
                if answer:
                    return answer
            self.close()  # the connection belongs to an ended process, or was idle for too long
        self._streams = await asyncio.open_connection(self._host, self._port)
        return await self._get(*self._streams)

    async def _get(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Read an answer: by its stated length, or up to the end of the connection."""
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


def _end(answer: bytes) -> int | None:
    """Return the length of the answer if the peer states it and keeps the connection, otherwise None."""
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
