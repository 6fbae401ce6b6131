"""users.json: which users there are, how each proves its identity, and what each may do (docs/identity.md, "Users").

An entry is a user, or a group if its name begins with `@`. Passwords occur as hashes only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import marshal
import re
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any, Final, Literal

import msgspec

from enmasse.model import values
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.names import MAX_ADDRESS, SPACE
from enmasse.model.permission_words import OPERATIONS, Operation
from enmasse.model.values import Wrong
from enmasse.text import did_you_mean

Effect = Literal["allow", "deny"]

ANONYMOUS: Final = "anonymous"
"""The entry of clients without credentials, which are refused without it."""
GROUP: Final = "@"
"""First character of the names of groups."""
USER_VARIABLE: Final = "${user}"
"""Stands for the user's name in patterns."""

SCRAM_DIGESTS: Final = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanisms that `scram` may have, and the hash of each."""
MAX_NAME = 255
"""Bytes of a user's or group's name in UTF-8."""
MAX_LIMIT = 1_000_000
MAX_TIME = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""
MAX_GROUPS, MAX_PERMISSIONS, MAX_PATTERNS = 100, 1000, 1000
"""Groups of a user, permissions of an entry, patterns of a permission."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 10_000_000
MIN_SALT, MAX_SALT = 12, 64
MAX_ARGON2_MEMORY, MAX_ARGON2_PASSES, MAX_ARGON2_LANES = 256 * 1024, 16, 16
"""The most that one check of a password may take: KiB, passes over them, lanes."""

_ARGON2 = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,7}),t=([0-9]{1,2}),p=([0-9]{1,2})\$[A-Za-z0-9+/]{11,88}\$[A-Za-z0-9+/]{22,88}"
)
_PLAIN_KEYS = ("pass", "passwd", "pwd", "plain", "plaintext", "secret", "plain_password", "password_plain")
_HASHES_ONLY = "passwords are not written here: remove this, then run `enmasse user password {}`"
_KEYS = ("password", "scram", "tokens", "groups", "permissions", "limits")
MAX_TOKENS = 20
"""API tokens of a user."""
MAX_TOKEN_NAME = 64
_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Verifier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values that prove a password by SCRAM (RFC 5802, 3: salt, iteration count, StoredKey, ServerKey)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Verifier(iterations={self.iterations})"


class TokenFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An API token without its secret. `id`: differs for each token that there ever was. `created`,
    `expires`: seconds since 1970. `read_only`: it changes nothing."""

    id: str = ""
    created: int
    expires: int | None = None
    read_only: bool = False


class Token(TokenFacts, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An API token of a user. `sha256`: of its secret, which has 256 random bits: a slow hash, as of passwords, would
    protect it no better."""

    sha256: bytes

    def __repr__(self) -> str:
        return f"Token({self.facts!r})"

    @property
    def facts(self) -> TokenFacts:
        """The part without the hash."""
        id = hashlib.sha256(self.sha256).hexdigest()[:16]
        return TokenFacts(id=id, created=self.created, expires=self.expires, read_only=self.read_only)


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Operations that are allowed, or denied, on addresses that match one of the patterns."""

    effect: Effect
    operations: tuple[Operation, ...]
    addresses: tuple[str, ...]


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a user's connections: how many at all routers together and at each gateway, how many are opened in a
    second at all of them; None: without."""

    connections: int | None = None
    connects_per_second: int | None = None


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Groups, permissions and limits of a user, or permissions of a group and limits of each of its users."""

    groups: tuple[str, ...] = ()
    permissions: tuple[Permission, ...] = ()
    limits: ConnectionLimits = ConnectionLimits()


class User(Granted, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of users.json. `password`: its argon2id hash; None: not accepted from this user. The repr has no
    hashes."""

    password: str | None = None
    scram: dict[str, Verifier] = {}
    tokens: dict[str, Token] = {}

    def __repr__(self) -> str:
        return f"User(groups={self.groups!r}, permissions={self.permissions!r})"

    @property
    def granted(self) -> Granted:
        """The part without hashes."""
        return Granted(groups=self.groups, permissions=self.permissions, limits=self.limits)


Known = dict[str, tuple[bytes, User]]
"""Name of a valid entry → digest of it as written, and the user: what need not be parsed again."""


