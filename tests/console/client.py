"""A client of the REST API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from enmasse.cli.contexts.remoteconsole import events_in
from enmasse.testing import Suite
from tests.kit.waiting import DEADLINE, wait_for


class Reply(NamedTuple):
    """An answer: decoded JSON, or the text."""

    status: int
    body: Any
    headers: http.client.HTTPMessage

    @property
    def etag(self) -> str:
        """The etag, as If-Match states it."""
        found = self.headers["ETag"]
        assert found is not None
        return str(found)


class Client:
    """Requests over one connection, with these headers."""

    def __init__(self, at: Suite | int | http.client.HTTPConnection, **headers: str) -> None:
        """`at`: a suite, the port of a console, or the connection to use."""
        if not isinstance(at, http.client.HTTPConnection):
            port = at if isinstance(at, int) else 8080 + at.offset
            at = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        self.port = at.port
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection = at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request below /api/v1."""
        return self.at(method, f"/api/v1/{path}", body, **headers)

    def at(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request. `body`: bytes as they are, others as JSON."""
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        self._connection.close()  # the server closes one that was idle for long, which shows only with the next request
        self._connection.request(method, path, content, sent)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return Reply(answer.status, json.loads(text) if is_json else text, answer.headers)

    def log_in(self, user: str, password: str) -> Reply:
        """Log in, and send what that gave with all later requests."""
        reply = self("POST", "login", {"user": user, "password": password})
        if reply.status == 200:
            self.headers["Cookie"] = reply.headers["Set-Cookie"].partition(";")[0]
            self.headers["X-CSRF-Token"] = reply.body["csrf"]
        return reply

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list. Where the console answers that a service is not reached, ask again."""

        def asked() -> Reply | None:
            reply = self("GET", path)
            return None if reply.status == 503 else reply

        reply = wait_for(asked, f"{path} without status 503")
        assert reply.status == 200, reply
        found: list[dict[str, Any]] = reply.body["items"]
        return found

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a stream: name and data."""
        self._connection.request("GET", f"/api/v1/{path}", headers=self.headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
        yield from events_in(answer)


def of(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")
