"""Users of one directory (LDAP), whose passwords it checks. Slow or away, it keeps only its own users waiting: each
directory has threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from enmasse.identity.principal import Principal
from enmasse.identity.proofs.passwords import MAX_PASSWORD, Busy
from enmasse.identity.proofs.remembered import Remembered
from enmasse.logs import log
from enmasse.model.issuers import Issuer
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.users import GROUP, name_error
from services.authserv.grant import LIFETIME, MAX_REMEMBERED
from services.authserv.ldap.ldap_server import DirectoryUser, LdapError, LdapServer
from services.authserv.proof import Proof, Unavailable
from services.authserv.prover import Prover
from services.authserv.token_endpoint import AT_ONCE, MAX_WAITING, TIMEOUT

RETRY, REFRESH = 2.0, 30.0
"""Seconds between two looks at a directory that does not answer, and at one that does."""
SPREAD = 0.1
"""Share of a session by which some end earlier: users that log in together do not all reconnect together."""

T = TypeVar("T")


class LdapSource(Prover):
    """Users of one directory. `now`: seconds since 1970; `space`: the address space whose file has the entry."""

    def __init__(self, issuer: Issuer, now: Callable[[], float], space: str = DEFAULT_SPACE) -> None:
        super().__init__(issuer, space)
        assert issuer.ldap is not None
        self._ldap = issuer.ldap
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._server = LdapServer(issuer.ldap, issuer.ca)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ldap")
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._remembered: Remembered[Proof] = Remembered(self._loop.time, MAX_REMEMBERED)
        self._away = False
        """The directory does not answer: no login asks it until `run` has found that it does."""
        self._failing = asyncio.Event()
        self._problem = "it has not been reached yet"

    @property
    def checks_passwords(self) -> bool:
        """Return True."""
        return True

    @property
    def problem(self) -> str:
        """Return what does not work, empty if everything does."""
        return self._problem and f"directory: {self._problem}"

    async def check_password(self, user: str, password: str) -> Proof | None:
        """Return the identity that a password proves. Raises Busy, Unavailable."""
        if not password or "\0" in password or len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD:
            return None
        key = self._remembered.key(user, password)
        proof = self._remembered.get(key)
        if proof is not None:
            return proof
        if self._away:
            raise Unavailable(self._problem)
        found = await self._asked(lambda: self._server.login(user, password))
        if found is None:
            return None
        proof = self._proof(user, found)
        self._remembered.put(key, proof, LIFETIME)
        return proof

    async def run(self) -> None:
        """Look whether the directory answers, until cancelled."""
        try:
            while True:
                try:
                    await self._asked(self._server.probe)
                except (Busy, Unavailable):
                    pass
                else:
                    self._away = False
                if self._problem:
                    await asyncio.sleep(RETRY)
                    continue
                self._failing.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REFRESH):
                        await self._failing.wait()
        finally:
            self._server.close()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _proof(self, user: str, found: DirectoryUser) -> Proof:
        groups = tuple(group for group in found.groups if name_error(GROUP + group) is None)
        session = self._ldap.session * (1 - random.uniform(0, SPREAD))
        return Proof(Principal(user, groups, self.space), int(self._now() + session))

    async def _asked(self, ask: Callable[[], T]) -> T:
        """Return what a thread finds. Raises Busy, Unavailable."""
        if self._waiting >= MAX_WAITING:
            raise Busy
        self._waiting += 1
        until = self._loop.time() + TIMEOUT
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("too many logins are under way there") from None
        finally:
            self._waiting -= 1
        asked = self._loop.run_in_executor(self._pool, ask)
        asked.add_done_callback(self._ended)
        await asyncio.wait([asked], timeout=until - self._loop.time())
        try:
            if not asked.done():
                raise LdapError(f"no answer within {TIMEOUT:.0f} s", away=True)
            found = asked.result()
        except LdapError as error:
            self._failed(error)
            raise Unavailable(str(error)) from None
        self._problem = ""
        return found

    def _ended(self, asked: asyncio.Future[T]) -> None:
        self._slots.release()
        if not asked.cancelled():
            asked.exception()  # it was looked at, also if no login waits for it

    def _failed(self, error: LdapError) -> None:
        self._away = self._away or error.away
        if str(error) != self._problem:
            log.get().warning("authserv.directory.failed", directory=self._ldap.url, reason=str(error))
        self._problem = str(error)
        self._failing.set()
