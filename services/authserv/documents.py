"""Documents of an issuer: JSON over HTTPS, bounded in size and time. Redirects are not followed, and no cookie of one
user's request is sent with the next."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from enmasse.storage.decoding import decode_any

if TYPE_CHECKING:
    from aiohttp import ClientSession

TIMEOUT = 10.0
"""Seconds for a document, from the connection to its last byte."""
MAX_DOCUMENT = 1 << 20
"""Bytes of a document."""


class IssuerError(Exception):
    """The issuer has not answered as it should; the message has the reason, and no secret."""


class Documents:
    """Requests to one issuer, whose server has a certificate of an authority of `ca` (in PEM; None: of the system)."""

    def __init__(self, ca: str | None) -> None:
        self._ca = ca
        self._session: ClientSession | None = None
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
        headers = {}
        if client is not None:
            headers["Authorization"] = "Basic " + b64encode(":".join(map(quote_plus, client)).encode()).decode()
        return await self._request("POST", url, data=fields, headers=headers)

    async def close(self) -> None:
        """End all requests."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _request(self, method: str, url: str, **more: Any) -> tuple[int, dict[str, Any]]:
        import aiohttp

        if self._closed:
            raise IssuerError("the issuer was removed")
        if self._session is None:
            try:
                trust = ssl.create_default_context(cadata=self._ca)
            except ssl.SSLError as error:
                raise IssuerError(f"ca cannot be used: {error}") from None
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(TIMEOUT),
                connector=aiohttp.TCPConnector(ssl=trust),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        try:
            async with self._session.request(method, url, allow_redirects=False, **more) as answer:
                status = answer.status
                data = bytearray()
                while len(data) <= MAX_DOCUMENT and (more_data := await answer.content.readany()):
                    data += more_data
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise IssuerError(f"{url}: {str(error) or type(error).__name__}") from None
        try:
            found = decode_any(data, most=MAX_DOCUMENT)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return status, found
        if status == 200:
            raise IssuerError(f"{url}: is not a JSON object of at most {MAX_DOCUMENT} bytes")
        return status, {}
