"""HTTP of the supervisor, on loopback: health, status, metrics, and the orders `scale`, `restart`, `reload` and
`force`. Commands on this machine ask here; the console passes these paths on, but for `reload`.

Requests other than those for health and `/api/suite` need the operator's secret (`Authorization: Bearer …`). A web page
in a browser on this machine must be able neither to read nor to change anything here. So the Host header must name
loopback (a page whose name resolves to 127.0.0.1 fails), an Origin must be loopback too, and commands must be declared
as JSON, which a foreign page cannot do without a CORS preflight request, which is not answered.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

import enmasse
from enmasse.http.health import Heartbeat
from enmasse.http.webserver import Bounds, LoopBlocked, Request, Response, WebServer, in_loop, plain
from enmasse.identity.processes.operator import BEARER, OPERATOR, SECRET_FILE
from enmasse.logs import log
from enmasse.logs.audit import RepeatedEvents
from enmasse.metrics import CONTENT_TYPE, text
from enmasse.model.loopback import NAMES, host_of
from enmasse.model.names import AddressName, by_space
from enmasse.process.process_bounds import ProcessBounds
from enmasse.storage.decoding import decode_any
from enmasse.supervisor import metrics
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.suite import Supervisor
from enmasse.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OPEN = frozenset({"/livez", "/readyz", "/healthz", "/api/suite"})
"""Paths that are answered without the operator's secret; the last one shows commands where its file is."""
JSON = "application/json; charset=utf-8"
MAX_NAMES = 10_000
MAX_SHOWN = 100
"""Names of addresses in an audit event."""
MAX_REASON = 1000
"""Characters of a reason in an audit event."""
BOUNDS = Bounds(
    connections=64, request_seconds=10.0, answer_seconds=60.0, head_bytes=16 << 10, body_bytes=1 << 20,
    keeps_connections=False,
)  # fmt: skip
LOOP_SECONDS = 30.0
"""Seconds for the suite to answer: `force` waits for the configuration service."""

_refused_requests: RepeatedEvents[tuple[str, str]] = RepeatedEvents(time.monotonic)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def serve(listening: socket.socket, suite: Supervisor, bounds: Bounds = BOUNDS) -> WebServer:
    """Serve HTTP on a socket that already listens; called in the event loop of the suite. See docs/contracts.md."""
    loop = asyncio.get_running_loop()
    heartbeat = Heartbeat(loop)
    routes = _routes(suite)

    async def scraped() -> list[tuple[str, str, int]]:
        await suite.refresh()
        return suite.scraped()

    async def collect(answers: list[tuple[str, bytes]]) -> list[Metric]:
        return list(metrics.families(suite.status(), suite.options.metrics_addresses, answers))

    def answer(request: Request) -> Response:
        if request.path == "/livez":
            return heartbeat.liveness()
        try:
            if (request.path, request.method) in (("/metrics", "GET"), ("/metrics", "HEAD")):
                answers = metrics.ask(in_loop(loop, scraped, LOOP_SECONDS), suite.operator_secret)
                families = in_loop(loop, lambda: collect(answers), LOOP_SECONDS)
                return Response(200, CONTENT_TYPE, text(families) + metrics.of_components(answers, families))
            methods = routes.get(request.path)
            if methods is None:
                return plain(404, "try /healthz, /api/status or /metrics")
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                return plain(405, f"only {', '.join(methods)}")
            return in_loop(loop, lambda: handler(request), LOOP_SECONDS)
        except LoopBlocked as blocked:
            return _refused(str(blocked), 503)

    server = WebServer(listening, answer, bounds, lambda request: _refusal(request, suite.operator_secret))
    server.start()
    return server