def parse_users(document: Document, known: Known | None = None) -> tuple[dict[str, User], list[Problem]]:
    """Return the valid entries of users.json, and the problems of the others. `known`: entries of the call before,
    which is replaced by those of this one."""
    before = dict(known or {})
    now: Known = {} if known is None else known
    now.clear()

    def parse(name: str, entry: Any) -> User:
        mark = _mark(entry)
        found = before.get(name)
        if found is None or found[0] != mark or not mark:
            reason = name_error(name)
            if reason is not None:
                raise Wrong(reason)
            found = mark, _entry(name, entry)
        now[name] = found
        return found[1]

    return document.parsed(parse)


def _mark(entry: Any) -> bytes:
    """Return a digest that equal values of JSON have in common, and no others; b"" for those with keys that occur
    twice."""
    try:
        return hashlib.blake2b(marshal.dumps(entry, 0), digest_size=16).digest()
    except ValueError:
        return b""


def unknown_groups(document: Document, users: Mapping[str, User]) -> list[Problem]:
    """Return a problem for each group that users belong to and that has no entry, so that it gives no permission."""
    problems = []
    for name, user in users.items():
        missing = [group for group in user.groups if GROUP + group not in users]
        if missing and name in document.entries:
            group = GROUP + missing[0]
            reason = f"no entry {shown(group)!r}: add one with its permissions, or remove the group here"
            if hint := did_you_mean(group, (each for each in users if each.startswith(GROUP))):
                reason += f".{hint}"
            problem = document.problem(reason, name, "groups")
            problems.append(msgspec.structs.replace(problem, applies=True))
    return problems


def name_error(name: str) -> str | None:
    """Return why `name` cannot be an entry of users.json, None if it can."""
    if not name.startswith(GROUP):
        return user_name_error(name)
    reason = user_name_error(name[1:])
    return None if reason is None else reason.replace("a user", "a group", 1)


def user_name_error(name: str) -> str | None:
    """Return why `name` cannot be the name of a user, None if it can."""
    if not name:
        return "a user needs a name"
    if name.startswith(GROUP):
        return f"the name of a user must not begin with {GROUP!r}, which is for groups; rename it"
    if name.startswith(SPACE):
        return f"the name of a user must not begin with {SPACE!r}, which is for address spaces; rename it"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
        return f"the name of a user may have {MAX_NAME} bytes at most; shorten it"
    if not name.isprintable() or name != name.strip():
        return "the name of a user must not have control characters, nor white space at its ends; rename it"
    form = prepared(name)
    if form is None:
        return "the name of a user must be made of characters that SASLprep (RFC 4013) permits; rename it"
    if form != name:
        return f"the name of a user must be in the form of SASLprep (RFC 4013); write {shown(form)!r}"
    return None


def prepared(name: str) -> str | None:
    """Return a name in the form of SASLprep (RFC 4013), in which names are compared; None if there is no such form."""
    if name.isascii():
        return name if name.isprintable() else None
    from scramp.utils import ScramException, saslprep

    try:
        return str(saslprep(name))
    except ScramException:
        return None


def words(name: str) -> list[str]:
    """Return the words of an address, pattern or filter, which `.` and `/` separate alike."""
    return name.replace(".", "/").split("/")


def pattern_error(pattern: str) -> str | None:
    """Return why `pattern` cannot be a pattern of addresses, None if it can."""
    if not pattern:
        return 'is empty; write "#" for every address'
    if len(pattern.encode("utf-8", "surrogatepass")) > MAX_ADDRESS:
        return f"may have {MAX_ADDRESS} bytes at most; shorten it"
    if words(pattern)[0].startswith(SPACE):
        return f"must not begin with {SPACE!r}, which is for address spaces; permissions are those of one space"
    if not (words(pattern)[0] and words(pattern)[-1]):
        return "must not begin or end with a separator (/ or .): names have none there, so it would match nothing"
    literal = pattern.replace(USER_VARIABLE, "")
    if "${" in literal:
        return f"has a variable that is not known; there is {USER_VARIABLE}"
    if any(character.isspace() or not character.isprintable() for character in pattern):
        return "must not contain white space or control characters; remove them"
    for part in ("::", "+"):
        if part in pattern:
            return f"must not contain {part!r}; wildcards are * (one word) and # (any words), as the last word"
    *first, last = words(pattern)
    if any("*" in word or "#" in word for word in first) or (last not in ("*", "#") and ("*" in last or "#" in last)):
        return "may have * (one word) or # (any words) as its last word only, as in a/* or a/#"
    return None


