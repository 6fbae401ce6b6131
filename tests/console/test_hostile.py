"""Hostile requests: made from the OpenAPI document, and such as are no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from enmasse.testing import Suite
from services.console.rest.api import problems
from tests.console.client import Client, of
from tests.kit.waiting import DEADLINE, wait_for

EXAMPLES = 1
"""For each operation, valid ones and invalid ones each; the same in every run."""
LEFT_OUT = ("/users", "/login", "/logout")
"""Writing there takes anonymous access from the suite that others share."""


def described(client: Client) -> dict[str, Any]:
    """Return the OpenAPI document without what would not end, or lock out the others."""
    document: dict[str, Any] = client("GET", "openapi.json").body
    del document["security"], document["components"]["securitySchemes"]
    for path, methods in list(document["paths"].items()):
        for method, operation in list(methods.items()):
            parameters = operation.get("parameters", ())
            operation["parameters"] = [each for each in parameters if each["name"] != "watch"]
            if method != "get" and any(each in path for each in LEFT_OUT):
                del methods[method]
    return document


@pytest.fixture
def kept(client: Client) -> Iterator[None]:
    """Addresses and flavors are afterwards those that there were."""
    before = {kind: _names(client, kind) for kind in ("addresses", "flavors")}
    yield
    for kind, names in before.items():
        for name in _names(client, kind) - names:
            assert client("DELETE", f"{kind}/{of(name)}", If_Match="*").status in (204, 404)
    wait_for(lambda: all(_names(client, kind) == names for kind, names in before.items()))


def _names(client: Client, kind: str) -> set[str]:
    return {each["name"] for each in client.items(f"{kind}?limit=1000")}


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_every_answer_is_one_that_the_document_describes(client: Client) -> None:
    import schemathesis  # here: it takes half a second, in every process of pytest that collects this file
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi import checks

    wanted = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    schema = schemathesis.openapi.from_dict(described(client))
    schema.config.update(base_url=f"http://127.0.0.1:{client.port}")
    tried = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        tried.add(operation.label)
        for mode in schemathesis.GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            def send(case: Any) -> None:
                answer = case.call_and_validate(checks=wanted)
                assert b"log of the console" not in answer.content, "an error of the console itself"

            with contextlib.suppress(Unsatisfiable):  # there is nothing that could be wrong in the request
                send()
    assert len(tried) > 20 and client("GET", "me").status == 200


def test_a_check_of_users_makes_no_users(suite: Suite, client: Client) -> None:
    """With users.json, also an empty one, everyone needs a login."""
    checked = client("POST", "config", {"kind": "users", "set": {"ann": {"permissions": []}}})
    assert checked.body["accepted"] and not (suite.config / "users.json").exists()
    assert not client("POST", "config", {"kind": "users", "set": {"ann": {"nonsense": 1}}}).body["accepted"]
    assert not (suite.config / "users.json").exists()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /api/v1/me?" + b"<script>" * 4096 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nX: <script>\x00\r\n\r\n",
        b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"<script>\r\n\r\n",
    ],
    ids=["long", "control character", "two lengths", "no HTTP"],
)
def test_what_is_no_request_gets_a_problem_that_repeats_nothing_of_it(sent: bytes, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), 60) as peer:
        peer.sendall(sent)
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.") and b" 400 " in head.splitlines()[0]
    assert b"application/problem+json" in head and b"X-Content-Type-Options: nosniff" in head
    assert b"console.request.invalid" in body and b"script" not in answer


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    reply = client("PUT", "addresses/new", b'{"type": "' + b"x" * (5 << 20) + b'"}')
    assert (reply.status, reply.body["type"]) == (413, "/api/v1/problems/console.request.too-large")
    assert client("GET", "me").status == 200


@pytest.mark.parametrize("path", ["login", "addresses/a"])
@pytest.mark.parametrize("form", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_a_long_body_is_not_waited_for_before_the_caller_is_known(path: str, form: bytes, client: Client) -> None:
    method = b"POST" if path == "login" else b"PUT"
    head = b"%b /api/v1/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%b\r\n"
    body = b"" if form.startswith(b"Content") else b"f0000\r\n" + b" " * (40 << 10)
    with socket.create_connection(("127.0.0.1", client.port), 60) as peer:
        peer.sendall(head % (method, path.encode(), form) + b"Authorization: Bearer wrong\r\n\r\n" + body)
        assert peer.recv(12).split()[1] == (b"413" if path == "login" else b"401")


@pytest.mark.parametrize(
    "sent", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n11\r\n" + b'{"type": "queue"}']
)
@pytest.mark.parametrize("half", [False, True])
def test_a_body_that_is_cut_off_changes_nothing(sent: bytes, half: bool, client: Client) -> None:
    head = b"PUT /api/v1/addresses/cut HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", client.port), 60) as peer:
        peer.sendall(head + sent)
        if half:
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(DEADLINE)
            assert b" 200 " not in peer.recv(65536) and b" 201 " not in peer.recv(65536)
    assert client("GET", "addresses/cut").status == 404


BREAK = "a\r\nSet-Cookie: stolen=1\r\n\r\n<script>"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/api/v1/addresses/{of(BREAK)}", None),
        ("PUT", f"/api/v1/addresses/{of(BREAK)}", {"type": "anycast"}),
        ("GET", f"/api/v1/addresses?name={of(BREAK)}", None),
        ("GET", f"/api/v1/addresses?after={of(BREAK)}", None),
        ("GET", f"/api/v1/problems/{of(BREAK)}", None),
        ("GET", f"/api/v1/{of(BREAK)}", None),
        ("POST", "/api/v1/login", {"user": BREAK, "password": BREAK}),
        ("GET", f"/api/suite?{of(BREAK)}", None),
        ("GET", f"/{of(BREAK)}", None),
        ("DELETE", f"/api/v1/connections/{of(BREAK)}", None),
    ],
)
def test_no_line_of_a_request_becomes_a_header(method: str, path: str, body: Any, client: Client) -> None:
    reply = client.at(method, path, body)
    assert "stolen" not in "".join(name + value for name, value in reply.headers.items())
    assert reply.headers.get_content_type() != "text/html" and reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("start", ["/", "/vendor/", "/api/v1/", "/api/v1/problems/", "/api/v1/addresses/", "/api/"])
def test_no_path_leads_out_of_what_is_served(start: str, client: Client) -> None:
    for up in ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..\\", "..%5c", "%252e%252e%252f", "..%00/", "....//"):
        for file in ("services/console/settings.py", "settings.py", "etc/passwd", "operator.secret"):
            reply = client.at("GET", f"{start}{up * 6}{file}")
            assert reply.status in (400, 404), (start, up, file)
            assert "root:" not in str(reply.body) and "import" not in str(reply.body)


def test_an_error_of_the_console_is_answered_with_an_id_that_its_log_has(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def fails(request: web.Request) -> web.StreamResponse:
        raise ZeroDivisionError("secret detail")

    response = asyncio.run(problems(make_mocked_request("GET", "/api/v1/addresses"), fails))
    assert isinstance(response, web.Response) and isinstance(response.body, bytes)
    problem = json.loads(response.body)
    assert (response.status, response.content_type) == (500, "application/problem+json")
    assert problem["type"].endswith("/console.request.failed") and b"secret" not in response.body
    id = problem["detail"].split()[-1]
    assert any(id in line and "console.request.failed" in line for line in capfd.readouterr().err.splitlines())