def _routes(suite: Supervisor) -> dict[str, dict[str, Handler]]:
    """Return path → method → handler; handlers run in the event loop."""

    async def health(_: Request) -> Response:
        await suite.refresh()
        brief = suite.brief()
        ready = brief["ready"]
        detail = "" if ready else "not all components and addresses are ready: see /api/status"
        if ready and brief["degraded"]:
            detail = f"degraded: {'; '.join(brief['degraded'])}"
        return _json({"ready": ready, "detail": detail}, 200 if ready else 503)

    async def status(_: Request) -> Response:
        await suite.refresh()
        return Response(200, JSON, suite.status_text())

    async def brief(_: Request) -> Response:
        await suite.refresh()
        return _json(suite.brief())  # `enmasse status --wait` requests this ten times a second

    async def components(_: Request) -> Response:
        await suite.refresh()
        certificates = suite.certificate_troubles
        return _json(
            {"schema": 1, "components": suite.components(), "certificates": certificates}
        )  # the console requests this each second

    async def queries(_: Request) -> Response:
        return _json({"schema": 1, **await suite.queries()})

    async def about(_: Request) -> Response:
        options = suite.options
        return _json(
            {
                "schema": 1,
                "version": enmasse.__version__,
                "pid": os.getpid(),
                "config_dir": str(options.config),
                "data_dir": str(options.data),
                "ports": options.public_ports.all(),
            }
        )

    async def scale(request: Request) -> Response:
        body = _object(request.body)
        if wrong := _unknown_field(body, "service", "count", "most"):
            return wrong
        service, count = body.get("service"), body.get("count")
        most = body.get("most", count)
        if not isinstance(service, str) or not (_is_count(count) and _is_count(most) and count <= most):
            expected = '{"service": NAME, "count": N}, N a whole number from 0, with "most" too: bounds of the number'
            return _refused(f"expected {expected}", 400)
        bounds = ProcessBounds(count, most)
        accepted, sentence = suite.scale(service, bounds)
        _audit(request, f"scale {service[:100]}={bounds}", sentence)
        return _json({"accepted": True, "message": sentence}) if accepted else _refused(sentence, 409)

    async def restart(request: Request) -> Response:
        body = _object(request.body)
        if wrong := _unknown_field(body, "component"):
            return wrong
        name = body.get("component")
        if not _is_name(name):
            return _refused('expected {"component": NAME}', 400)
        accepted, sentence = suite.restart(name)
        _audit(request, f"restart {name[:100]}", sentence[:MAX_REASON])
        return _json({"accepted": True, "message": sentence}) if accepted else _refused(sentence, 409)

    async def reload(request: Request) -> Response:
        try:
            found = await suite.reload()
        except StartError as error:
            _audit(request, "reload", f"refused: {error}"[:MAX_REASON])
            return _refused(str(error), 409)
        except OSError as error:
            return _refused(f"{error.filename or suite.data.run}: {error.strerror}", 503)
        _audit(request, "reload", str(found))
        return _json(found.as_json())

    async def force(request: Request) -> Response:
        body = _object(request.body)
        if wrong := _unknown_field(body, "addresses"):
            return wrong
        names = body.get("addresses")
        if not _are_names(names):
            return _refused('expected {"addresses": [NAME, …]}', 400)
        reason = await suite.force(names)
        for space, of_space in by_space(map(AddressName, names)).items():
            what = f"delete with messages: {' '.join(of_space[:MAX_SHOWN])}"
            _audit(request, what, reason or "ordered", addresses=len(of_space), space=space)
        if reason:
            return _refused(reason, 503)
        return _json({"accepted": True, "message": ""})

    return {
        "/healthz": {"GET": health},
        "/readyz": {"GET": health},
        "/api/status": {"GET": status},
        "/api/ready": {"GET": brief},
        "/api/components": {"GET": components},
        "/api/queries": {"GET": queries},
        "/api/suite": {"GET": about},
        "/api/scale": {"POST": scale},
        "/api/restart": {"POST": restart},
        "/api/reload": {"POST": reload},
        "/api/force": {"POST": force},
    }


def _refusal(request: Request, secret: str) -> Response | None:
    """Return the refusal of a request that is not an operator's, or may come from a web page; None for the others."""
    origin = request.headers.get("Origin")
    if host_of(f"//{request.headers.get('Host', '')}") not in NAMES:
        return _refused("the Host header must name loopback: localhost, 127.0.0.1 or [::1]", 403)
    if origin is not None and host_of(origin) not in NAMES:
        return _refused("requests from other web sites are not answered", 403)
    if request.method == "POST" and request.headers.get_content_type() != "application/json":
        return _refused("the Content-Type must be application/json", 415)
    if request.path in OPEN:
        return None if request.method in ("GET", "HEAD") else _refused("only GET", 405)
    if not hmac.compare_digest(
        request.headers.get("Authorization", "").encode("utf-8", "replace"), f"{BEARER}{secret}".encode()
    ):
        log.get().warning("suite.request.refused", method=request.method, path=request.path[:100])
        host = request.peer.rpartition(":")[0]
        what = f"{request.method} {request.path[:100]}"
        if count := _refused_requests.count((host, what)):
            log.audit("audit.request.refused", who=None, from_=host, what=what, outcome="refused", count=count)
        return _refused(
            f"needs the header `Authorization: {BEARER}SECRET`; the secret is in run/{SECRET_FILE} in the data folder. "
            "The console takes a user and password too (HTTP Basic)",
            401,
        )
    return None


def _audit(request: Request, what: str, outcome: str, **facts: Any) -> None:
    log.audit(
        "audit.suite.ordered", who=OPERATOR, role=OPERATOR, from_=request.peer, what=what, outcome=outcome, **facts
    )


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = decode_any(content)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {}


def _unknown_field(body: dict[str, Any], *known: str) -> Response | None:
    """Return the refusal of a body with an unknown field; None without one."""
    name = next((each for each in body if each not in known), None)
    if name is None:
        return None
    return _refused(f"unknown field {printable(name)[:100]!r}: a body may have {', '.join(known)}", 400)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and 0 < len(value) <= MAX_NAMES and all(map(_is_name, value))


def _is_name(value: object) -> TypeGuard[str]:
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _json(body: Any, status: int = 200) -> Response:
    return Response(status, JSON, msgspec.json.encode(body))


def _refused(reason: str, status: int) -> Response:
    return _json({"accepted": False, "message": reason}, status)
