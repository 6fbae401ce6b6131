"""Asks a child how it is: GET /healthz on its health port (docs/contracts.md)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

TIMEOUT = 2.0
MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class Health:
    """What a child says about itself. `endpoints`: name → host:port it serves on."""

    ready: bool
    detail: str
    endpoints: dict[str, str] = field(default_factory=dict)


async def probe(host: str, port: int) -> Health:
    """One question, answered within two seconds; never raises but for cancellation."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return _read_health(await _get(host, port))
    except TimeoutError:
        return Health(False, f"does not answer its health check within {TIMEOUT:g} s")
    except ConnectionRefusedError:
        return Health(False, "starting")
    except (OSError, ValueError) as error:
        return Health(False, f"health check failed: {error}")


async def _get(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n" % (host.encode(), port))
        answer = bytearray()
        while chunk := await reader.read(65536):
            answer += chunk
            if len(answer) > MAX_ANSWER:
                raise ValueError("answer too long")
        return bytes(answer)
    finally:
        writer.close()


def _read_health(answer: bytes) -> Health:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    value = json.loads(body) if body else None
    if not status or not isinstance(value, dict):
        raise ValueError("not a health answer")
    endpoints = value.get("endpoints")
    return Health(
        ready=status[0] == b"200" and value.get("ready") is True,
        detail=str(value.get("detail") or ""),
        endpoints={str(k): str(v) for k, v in endpoints.items()} if isinstance(endpoints, dict) else {},
    )
