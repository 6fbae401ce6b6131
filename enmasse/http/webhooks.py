"""Webhooks: the operator's file of them, and signatures (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from enmasse.storage.decoding import decode
from enmasse.text_filter import text_filter

MOST = 16
"""Webhooks of a file."""
SECRET = "whsec_"  # noqa: S105 (its beginning)
MIN_SECRET, MAX_SECRET = 24, 64
"""Bytes of a secret."""
MAX_FILE = 1 << 20


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver of events. `url`: to which they are posted; `secret`: by which they are signed; `events`: patterns of
    kinds, with * and ?; `space`: the address space whose events it gets, None: all."""

    url: str
    secret: str
    events: tuple[str, ...] = ("*",)
    space: str | None = None

    def __repr__(self) -> str:
        return f"Webhook(host={self.host!r})"

    @property
    def host(self) -> str:
        """The host of the URL, whose path may have a secret."""
        return urlsplit(self.url).netloc

    @property
    def key(self) -> bytes:
        """The bytes of the secret. Raises ValueError."""
        return base64.b64decode(self.secret.removeprefix(SECRET), validate=True)

    def wants(self, kind: str, space: str) -> bool:
        """Return whether an event of an address space goes to it."""
        mine = self.space is None or self.space == space
        return mine and any(text_filter(pattern)(kind) for pattern in self.events)

    def signature(self, id: str, timestamp: int, body: bytes) -> str:
        """Return the header `webhook-signature` of a message."""
        signed = hmac.digest(self.key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
        return f"v1,{base64.b64encode(signed).decode()}"


def read(file: Path) -> dict[str, Webhook]:
    """Return the webhooks of a file by name. Raises ValueError, whose text has no secret."""
    try:
        mode = file.stat().st_mode
        content = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & 0o007:
        raise ValueError(f"{file}: it has secrets, and every user can read it: `chmod 600 {file}`")
    try:
        found = decode(content, dict[str, Webhook], most=MAX_FILE)
    except msgspec.DecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    if len(found) > MOST:
        raise ValueError(f"{file}: may have {MOST} webhooks at most")
    for name, webhook in found.items():
        if fault := _fault(webhook):
            raise ValueError(f"{file}: {name}: {fault}")
    return found


def _fault(webhook: Webhook) -> str:
    try:
        parts = urlsplit(webhook.url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"url: {error}"
    if parts.scheme not in ("http", "https") or not host:
        return "url: expected https://HOST[:PORT]/PATH, or http:// on a network that you trust"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "url: expected neither user and password nor a fragment"
    try:
        size = len(webhook.key) if webhook.secret.startswith(SECRET) else 0
    except (ValueError, binascii.Error):
        size = 0
    if not MIN_SECRET <= size <= MAX_SECRET:
        return f"secret: expected {SECRET} and {MIN_SECRET} to {MAX_SECRET} random bytes in base64"
    try:
        for pattern in webhook.events:
            text_filter(pattern)
    except ValueError as error:
        return f"events: {error}"
    return "" if webhook.events else "events: name one pattern at least, or leave it out"
