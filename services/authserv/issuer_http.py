"""Documents of an issuer: JSON over HTTPS, bounded in size and time. Redirects are not followed, and no cookie of one
user's request is sent with the next."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote_plus, urlencode, urlsplit

from enmasse.http.async_client import AsyncClient
from enmasse.http.http11 import NONE, TooLongError
from enmasse.storage.decoding import decode_any

TIMEOUT = 10.0
"""Seconds for a document, from the connection to its last byte."""
MAX_DOCUMENT = 1 << 20
"""Bytes of a document."""
NO_DOCUMENT = f"is not a JSON object of at most {MAX_DOCUMENT} bytes"
ACCEPTED = {"Accept": "application/json", "Accept-Encoding": "identity"}


class IssuerError(Exception):
    """The issuer has not answered as it should; the message has the reason, and no secret."""


class Documents:
    """Requests to one issuer, whose server has a certificate of an authority of `ca` (in PEM; None: of the system)."""

    def __init__(self, ca: str | None) -> None:
        self._ca = ca
        self._trust: ssl.SSLContext | None = None
        self._clients: dict[tuple[str, int], AsyncClient] = {}
        self._closed = False

    async def get(self, url: str) -> dict[str, Any]:
        """Return the document at `url`. Raises IssuerError."""
        status, found = await self._request("GET", url)
        if status != 200:
            raise IssuerError(f"{url}: HTTP status {status}")
        return found

    async def post(
        self, url: str, fields: Mapping[str, str], client: tuple[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        """Post a form; return the HTTP status and the document, which is empty if it is an error's and not JSON.
        `client`: id and secret, sent by HTTP Basic as RFC 6749, 2.3.1 has it. Raises IssuerError."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if client is not None:
            headers["Authorization"] = "Basic " + b64encode(":".join(map(quote_plus, client)).encode()).decode()
        return await self._request("POST", url, headers, urlencode(fields).encode())

    async def close(self) -> None:
        """End all requests."""
        self._closed = True
        for client in self._clients.values():
            client.close()

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str] = NONE, body: bytes | None = None
    ) -> tuple[int, dict[str, Any]]:
        if self._closed:
            raise IssuerError("the issuer was removed")
        try:
            parts = urlsplit(url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            answer = await self._client(parts).request(method, target, {**ACCEPTED, **headers}, body, most=MAX_DOCUMENT)
        except TooLongError:
            raise IssuerError(f"{url}: {NO_DOCUMENT}") from None
        except (OSError, ValueError) as error:
            raise IssuerError(f"{url}: {str(error) or type(error).__name__}") from None
        try:
            found = decode_any(answer.body, most=MAX_DOCUMENT)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return answer.status, found
        if answer.status == 200:
            raise IssuerError(f"{url}: {NO_DOCUMENT}")
        return answer.status, {}

    def _client(self, url: SplitResult) -> AsyncClient:
        """Return the client of a URL's server, which shares its connections with later requests. Raises ValueError."""
        host, is_tls = url.hostname or "", url.scheme == "https"
        if is_tls and self._trust is None:
            try:
                self._trust = ssl.create_default_context(cadata=self._ca)
            except ssl.SSLError as error:
                raise IssuerError(f"ca cannot be used: {error}") from None
        server = host, url.port or (443 if is_tls else 80)
        if server not in self._clients:
            self._clients[server] = AsyncClient(*server, self._trust if is_tls else None, TIMEOUT)
        return self._clients[server]
