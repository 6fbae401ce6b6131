"""Hashes of the passwords that MessagingUsers have, computed once for each password; only hashes go further."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from enmasse.identity.proofs import passwords
from enmasse.kubernetes.api_server import SECRET, Api, ApiError, Object
from enmasse.model.users import User
from enmasse.model.values import Wrong

READABLE: Final = (
    "the password can be read in this object by each of its readers: put it into a Secret, and name that in "
    "spec.authentication.passwordFrom.secretKeyRef"
)


class Hashed(NamedTuple):
    """Hashes of a password as users.json has them, and notes about the password."""

    password: str
    scram: dict[str, Any]
    notes: tuple[str, ...] = ()


Stored = Callable[[str, str], User | None]
"""(space, user) → the user that applied last."""


class UserPasswords:
    """Hashes by object. Its methods block: from an event loop, use a thread."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._key = secrets.token_bytes(32)
        self._known: dict[str, tuple[bytes, Hashed]] = {}
        """uid of an object → mark of its password, and the hashes."""

    def of(self, item: Object, space: str, name: str, api: Api) -> Hashed | None:
        """Return the hashes of a MessagingUser's password, None if it states none. `api`: of its namespace. Raises
        Wrong."""
        authentication = (item.get("spec") or {}).get("authentication") or {}
        reference = (authentication.get("passwordFrom") or {}).get("secretKeyRef")
        if reference:
            text = _from_secret(api, str(reference.get("name")), str(reference.get("key", "password")))
        elif authentication.get("password") is not None:
            text = _text(authentication["password"], "password")
        else:
            return None
        uid = str(item["metadata"].get("uid"))
        mark = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._key).digest()
        known = self._known.get(uid)
        if known is None or known[0] != mark:
            self._known[uid] = known = mark, self._hashed(text, self._stored(space, name))
        return known[1] if reference else known[1]._replace(notes=(READABLE,))

    def keep(self, uids: set[str]) -> None:
        """Forget the objects that are gone."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}

    def _hashed(self, text: str, before: User | None) -> Hashed:
        """Return hashes of a password: those that applied before, if they are of this password, so that nothing
        changes when this process is started again. Raises Wrong."""
        if before is not None and before.password is not None and passwords.proves(before.password, text):
            return Hashed(before.password, msgspec.to_builtins(before.scram))
        try:
            found = passwords.hashed(text)
        except passwords.Unsuitable as error:
            raise Wrong(str(error), "authentication", "password") from None
        return Hashed(found.password, msgspec.to_builtins(found.scram))


def _from_secret(api: Api, name: str, key: str) -> str:
    where = ("authentication", "passwordFrom", "secretKeyRef")
    try:
        found = api.get(SECRET, name)
    except ApiError as error:
        if error.status != 403:
            raise Wrong(f"the Secret {name!r} cannot be read: {error}", *where) from None
        reason = (
            f"the Secret {name!r} may not be read: add it to the value customResources.passwordSecrets of the chart"
        )
        raise Wrong(reason, *where) from None
    data = (found or {}).get("data") or {}
    if key not in data:
        raise Wrong(f"there is no Secret {name!r} with the key {key!r}: make it", *where)
    return _text(data[key], key)


def _text(given: Any, key: str) -> str:
    """Return a password that is in base64. Raises Wrong, whose message does not have it."""
    try:
        return base64.b64decode(given, validate=True).decode()
    except (TypeError, ValueError, binascii.Error):
        raise Wrong(
            "is not text in base64; encode it, as `printf %s PASSWORD | base64` does", "authentication", key
        ) from None
