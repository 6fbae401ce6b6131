"""Client of HTTP for event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from enmasse.http.http11 import NONE, REPEATED, Answer, AnswerError, HttpMessages

READ_BYTES = 8 << 10
"""The event loop works on the chunks of one read before it turns to others."""


class _Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    messages: HttpMessages


class AsyncClient:
    """Requests to one server, side by side; connections that the server keeps are used again. `timeout`: seconds from
    the connect to the last byte. Requests raise OSError and AnswerError."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None, timeout: float = 30.0) -> None:
        self._host, self._port, self._tls, self._timeout = host, port, tls, timeout
        self._all: set[_Streams] = set()
        self._idle: list[_Streams] = []

    async def request(
        self, method: str, target: str, headers: Mapping[str, str] = NONE, body: bytes | None = None, *, most: int
    ) -> Answer:
        """Return an answer, with a body of at most `most` bytes."""
        async with asyncio.timeout(self._timeout):
            while self._idle:
                streams = self._idle.pop()
                if streams.reader.at_eof():
                    self._end(streams)
                    continue
                try:
                    return await self._whole(streams, method, target, headers, body, most)
                except ConnectionError:
                    if method not in REPEATED:
                        raise
            streams = _Streams(
                *await asyncio.open_connection(self._host, self._port, ssl=self._tls),
                HttpMessages(self._host, self._port),
            )
            self._all.add(streams)
            return await self._whole(streams, method, target, headers, body, most)

    def close(self) -> None:
        """Close all connections, which ends the requests on them; the next request opens another."""
        self._idle.clear()
        for streams in list(self._all):
            self._end(streams)

    async def _whole(
        self, streams: _Streams, method: str, target: str, headers: Mapping[str, str], body: bytes | None, most: int
    ) -> Answer:
        kept = False
        try:
            streams.writer.write(streams.messages.request(method, target, headers, body))
            reading = streams.messages.whole(most)
            try:
                next(reading)
                while True:
                    data = await streams.reader.read(READ_BYTES)
                    if streams not in self._all:
                        raise AnswerError("the client was closed")
                    reading.send(data)
            except StopIteration as done:
                answer: Answer = done.value
            kept = streams.messages.kept()
        finally:
            if kept:
                self._idle.append(streams)
            else:
                self._end(streams)
        return answer

    def _end(self, streams: _Streams) -> None:
        self._all.discard(streams)
        streams.writer.close()
