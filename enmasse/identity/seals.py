"""Seals: which user has published a message, in a form that only the suite's services can make and read.

The statement travels with the message past clients, which must not forge it and need not know the user. AES-SIV
(RFC 5297) encrypts it, and binds it to the message's address and body.
"""

from __future__ import annotations

import base64
import secrets

import msgspec

from enmasse.identity.authors import Author, author

KEY_SIZE = 64
"""Bytes: AES-256, and as much for the tag."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, tuple[str, ...] | None]).decode


def new_key() -> bytes:
    """Return a new key."""
    return secrets.token_bytes(KEY_SIZE)


class Seal:
    """Makes and reads seals. Raises ValueError for a key of another size."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import (
            AESSIV,  # takes time and memory, and few processes use it
        )

        if len(key) != KEY_SIZE:
            raise ValueError(f"a key of {len(key)} bytes: {KEY_SIZE} are needed")
        self._cipher = AESSIV(key)

    @classmethod
    def of_text(cls, key: str) -> Seal:
        """Return the seal for a key in base64. Raises ValueError."""
        return cls(base64.b64decode(key, validate=True))

    def make(self, of: Author, to: str, body: bytes) -> bytes:
        """Return the seal of a message `of` an author."""
        return self._cipher.encrypt(_encode((of.full_name, of.groups)), [to.encode("utf-8", "surrogatepass"), body])

    def read(self, seal: bytes, to: str, body: bytes) -> Author | None:
        """Return the author; None if the seal is not of this key, or of another message."""
        from cryptography.exceptions import InvalidTag

        try:
            return author(*_decode(self._cipher.decrypt(seal, [to.encode("utf-8", "surrogatepass"), body])))
        except (InvalidTag, ValueError, msgspec.DecodeError):
            return None
