"""Passwords of users: their hashes, and checks off the event loop (docs/identity.md, "Passwords").

argon2 takes 25 ms of a processor and 19 MiB for a check, so checks run in a few threads (argon2 releases the GIL).
Those of generated passwords take less than the way to a thread and back, and run where they are. Successes are
remembered by user, hash and password: a changed hash is another key, so a changed password takes effect at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from scramp import ScramException

from enmasse.identity.processes.scram import USER_ITERATIONS, USER_MECHANISMS, verifier
from enmasse.identity.proofs.remembered import Remembered
from enmasse.model.users import Verifier, prepared

MAX_PASSWORD = 1024
"""Bytes of a password in UTF-8."""
GENERATED_BYTES = 24
"""Random bytes of a generated password: 32 characters."""
LIFETIME = 3600.0
"""Seconds for which a success is remembered."""
MAX_REMEMBERED = 100_000
"""Successes that are remembered, with 150 bytes each."""
MAX_WAITING = 4096
"""Checks that may wait for a thread."""


class Cost(NamedTuple):
    """Cost of one check by argon2id: memory in KiB, passes over it, lanes."""

    memory: int
    passes: int
    lanes: int

    def is_of(self, hash: str) -> bool:
        """Return whether this is the cost of a hash."""
        return f"$m={self.memory},t={self.passes},p={self.lanes}$" in hash

    def hasher(self) -> PasswordHasher:
        """Return what makes hashes of this cost."""
        return PasswordHasher(time_cost=self.passes, memory_cost=self.memory, parallelism=self.lanes)


CHOSEN = Cost(19 * 1024, 2, 1)
"""For passwords that people choose: 25 ms and 19 MiB (OWASP, Password Storage Cheat Sheet, 2024)."""
GENERATED = Cost(64, 1, 1)
"""For generated passwords, 65 µs and 64 KiB: 192 random bits cannot be guessed, whatever a guess costs."""


class Hashes(NamedTuple):
    """Values of users.json that prove a password."""

    password: str
    scram: dict[str, Verifier]


class Unsuitable(ValueError):
    """A text that cannot be a password; the message has the reason, and not the text."""


class Busy(Exception):
    """Too many checks wait; try again later."""


def generated() -> str:
    """Return a new random password."""
    return secrets.token_urlsafe(GENERATED_BYTES)


def hashed(password: str, *, random: bool = False, mechanisms: Sequence[str] = USER_MECHANISMS) -> Hashes:
    """Return the hashes of a password, for PLAIN and for these SCRAM mechanisms. `random`: it was generated, so that a
    cheap hash will do. Raises Unsuitable."""
    if not password:
        raise Unsuitable("it is empty; choose another one")
    if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD:
        raise Unsuitable(f"it has more than {MAX_PASSWORD} bytes; choose a shorter one")
    if prepared(password) is None:
        raise Unsuitable("it has characters that SASLprep (RFC 4013) forbids, such as control characters or emoji")
    cost = GENERATED if random else CHOSEN
    try:
        scram = {name: verifier(password, USER_ITERATIONS, name) for name in mechanisms}
    except ScramException as error:
        raise Unsuitable(str(error)) from None
    return Hashes(cost.hasher().hash(_form(password)), scram)


def proves(hash: str, password: str) -> bool:
    """Return whether the password has this hash, after one check."""
    return _is_right(hash, _form(password))


class PasswordChecks:
    """Checks of passwords in at most `threads` threads. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float], threads: int = 2) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._remembered: Remembered[bool] = Remembered(now, MAX_REMEMBERED)
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._dummies: dict[Cost, str] = {}
        self.computed = 0
        """Checks that were computed, and not remembered."""

    def at_once(self, user: str, hash: str | None, password: str) -> bool:
        """Return whether the password is known to have this hash, or has it and a check is cheap. False proves
        nothing: `check` is to be asked."""
        key = self._remembered.key(user, hash or "", password)
        if self._remembered.get(key):
            return True
        if hash is None or not GENERATED.is_of(hash) or not _is_right(hash, _form(password)):
            return False
        self.computed += 1
        self._remembered.put(key, True, LIFETIME)
        return True

    async def check(self, user: str, hash: str | None, password: str) -> bool:
        """Return whether the password has this hash, which `at_once` has not confirmed. None: the user is unknown or
        has none; the result is False after the same time as for a wrong password. Raises Busy."""
        key = self._remembered.key(user, hash or "", password)
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= MAX_WAITING:
                raise Busy
            cheap = hash is not None and GENERATED.is_of(hash)
            running = asyncio.ensure_future(self._computed(hash, password, checked=cheap))
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key, None))
        right = await asyncio.shield(running)
        if right:
            self._remembered.put(key, True, LIFETIME)
        return right

    def close(self) -> None:
        """End the threads; checks that wait are cancelled."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _computed(self, hash: str | None, password: str, *, checked: bool) -> bool:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="passwords")
        self.computed += 1
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._compute, hash, password, checked)

    def _compute(self, hash: str | None, password: str, checked: bool) -> bool:
        """Return True if the password is right. A failure costs one check of each usual cost, whether or not the user
        exists and whichever hash it has. `checked`: the password is known to be wrong."""
        text = _form(password)
        right = not checked and _is_right(hash, text)
        if not right:
            for cost in (CHOSEN, GENERATED):
                if hash is None or not cost.is_of(hash):
                    if cost not in self._dummies:
                        self._dummies[cost] = cost.hasher().hash(secrets.token_bytes())
                    _matches(self._dummies[cost], text[:MAX_PASSWORD])
        return right


def _form(password: str) -> bytes:
    """Return the bytes that are hashed: as SCRAM does, in the form of SASLprep if there is one."""
    return (prepared(password) or password).encode("utf-8", "surrogatepass")


def _is_right(hash: str | None, text: bytes) -> bool:
    return hash is not None and len(text) <= MAX_PASSWORD and _matches(hash, text)


def _matches(hash: str, password: bytes) -> bool:
    try:
        return PasswordHasher().verify(hash, password)
    except (Argon2Error, InvalidHashError, ValueError):
        return False
