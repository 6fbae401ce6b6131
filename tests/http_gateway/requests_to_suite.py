"""Requests to the HTTP gateway of a running suite."""

from __future__ import annotations

import base64
from http.client import HTTPConnection
from typing import NamedTuple

from enmasse.testing import Suite
from tests.kit.waiting import DEADLINE


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def request(
    suite: Suite, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, port: int = 0
) -> Answer:
    """`port` 0: that of all gateways."""
    connection = HTTPConnection("127.0.0.1", port or 8088 + suite.offset, timeout=DEADLINE)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()
