"""Logins of all clients: proofs of identities, limits of failures, counts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from enmasse.identity.login import may_be_token
from enmasse.identity.login_audit import LoginAudit, Outcome
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import Principal
from enmasse.identity.processes.scram import USER_ITERATIONS, UnknownUsers
from enmasse.identity.proofs.failures import Failures
from enmasse.identity.proofs.login_requests import RedeemCode, RefreshLogin
from enmasse.identity.proofs.passwords import PasswordChecks
from enmasse.logs import log
from enmasse.metrics import counter, gauge, single
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE, space_error
from enmasse.model.users import ANONYMOUS, Verifier, user_name_error
from enmasse.network.host import counted_host
from enmasse.process import runner
from services.authserv.issuers import Issuers
from services.authserv.proof import Proof
from services.authserv.user_sources import Users

if TYPE_CHECKING:
    from prometheus_client.core import Metric

DELAY = 1.0
"""Seconds until a failure is answered whose address is not known, or has to wait."""
MOST_DELAYS = 6
"""Delays that a refusal waits at most whose time must not tell what was looked at: as long as an issuer may take."""
REMEMBERED = 900.0
"""Seconds for which such refusals wait as long as the slowest one."""
AT_ONCE = 64
"""Attempts of a user at an address that may be under way, which bounds the guesses between two waits."""


class Authenticator:
    """Logins of all clients. `threads`: passwords that are checked at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._checks = PasswordChecks(loop.time, threads)
        self._failures = Failures(loop.time)
        self._under_way: Counter[tuple[str, str]] = Counter()
        """Attempts without an outcome, by user and address."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delays, self._delays_until = 1, 0.0
        """Delays that the slowest refusal has waited, and the time until which all others wait as long."""
        self.unknown = UnknownUsers(USER_ITERATIONS)
        self.audit = LoginAudit(loop.time)
        self.users = Users(self._checks)
        self.issuers = Issuers(time.time)

    def replace(self, body: feeds.Users) -> None:
        """Put other users and issuers in force."""
        if body.salt_key:
            self.unknown = UnknownUsers(USER_ITERATIONS, body.salt_key)
        self.issuers.replace(body.issuers, body.issuers_in_spaces or {})
        self.users.replace(body)

    async def close(self) -> None:
        """End what runs beside the connections."""
        for task in self._tasks:
            task.cancel()
        self._checks.close()
        await self.issuers.close()

    def metrics(self) -> Iterator[Metric]:
        """Metrics of logins (docs/metrics.md)."""
        counts = [({"mechanism": name, "outcome": outcome}, n) for (name, outcome), n in sorted(self._counts.items())]
        yield counter("enmasse_logins_total", "Logins by mechanism and outcome.", counts)
        yield counter("enmasse_password_checks_total", "Passwords checked by argon2.", single(self._checks.computed))
        yield gauge("enmasse_users", "Users in users.json.", single(len(self.users)))
        yield gauge("enmasse_issuers", "Issuers in issuers.json.", single(len(self.issuers)))

    @property
    def has_users(self) -> bool:
        """Return whether users are known, so that a password can be right or wrong."""
        return self.users.known and not self.users.anonymous

    @property
    def has_spaces(self) -> bool:
        """Return True if there are address spaces beside the default one."""
        return bool(self.users.spaces)

    def begin(self, who: Principal, address: str | None) -> bool:
        """Return whether this user may try now: neither has to wait, nor has too many attempts under way."""
        user = who.full_name
        key = user, counted_host(address) if address is not None else ""
        if self._under_way[key] >= AT_ONCE or (address is not None and self._failures.wait(user, address) > 0):
            return False
        self._under_way[key] += 1
        return True

    def end(self, who: Principal, address: str | None, *, failed: bool) -> None:
        """Note that an attempt has ended. A failure from an address that is not known counts as under way DELAY longer,
        which bounds the guesses there, as failures do elsewhere."""
        if address is None and failed:
            self._loop.call_later(DELAY, self._ended, (who.full_name, ""))
        else:
            self._ended((who.full_name, counted_host(address) if address is not None else ""))

    def _ended(self, key: tuple[str, str]) -> None:
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    def failed(
        self,
        mechanism: str,
        who: Principal,
        address: str | None,
        answer: Callable[[], None],
        *,
        checked: bool,
        waiting: bool,
        took: float | None = None,
    ) -> None:
        """Count a failed login, and answer it: later if the address is not known or had to wait, and DELAY after it has
        begun where the time must not tell what was looked at. `took`: seconds since then, in that case. `waiting`: it
        was refused by `begin`."""
        self._counts[mechanism, "refused"] += 1
        known = who.full_name if self.users.knows(who) else None  # a name that is unknown may be a password
        outcome: Outcome = "waiting" if waiting else "refused"
        log.get().info(
            "authserv.login.refused", user=known, peer=address, mechanism=mechanism, outcome=outcome, space=who.space
        )
        # After the answer: whether a line is due, for a user that is known or for all others, must not delay it.
        self.soon(lambda: self.audit.note(known, address, mechanism, outcome, space=who.space))
        if address is not None and checked:
            self._failures.failed(who.full_name, address)
            if took is None:
                answer()
            else:
                self._loop.call_later(self._delay_after(took), answer)
        else:
            self._loop.call_later(DELAY, answer)

    def _delay_after(self, took: float) -> float:
        """Return the seconds for which a refusal waits whose time must not tell what was looked at: it takes a whole
        number of DELAY, as many as the slowest one of late. Else a slow issuer would tell that it was asked."""
        delays = int(took // DELAY) + 1
        if min(delays, MOST_DELAYS) >= self._delays or self.now() >= self._delays_until:
            self._delays, self._delays_until = min(delays, MOST_DELAYS), self.now() + REMEMBERED
        return max(delays, self._delays) * DELAY - took

    def succeeded(self, mechanism: str, who: Principal, address: str | None, token: str = "") -> None:
        """Count a login. `token`: name of the API token."""
        user = who.full_name
        self._counts[mechanism, "accepted"] += 1
        how = f"{mechanism} {token}" if token else mechanism
        self.audit.note(user, address, how, "accepted", space=who.space)
        if address is not None:
            self._failures.succeeded(user, address)

    def undecided(self, mechanism: str) -> None:
        """Count a login that could not be decided."""
        self._counts[mechanism, "undecided"] += 1

    def meant(self, stated: str, space: str | None) -> Principal:
        """Return the user that a client means by a name. `space`: the address space that it has chosen otherwise; None:
        `USER@SPACE` names one, if there is such a space, else it is the default one. Where a space was chosen, its name
        may follow too. There need not be such a space, nor such a user."""
        name, _, suffix = stated.rpartition("@")
        if space is None:
            return Principal(name, space=suffix) if name and suffix in self.users.spaces else Principal(stated)
        return Principal(name if name and suffix == space else stated, space=space)

    @property
    def covert(self) -> bool:
        """Whether each refusal must take as long as each other one: issuers are asked for some address spaces, for
        others not, and a client may mean one that there is not, by its name or host. A directory is asked for a
        password only if there is such a user."""
        of_spaces = self.issuers.prove_spaces or self.issuers.check_passwords
        return self.issuers.has_directories or (bool(self.users.spaces) and of_spaces)

    def verifier(self, who: Principal, mechanism: str) -> Verifier | None:
        """Return the verifier of a user for a SCRAM mechanism."""
        return self.users.verifier(who, mechanism)

    def api_token(self, secret: str) -> Proof | None:
        """Return the identity of the user with this API token."""
        return self.users.api_token(secret, time.time())

    def at_once(self, who: Principal, password: str) -> Proof | None:
        """Return the identity of the user with this password if that is known, or cheap to find; else None."""
        return None if self._may_be_token(password) else self.users.at_once(who, password)

    async def check(self, who: Principal, password: str, space: str | None) -> Proof | None:
        """Return the identity of the user with this password, which may be a token, if `at_once` has not found it.
        `space`: as of `check_token`. Issuers are asked about names that have no entry in users.json, but for those in
        the form of a user of a space that there is not: those of a space without issuers are not asked about either.
        Raises Busy, Unavailable."""
        user = who.name
        if self._may_be_token(password):
            found = await self.check_token(password, space)
            return found if found is not None and user in ("", found.principal.name) else None
        if self.users.knows(who) or user == ANONYMOUS or user_name_error(user) is not None:
            return await self.users.check(who, password)
        names_none = who.space == DEFAULT_SPACE and bool(self.users.spaces) and names_space(user)
        if self.issuers.checks_passwords_of(who.space) and not names_none:
            return await self.issuers.check_password(user, password, who.space)
        return await self.users.check(who, password)

    def _may_be_token(self, password: str) -> bool:
        return bool(self.issuers) and may_be_token(password)

    async def check_token(self, token: str, space: str | None) -> Proof | None:
        """Return the identity that a token proves in an address space; None: in that which it names. Raises
        Unavailable."""
        found = await self.issuers.check_token(token, space)
        return found if found is not None and self._has(found.principal.space) else None

    def _has(self, space: str) -> bool:
        return space == DEFAULT_SPACE or space in self.users.spaces

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code of a browser proves. Raises Busy, Unavailable."""
        found = await self.issuers.redeem(login)
        return found if found is not None and self._has(found.principal.space) else None

    async def refresh(self, login: RefreshLogin) -> Proof | None:
        """Return the identity that a refresh token proves. Raises Busy, Unavailable."""
        found = await self.issuers.refresh(login)
        return found if found is not None and self._has(found.principal.space) else None

    def principal(self, who: Principal) -> Principal | None:
        """Return the identity of a user, after the proof by SCRAM."""
        return self.users.principal(who)

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do."""
        return self.users.rights(principal)

    def credentials(self, who: Principal) -> str | None:
        """Return `credentials` of the feed `permissions`; None: the user has no entry."""
        return self.users.credentials(who)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the connection."""
        task = runner.spawn(work, "check of a password")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def now(self) -> float:
        """Return the time of the loop, in seconds."""
        return self._loop.time()

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn of the loop."""
        self._loop.call_soon(call)


def names_space(stated: str) -> bool:
    """Return whether a name has the form `USER@SPACE`; there need not be such a space."""
    name, _, suffix = stated.rpartition("@")
    return bool(name) and space_error(suffix) is None