def _entry(name: str, entry: Any) -> User:
    if not isinstance(entry, dict):
        raise Wrong(f"must be an object with {', '.join(_KEYS)}, not {values.kind(entry)}")
    known = ("permissions", "limits") if name.startswith(GROUP) else _KEYS
    for key in entry:
        if key.lower() in _PLAIN_KEYS:
            raise Wrong(_HASHES_ONLY.format(quote(name)), key)
        if key not in known:
            of = "a group has" if name.startswith(GROUP) else "known are"
            raise values.unknown_key(key, known, of)
        if name == ANONYMOUS and key == "tokens":
            raise Wrong("clients without credentials have no API tokens; remove this, or rename the user", key)
        if name == ANONYMOUS and key in ("password", "scram"):
            raise Wrong("clients without credentials have no password; remove this, or rename the user", key)
    checks: dict[str, Callable[[Any], Any]] = {
        "password": lambda value: _password(name, value),
        "scram": _scram,
        "tokens": _tokens,
        "groups": _groups,
        "permissions": _permissions,
        "limits": _limits,
    }
    found: dict[str, Any] = {}
    for key, value in entry.items():
        try:
            found[key] = checks[key](value)
        except Wrong as wrong:
            raise Wrong(str(wrong), key, *wrong.path) from None
    return User(**found)


def _password(name: str, value: Any) -> str:
    """Return the hash. The messages never have the value, which may be a password."""
    found = _ARGON2.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        if isinstance(value, str) and value.startswith("$argon2"):
            raise Wrong(f"is not a hash by argon2id, version 19; run `enmasse user password {quote(name)}`")
        raise Wrong("is not a hash by argon2id; " + _HASHES_ONLY.format(quote(name)))
    memory, passes, lanes = map(int, found.groups())
    if not (1 <= passes <= MAX_ARGON2_PASSES and 1 <= lanes <= MAX_ARGON2_LANES):
        raise Wrong(f"t must be 1 to {MAX_ARGON2_PASSES}, p 1 to {MAX_ARGON2_LANES}; set the password again")
    if not 8 * lanes <= memory <= MAX_ARGON2_MEMORY:
        raise Wrong(f"m must be {8 * lanes} to {MAX_ARGON2_MEMORY} (KiB); set the password again")
    assert isinstance(value, str)
    return value


def _scram(value: Any) -> dict[str, Verifier]:
    if not isinstance(value, dict):
        raise Wrong(f"must be an object: {', '.join(SCRAM_DIGESTS)} → verifier, not {values.kind(value)}")
    found = {}
    for mechanism, given in value.items():
        if mechanism not in SCRAM_DIGESTS:
            raise Wrong(f"unknown mechanism; known are {', '.join(SCRAM_DIGESTS)}", mechanism)
        try:
            found[mechanism] = _verifier(
                given, hashlib.new(SCRAM_DIGESTS[mechanism], usedforsecurity=False).digest_size
            )
        except Wrong as wrong:
            raise Wrong(str(wrong), mechanism, *wrong.path) from None
    return found


def token_name_error(name: str) -> str | None:
    """Return why `name` cannot be the name of an API token, None if it can."""
    if _TOKEN_NAME.fullmatch(name):
        return None
    return f"the name of a token has 1 to {MAX_TOKEN_NAME} letters, digits and . _ -, and begins with one of the former"


def _sha256(value: Any) -> bytes:
    try:
        found = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        found = b""
    if len(found) != 32:
        raise Wrong("must be 32 bytes in base64; make tokens with `enmasse token add`")
    return found


def _tokens(value: Any) -> dict[str, Token]:
    if not isinstance(value, dict):
        raise Wrong(f"must be an object: name → token, not {values.kind(value)}")
    if len(value) > MAX_TOKENS:
        raise Wrong(f"a user may have {MAX_TOKENS} API tokens at most, expired ones too; remove one")
    found = {}
    for name, given in value.items():
        if reason := token_name_error(name):
            raise Wrong(reason, name)
        checks: dict[str, Callable[[Any], Any]] = {
            "sha256": _sha256,
            "created": lambda when: values.whole(when, 0, MAX_TIME),
            "expires": lambda when: values.whole(when, 0, MAX_TIME),
            "readOnly": values.boolean,
        }
        try:
            facts = values.members(given, checks)
            if not {"sha256", "created"} <= facts.keys():
                raise Wrong("needs sha256 and created: make tokens with `enmasse token add`")
        except Wrong as wrong:
            raise Wrong(str(wrong), name, *wrong.path) from None
        found[name] = Token(
            sha256=facts["sha256"], created=facts["created"], expires=facts.get("expires"),
            read_only=facts.get("readOnly", False),
        )  # fmt: skip
    return found


