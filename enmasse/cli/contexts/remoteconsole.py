"""The console of a context: HTTP with TLS, and a session that ends with the command."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from enmasse.cli.common import UNREACHABLE, end
from enmasse.cli.contexts import contexts
from enmasse.cli.contexts.api_problems import LoginNeeded, Lost, lost, problem
from enmasse.cli.contexts.contexts import Context
from enmasse.cli.contexts.hints import cause
from enmasse.cli.contexts.user_password import login_of, password_of_file
from enmasse.http.client import Client, lines
from enmasse.http.http11 import MAX_ANSWER, NONE, AnswerError
from enmasse.identity.login import may_be_token
from enmasse.identity.processes.operator import BEARER
from enmasse.identity.proofs.api_tokens import is_secret

ANSWER_SECONDS = 30.0
"""For an answer from another machine: it may have to check a password first."""
SILENCE_SECONDS = 45.0
"""For the next event of a stream: it has a comment each 15 s."""
CSRF = "X-CSRF-Token"
LOGIN = "/api/v1/login"
_KEY = "enmasse.cli.contexts.remoteconsole"


def client_of(url: str, ca: str | None = None, timeout: float = ANSWER_SECONDS) -> Client:
    """Return a client of the server of a URL. Raises OSError if `ca` cannot be used."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return Client(parts.hostname, parts.port or 443, context, timeout)
    return Client(parts.hostname, parts.port or 80, timeout=timeout)


def events_in(found: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream's lines: name and decoded data. Raises ValueError."""
    name = ""
    for line in found:
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


def events(url: str, ca: str | None, path: str, headers: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream: name and decoded data. Raises Lost if it is refused, OSError."""
    made = client_of(url, ca, SILENCE_SECONDS)
    try:
        answer, parts = made.stream(path, headers)
        if answer.status != 200:
            kind = LoginNeeded if answer.status == 401 else Lost
            raise kind(*problem(answer.status, json.loads(b"".join(parts))))
        yield from events_in(lines(parts))
    except ValueError as error:
        raise OSError(f"that is no stream of events: {error}") from None
    finally:
        made.close()


class RemoteConsole:
    """Console of a context. Logs in with the first request, and again when the console no longer knows the caller: with
    the password or token that the file has then."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._url = contexts.url_of(context, "url")
        self._client = self._made()
        self._logging_in = threading.Lock()
        self._user: str | None = None
        self._password: str | None = None
        self._headers: dict[str, str] | None = None
        self._csrf: str | None = None
        self._was_known = False

    @staticmethod
    def of(context: Context) -> RemoteConsole:
        """Return the console that all requests of the running command share; its session ends with the command."""
        root = click.get_current_context().find_root()
        if _KEY not in root.meta:
            root.meta[_KEY] = found = RemoteConsole(context)
            root.call_on_close(found.close)
        shared: RemoteConsole = root.meta[_KEY]
        return shared

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        """Return the status of HTTP and the decoded JSON, None without a body."""
        own = self._login()
        status, found = self._exchange(method, path, body, {**own, **headers})
        if status == 401 and self._was_known:
            try:
                own = self._login_again(own)
            except Lost as error:
                lost(error)
            except OSError as error:
                self._lost(error)
            status, found = self._exchange(method, path, body, {**own, **headers})
        if status == 401:
            self._refused(found)
        self._was_known = True
        return status, found

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream. Raises Lost."""
        own = self._login()
        try:
            try:
                yield from events(self._url, self._context.ca, path, own)
            except LoginNeeded:
                yield from events(self._url, self._context.ca, path, self._login_again(own))
        except OSError as error:
            raise Lost("server.connection.failed", f"{self._context}: {self._url}: {cause(error)}") from None

    def close(self) -> None:
        """End the session."""
        self._client.close()
        if self._csrf is not None:
            with contextlib.suppress(OSError, AnswerError):
                self._client.request("POST", "/api/v1/logout", self._headers or {}, b"", most=MAX_ANSWER)
        self._client.close()

    def _login(self) -> dict[str, str]:
        """Return the headers that identify the user."""
        if self._headers is None:
            self._user, self._password = login_of(self._context)
            self._headers = self._by_token()
            if self._headers is None:
                status, found = self._exchange("POST", LOGIN, self._credentials, {})
                if status != 200:
                    self._refused(found)
        assert self._headers is not None
        return self._headers

    def _login_again(self, before: dict[str, str]) -> dict[str, str]:
        """Return the headers of another login than `before`; any thread may call this. Raises Lost, OSError."""
        with self._logging_in:
            if self._headers is not None and self._headers is not before:
                return self._headers  # another thread has logged in
            try:
                self._password = password_of_file(self._context, self._user) or self._password
            except ValueError as error:
                raise Lost("user.password.not-readable", f"{self._context}: {error}") from None
            found = self._by_token()
            if found is None:
                try:
                    with contextlib.closing(client_of(self._url, self._context.ca)) as made:
                        status, answer = self._sent(made, "POST", LOGIN, self._credentials, {})
                except ValueError as error:
                    raise OSError(f"that is no console: {error}") from None
                if status != 200:
                    id, detail = problem(status, answer)
                    raise Lost(id, f"{self._context}: {self._url}: {detail}", final=status == 401)
            else:
                self._headers = found
            assert self._headers is not None
            return self._headers

    @property
    def _credentials(self) -> dict[str, str | None]:
        return {"user": self._user, "password": self._password}

    def _by_token(self) -> dict[str, str] | None:
        """Return the headers of a user with a token, or without any login; None: there is a password."""
        word = self._password
        if word is not None and (self._user is None or may_be_token(word) or is_secret(word)):
            return {"Authorization": BEARER + word}
        return {} if self._user is None else None

    def _exchange(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        try:
            return self._sent(self._client, method, path, body, headers)
        except OSError as error:
            self._lost(error)
        except AnswerError as error:
            contexts.unreachable(self._context, f"that is no console: {error}")
        except ValueError:
            contexts.unreachable(self._context, "that is no console: its answer is not JSON")

    def _sent(self, made: Client, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        """Return status and JSON of an answer; that to a login changes the headers of later requests. Raises OSError,
        AnswerError, ValueError."""
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        answer = made.request(method, path, headers, content, most=MAX_ANSWER)
        if 300 <= answer.status < 400:
            to = answer.headers.get("location", "another place")
            raise AnswerError(f"it sends the command to {to}: name the URL of the console itself")
        found: Any = json.loads(answer.body) if answer.body else None
        if path == LOGIN and answer.status == 200:
            self._csrf = str(found["csrf"])
            cookie = answer.headers.get("set-cookie", "").partition(";")[0]
            self._headers = {"Cookie": cookie, CSRF: self._csrf}
        return answer.status, found

    def _made(self) -> Client:
        try:
            return client_of(self._url, self._context.ca)
        except OSError as error:
            contexts.unreachable(self._context, f"{self._context.ca}: has no authorities in PEM ({cause(error)})")

    def _lost(self, error: OSError) -> NoReturn:
        advice = "Is a console running there, on this port?"
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "Add the context with the file of its authority, --ca FILE, and the host name of the certificate."
        contexts.unreachable(self._context, f"{cause(error)}. {advice}")

    def _refused(self, found: Any) -> NoReturn:
        detail = found.get("detail", "refused") if isinstance(found, dict) else "refused"
        id = "server.login.missing" if self._user is None and not self._headers else "server.login.refused"
        end(id, f"{self._context}: {self._url}: {detail}", UNREACHABLE)
