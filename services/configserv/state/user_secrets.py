"""Users, issuers and their keys that applied last, in Secrets: hashes of passwords are in no ConfigMap.

They are in one Secret as long as it holds them, later in that and SHARDS further ones, each with the users whose names
have its number as their hash: a changed user changes one of them. What is in the one Secret is read on.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib

import msgspec

from enmasse.kubernetes.api_server import SECRET, Api, ApiError, Object, ObjectKind
from enmasse.logs import log
from enmasse.model.configuration import AppliedState
from enmasse.model.issuers import Issuer
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.tenancy import SpaceState
from enmasse.model.users import User
from enmasse.process.runner import Fatal
from enmasse.storage.decoding import decode

MANAGER = "enmasse-configserv"
USERS = "users.json.gz"
"""Key of the Secrets."""
MAX_BYTES = 950_000
"""Compressed and in base64, of what a ConfigMap or Secret may hold (1 MiB). Ten thousand addresses take about a tenth.
"""
MAX_PLAIN = 512 * 1024 * 1024
SHARDS = 16
"""Further Secrets, which the release makes: NAME-users-0 and so on."""


class _SpaceUsers(msgspec.Struct, omit_defaults=True):
    users: dict[str, User] | None = None
    issuers: dict[str, Issuer] | None = None


class _SavedUsers(msgspec.Struct):
    """Content of a Secret. `sharded`: further users are in the others."""

    users: dict[str, User] | None = None
    issuers: dict[str, Issuer] | None = None
    salt_key: bytes = b""
    spaces: dict[str, _SpaceUsers] | msgspec.UnsetType = msgspec.UNSET
    sharded: bool | msgspec.UnsetType = msgspec.UNSET


class UserSecrets:
    """The Secret `name`, and its further ones. Their methods block, but for `put` and `added_to`."""

    def __init__(self, api: Api, name: str, labels: dict[str, str]) -> None:
        self._api = api
        self._name = name
        self._labels = labels
        self._saved: dict[str, str] = {}
        """Secret → what is in it."""
        self._next: dict[str, str] = {}
        """Secret → its next content, in the order of writing."""

    @property
    def known(self) -> bool:
        """Whether there has been a users.json."""
        return self._name in self._saved or self._name in self._next

    def open(self) -> None:
        """Read the Secrets. Raises process.Fatal if they cannot be read."""
        for name in (self._name, *self._shards()):
            text = (read(self._api, SECRET, name).get("data") or {}).get(USERS)
            if text is None and name == self._name:
                return
            if text is not None:
                self._saved[name] = text
            if name == self._name and not _loaded(name, text or "").sharded:
                return

    def added_to(self, state: AppliedState) -> AppliedState:
        """Return a state with the saved users; damaged ones are lost, and no client is let in before there is a valid
        users.json."""
        if self._name not in self._saved:
            return state
        head, *shards = [_loaded(name, text) for name, text in self._saved.items()]
        spaces: dict[str, _SpaceUsers] = {} if head.spaces is msgspec.UNSET else head.spaces
        spaces[DEFAULT_SPACE] = _SpaceUsers(head.users, head.issuers)
        for shard in shards:
            for space, found in ({} if shard.spaces is msgspec.UNSET else shard.spaces).items():
                if (own := spaces.get(space)) is not None and own.users is not None:
                    own.users.update(found.users or {})
        users = spaces[DEFAULT_SPACE].users
        state = msgspec.structs.replace(state, users=users, issuers=head.issuers, salt_key=head.salt_key)
        if state.tenants is msgspec.UNSET:
            return state
        states = {
            space: msgspec.structs.replace(each, users=spaces[space].users, issuers=spaces[space].issuers)
            if space in spaces
            else each
            for space, each in state.tenants.spaces.items()
        }
        return msgspec.structs.replace(state, tenants=msgspec.structs.replace(state.tenants, spaces=states))

    def put(self, state: AppliedState) -> None:
        """Take the users to be saved."""
        spaces = {} if state.tenants is msgspec.UNSET else state.tenants.spaces
        whole = _SavedUsers(
            state.users,
            state.issuers,
            state.salt_key,
            {name: _SpaceUsers(each.users, each.issuers) for name, each in spaces.items()} or msgspec.UNSET,
        )
        text = packed(msgspec.json.encode(whole))
        if len(text) <= MAX_BYTES and len(self._saved) <= 1:
            self._next = {self._name: text}
            return
        shards = [_SavedUsers(spaces={}) for _ in range(SHARDS)]
        for space, users in {DEFAULT_SPACE: state.users, **{name: each.users for name, each in spaces.items()}}.items():
            for name, user in (users or {}).items():
                _of_space(shards[_number(space, name)], space)[name] = user
        # Without users, but with a mark of each file that there has been.
        head = _SavedUsers(
            None if state.users is None else {},
            state.issuers,
            state.salt_key,
            {name: _SpaceUsers(None if each.users is None else {}, each.issuers) for name, each in spaces.items()},
            sharded=True,
        )
        # First what has users: a head without them would lose them if this process ended in between.
        self._next = {
            **{name: packed(msgspec.json.encode(each)) for name, each in zip(self._shards(), shards, strict=True)},
            self._name: packed(msgspec.json.encode(head)),
        }

    def save(self) -> str:
        """Write what has changed; return why that is not possible, "" if it was. Raises ApiError."""
        for name, text in self._next.items():
            if len(text) > MAX_BYTES:
                return f"secret/{name} would take {len(text)} bytes, and a Secret holds 1 MiB; use fewer users"
            if self._saved.get(name) == text:
                continue
            body: Object = {"metadata": {"name": name, "labels": self._labels}, "data": {USERS: text}}
            self._api.apply(SECRET, body, MANAGER, force=True)
            self._saved[name] = text
        return ""

    def _shards(self) -> list[str]:
        return [f"{self._name}-users-{number}" for number in range(SHARDS)]


def without_users(state: AppliedState) -> AppliedState:
    """Return a state without anything that a Secret must hold."""
    tenants = state.tenants
    if tenants is not msgspec.UNSET:
        spaces = {name: SpaceState(space=each.space) for name, each in tenants.spaces.items()}
        tenants = msgspec.structs.replace(tenants, spaces=spaces)
    return msgspec.structs.replace(state, users=None, issuers=None, salt_key=b"", tenants=tenants)


def read(api: Api, kind: ObjectKind, name: str) -> Object:
    """Return an object, an empty one if it is missing. Raises process.Fatal if it cannot be read."""
    try:
        return api.get(kind, name) or {}
    except ApiError as error:
        where = f"{kind.name.lower()}/{name}"
        raise Fatal("cluster.configmap.not-readable", f"{where} cannot be read: {error}") from None


def packed(data: bytes) -> str:
    """Return data, compressed and in base64."""
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


def unpacked(text: str) -> bytes:
    """Return what was packed. Raises ValueError, zlib.error, binascii.Error."""
    found = zlib.decompressobj(zlib.MAX_WBITS | 16)
    data = found.decompress(base64.b64decode(text), MAX_PLAIN)
    if not found.eof:
        raise ValueError("it is cut off, or too large")
    return data


def _loaded(name: str, text: str) -> _SavedUsers:
    try:
        return decode(unpacked(text), _SavedUsers)
    except (ValueError, zlib.error, binascii.Error) as error:
        log.get().error("configserv.data.set-aside", file=f"secret/{name}/{USERS}", reason=str(error), kept="")
        return _SavedUsers()


def _number(space: str, user: str) -> int:
    return zlib.crc32(f"{space}/{user}".encode()) % SHARDS


def _of_space(shard: _SavedUsers, space: str) -> dict[str, User]:
    assert not isinstance(shard.spaces, msgspec.UnsetType)
    found = shard.spaces.setdefault(space, _SpaceUsers({}))
    assert found.users is not None
    return found.users