def _verifier(value: Any, size: int) -> Verifier:
    keys = Verifier.__struct_fields__
    if not isinstance(value, dict) or value.keys() != set(keys):
        raise Wrong(f"must be an object with {', '.join(keys)}; set the password again")
    try:
        iterations = values.whole(value["iterations"], MIN_ITERATIONS, MAX_ITERATIONS)
    except Wrong as wrong:
        raise Wrong(str(wrong), "iterations") from None
    return Verifier(
        salt=_binary(value, "salt", MIN_SALT, MAX_SALT),
        iterations=iterations,
        stored_key=_binary(value, "stored_key", size, size),
        server_key=_binary(value, "server_key", size, size),
    )


def _binary(value: Mapping[str, Any], key: str, least: int, most: int) -> bytes:
    try:
        found = base64.b64decode(value[key], validate=True)
    except (TypeError, ValueError, binascii.Error):
        found = b""
    if not least <= len(found) <= most:
        raise Wrong(f"must be {least if least == most else f'{least} to {most}'} bytes in base64", key)
    return found


def _groups(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Wrong(f"must be an array of names of groups, not {values.kind(value)}")
    if len(value) > MAX_GROUPS:
        raise Wrong(f"may have {MAX_GROUPS} groups at most")
    for name in value:
        if name.startswith(GROUP):
            raise Wrong(f"groups are named without {GROUP} here; write {shown(name.lstrip(GROUP))!r}")
        reason = name_error(GROUP + name)
        if reason is not None:
            raise Wrong(f"{shown(name)!r}: {reason}")
    return tuple(dict.fromkeys(value))


def _limits(value: Any) -> ConnectionLimits:
    known = ConnectionLimits.__struct_fields__
    if not isinstance(value, dict):
        raise Wrong(f"must be an object with {', '.join(known)}, not {values.kind(value)}")
    for key, limit in value.items():
        if key not in known:
            raise values.unknown_key(key, known)
        try:
            values.whole(limit, 1, MAX_LIMIT)
        except Wrong as wrong:
            raise Wrong(str(wrong), key) from None
    return ConnectionLimits(**value)


def _permissions(value: Any) -> tuple[Permission, ...]:
    if not isinstance(value, list):
        raise Wrong(f'must be an array such as [{{"allow": ["send"], "addresses": ["a/#"]}}], not {values.kind(value)}')
    if len(value) > MAX_PERMISSIONS:
        raise Wrong(f"may have {MAX_PERMISSIONS} permissions at most; use groups")
    found = []
    for number, given in enumerate(value):
        try:
            found.append(_permission(given))
        except Wrong as wrong:
            raise Wrong(str(wrong), str(number), *wrong.path) from None
    return tuple(found)


def _permission(value: Any) -> Permission:
    if not isinstance(value, dict):
        raise Wrong(f"must be an object with allow or deny, and addresses, not {values.kind(value)}")
    for key in value:
        if key not in ("allow", "deny", "addresses"):
            raise values.unknown_key(key, ("allow", "deny", "addresses"))
    if ("allow" in value) == ("deny" in value):
        raise Wrong("must have allow or deny, and not both")
    effect: Effect = "allow" if "allow" in value else "deny"
    operations = value[effect]
    if not isinstance(operations, list) or not operations or any(each not in OPERATIONS for each in operations):
        raise Wrong(f"must be an array of {', '.join(OPERATIONS)}", effect)
    patterns = value.get("addresses")
    if not isinstance(patterns, list) or not patterns or not all(isinstance(each, str) for each in patterns):
        raise Wrong('must be an array of patterns such as "a", "a/*", "a/#" or "#"', "addresses")
    if len(patterns) > MAX_PATTERNS:
        raise Wrong(f"may have {MAX_PATTERNS} patterns at most", "addresses")
    for pattern in patterns:
        reason = pattern_error(pattern)
        if reason is not None:
            raise Wrong(f"{shown(pattern)!r} {reason}", "addresses")
    return Permission(effect=effect, operations=tuple(dict.fromkeys(operations)), addresses=tuple(patterns))
