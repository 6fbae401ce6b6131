"""Health probe of a child: GET /healthz on its health port (docs/contracts.md)."""

from __future__ import annotations

from enmasse.engines.program import ChildHealth
from enmasse.http.async_client import AsyncClient
from enmasse.http.http11 import Answer
from enmasse.storage.decoding import decode_any

TIMEOUT = 2.0
MAX_ANSWER = 1 << 20
KEPT = {"Connection": "keep-alive"}


class Probe:
    """Probes one child repeatedly, over one connection that is kept open."""

    def __init__(self, host: str, port: int) -> None:
        self._client = AsyncClient(host, port, timeout=TIMEOUT)
        self._last: tuple[int, bytes, ChildHealth] | None = None

    async def ask(self) -> ChildHealth:
        """Probe once, within two seconds; raises nothing but cancellation."""
        try:
            answer = await self._client.request("GET", "/healthz", KEPT, most=MAX_ANSWER)
            if self._last is None or self._last[:2] != (answer.status, answer.body):  # rare: it stays equal for hours
                self._last = (answer.status, answer.body, _read_health(answer))
            return self._last[2]
        except TimeoutError:
            return ChildHealth(False, f"does not answer its health check within {TIMEOUT:g} s", hung=True)
        except ConnectionRefusedError:
            return ChildHealth(False, "starting")
        except (OSError, ValueError) as error:
            return ChildHealth(False, f"health check failed: {error}")

    def close(self) -> None:
        """Close the connection, if there is one; the next question opens another."""
        self._client.close()


def _read_health(answer: Answer) -> ChildHealth:
    value = decode_any(answer.body) if answer.body else None
    if not isinstance(value, dict):
        raise ValueError("not a health answer")
    endpoints, counts, routes = (value.get(each) for each in ("endpoints", "counts", "routes"))
    return ChildHealth(
        ready=answer.status == 200 and value.get("ready") is True,
        detail=str(value.get("detail") or ""),
        endpoints={str(k): str(v) for k, v in endpoints.items()} if isinstance(endpoints, dict) else {},
        counts={str(k): v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {},
        routes=routes if isinstance(routes, dict) else {},
    )
