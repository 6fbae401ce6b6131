"""The files of the page, read once: nothing outside the folder can be asked for."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

from aiohttp import web

from enmasse.model.loopback import host_of

FOLDER = Path(__file__).with_name("page")
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/vnd.microsoft.icon",
    ".json": "application/json",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
"""Suffix → content type; other files are not served."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'{gateways}; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""`gateways`: those of MQTT over WebSocket, to which the page's test client may connect: at the host of the page."""
_HOST = re.compile(r"[a-z0-9.-]{1,253}")
"""A host that a policy can name: those cannot name addresses of IPv6."""
COMPRESSED = 1024
"""Bytes from which a file is compressed."""


class Pages:
    """The files of the page, by path."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, bytes, bytes | None, str]] = {}
        for file in sorted(FOLDER.rglob("*")):
            kind = KINDS.get(file.suffix)
            if kind is None or not file.is_file():
                continue
            content = file.read_bytes()
            small = gzip.compress(content, 6, mtime=0) if len(content) >= COMPRESSED and kind[:5] != "image" else None
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            self._files[f"/{file.relative_to(FOLDER).as_posix()}"] = kind, content, small, etag

    def routes(self) -> list[web.RouteDef]:
        """Return the routes: `/`, and each file."""
        return [web.get(path, self.answer) for path in ("/", *self._files)]

    async def answer(self, request: web.Request) -> web.Response:
        """Return a file."""
        path = "/index.html" if request.path == "/" else request.path
        kind, content, small, etag = self._files[path]
        headers = {
            "Content-Security-Policy": policy(request.host),
            "ETag": etag,
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        if small is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            content = small
        charset = "utf-8" if kind.startswith("text/") or kind.endswith(("json", "xml")) else None
        return web.Response(body=content, content_type=kind, charset=charset, headers=headers)


def policy(host: str) -> str:
    """Return the policy of a page that was asked for with this Host header."""
    name = host_of(f"//{host}") or ""
    return POLICY.format(gateways=f" ws://{name}:* wss://{name}:*" if _HOST.fullmatch(name) else "")
