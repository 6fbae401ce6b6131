"""Logins at the authentication service (docs/contracts.md, "authserv"): passwords over one connection, and exchanges of
SASL over a connection for each. Their number is bounded, in all and for a client address; the others wait in their
order."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec.errors import CONNECTION_FORCED, PRECONDITION_FAILED, UNAUTHORIZED_ACCESS, AmqpError, LoginError
from enmasse.amqp.codec.performatives import SASL_AUTH
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.sasl.layer import PlainClient, SaslClient
from enmasse.bridge.client_refused import Ask, ClientRefused, Refusal
from enmasse.bridge.password_link import PasswordLink
from enmasse.identity.login import SPACES, Login, stated
from enmasse.identity.principal import ANONYMOUS
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.logs import log as logs
from enmasse.model.names import DEFAULT_SPACE

log = logs.get(part="logins")

AT_ONCE: Final = 256
"""Logins that are under way."""
OF_ADDRESS: Final = 64
"""Logins of one client address that are under way: clients that are refused slowly do not keep others waiting."""
EXCHANGES: Final = 128
"""Logins by enhanced authentication that are under way, beside those: their clients have to answer in between."""
EXCHANGES_OF_ADDRESS: Final = 32
WAITING: Final = 20_000
"""Logins of each kind that wait or are under way; more are refused at once."""
PATIENCE: Final = 10.0
"""Seconds for a login, waiting included."""
RESPONSE: Final = 8.0
"""Seconds of a client for its response to a challenge: small devices take some for the rounds of SCRAM."""
LONGEST: Final = 15 * 1024
"""Bytes of user name and password, or of a response: the authentication service takes SASL frames of 16 KiB."""
_BAD = "user name or password is wrong, or you have to wait after failed logins"
_WRONG = "user name or password is wrong"
_WAITING = "not checked: the user has to wait at this address after failed logins, or has too many of them under way"
_AWAY = "the login cannot be checked now, try again later"
_LIMITS = Limits(max_sessions=1, max_links=1)


class _Line:
    """Bounds what is under way, in all and for an address; the others wait in their order."""

    def __init__(self, at_once: int, of_address: int) -> None:
        self.waiting = 0
        self._of_address = of_address
        self._slots = asyncio.Semaphore(at_once)
        self._addresses: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Wait for a place. Raises ClientRefused if too many wait."""
        if self.waiting >= WAITING:
            raise ClientRefused(Refusal.BUSY, "too many clients log in")
        slots, users = self._addresses.setdefault(address, (asyncio.Semaphore(self._of_address), set()))
        mark = object()
        users.add(mark)
        self.waiting += 1
        try:
            async with slots, self._slots:
                yield
        finally:
            self.waiting -= 1
            users.discard(mark)
            if not users:
                del self._addresses[address]


class _Relay:
    """A mechanism whose messages the client makes."""

    def __init__(self, name: str, initial: bytes | None) -> None:
        self.name = name
        self.challenges: asyncio.Queue[bytes] = asyncio.Queue()
        self._initial = initial

    def start(self) -> bytes | None:
        return self._initial

    def respond(self, challenge: bytes) -> None:
        self.challenges.put_nowait(challenge)

    def finish(self, additional: bytes | None) -> None:
        pass


class _Answer(Handler):
    """The answer of the service: the properties of its Open, which state the user."""

    def __init__(self) -> None:
        self.properties: asyncio.Future[Mapping[Any, Any]] = asyncio.get_running_loop().create_future()

    def on_open(self, c: Connection) -> None:
        if not self.properties.done():
            self.properties.set_result(dict((c.remote_open.properties if c.remote_open is not None else None) or {}))
        c.close()

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        if not self.properties.done():
            self.properties.set_exception(error or AmqpError(CONNECTION_FORCED, "the connection is closed"))


class Authentication:
    """`host`, `port`: of the service; `tls()`: for the next connection, None: without TLS. `container`: the name of
    this gateway. `passwords`: where they are checked; None: by SASL PLAIN, over a connection for each."""

    def __init__(
        self,
        hub: Hub,
        host: str,
        port: int,
        tls: Callable[[], ssl.SSLContext | None],
        container: str,
        passwords: PasswordLink | None = None,
        relay_key: str = "",
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        """Logins that were accepted, refused, or failed without an answer."""
        self.trouble = ""
        """Why the last login has failed; empty if it was answered."""
        self._hub = hub
        self._host = host
        self._port = port
        self._tls = tls
        self._container = container
        self._link = passwords
        self._relay_key = relay_key
        self._passwords = _Line(AT_ONCE, OF_ADDRESS)
        self._exchanges = _Line(EXCHANGES, EXCHANGES_OF_ADDRESS)

    @property
    def waiting(self) -> int:
        """Return the number of logins under way, and of those that wait."""
        return self._passwords.waiting + self._exchanges.waiting

    async def login(
        self, user: str, password: bytes, peer: str, wanted: Callable[[], bool], space: str | None = None
    ) -> Login:
        """Prove a user name and password. `peer`: host:port of the client; `wanted`: whether it is still there;
        `space`: address space that it has chosen, None: its name says it. Raises ClientRefused."""
        link = self._link
        try:
            mechanism = PlainClient(user, text := password.decode())
            if len(user.encode()) + len(password) > LONGEST:
                raise ValueError
        except ValueError:
            self.outcomes["refused"] += 1
            raise ClientRefused(Refusal.CREDENTIALS, _BAD) from None
        attempt = (
            partial(self._ask, mechanism, None, space) if link is None else partial(_checked, link, user, text, space)
        )
        found, _ = await self._tried(self._passwords, peer, wanted, attempt)
        return found

    async def exchange(
        self,
        method: str,
        data: bytes | None,
        ask: Ask,
        peer: str,
        wanted: Callable[[], bool],
        space: str | None = None,
    ) -> tuple[Login, bytes | None]:
        """Relay the messages of a SCRAM mechanism, of which `data` is the first, to and from a client by `ask`. Return
        the user, and the last message of the service, its own proof. `space`: as in `login`. Raises ClientRefused."""
        if data is not None and len(data) > LONGEST:
            raise ClientRefused(Refusal.CREDENTIALS, _BAD)
        relay = _Relay(method, data)
        return await self._tried(self._exchanges, peer, wanted, partial(self._ask, relay, ask, space))

    async def _tried(
        self,
        line: _Line,
        peer: str,
        wanted: Callable[[], bool],
        attempt: Callable[[str], Awaitable[tuple[Login, bytes | None]]],
    ) -> tuple[Login, bytes | None]:
        host = peer.rpartition(":")[0].strip("[]")
        try:
            async with asyncio.timeout(PATIENCE), line.place(host):
                if not wanted():
                    raise ClientRefused(Refusal.BUSY)
                found = await attempt(host)
        except ClientRefused as error:
            if error.refusal is Refusal.CREDENTIALS:
                self.outcomes["refused"] += 1
            raise
        except (AmqpError, OSError, TimeoutError) as error:
            self._failed(str(error) or "no answer in time")
            raise ClientRefused(Refusal.AWAY, _AWAY) from None
        self.outcomes["accepted"] += 1
        self.trouble = ""
        return found

    async def _ask(
        self, mechanism: PlainClient | _Relay, ask: Ask | None, space: str | None, host: str
    ) -> tuple[Login, bytes | None]:
        """Return the user, as the service states it. Raises ClientRefused, AmqpError, OSError, TimeoutError."""
        sasl = SaslClient([mechanism], relayed_host_name(space or DEFAULT_SPACE, host, self._relay_key))
        answer = _Answer()
        connection = Connection(
            answer,
            container_id=self._container,
            is_client=True,
            hostname=self._host,
            sasl=sasl,
            limits=_LIMITS,
            desired_capabilities=(SPACES,),
        )
        last = None
        try:
            await dial(self._hub, self._host, self._port, connection, self._tls(), timeout=PATIENCE)
            if isinstance(mechanism, _Relay) and ask is not None:
                last = await _relay(mechanism, connection, ask, answer.properties)
            properties = await answer.properties
        except AmqpError as error:
            wrong = isinstance(error, LoginError) and error.code == SASL_AUTH
            if wrong or (sasl.done and error.condition == UNAUTHORIZED_ACCESS):
                raise ClientRefused(Refusal.CREDENTIALS, _BAD) from None
            raise
        finally:
            answer.properties.cancel()
            connection.close()
        return _login(properties), last

    def _failed(self, reason: str) -> None:
        self.outcomes["failed"] += 1
        if not self.trouble:
            log.warning("gateway.login.failed", reason=reason)
        self.trouble = reason


async def _checked(link: PasswordLink, user: str, password: str, space: str | None, host: str) -> tuple[Login, None]:
    """Return the user, if the password is right. Raises ClientRefused, AmqpError, OSError, TimeoutError."""
    answer = await link.ask(user, password, host, space)
    if answer.outcome == "refused":
        raise ClientRefused(Refusal.CREDENTIALS, _BAD, _WAITING if answer.waiting else _WRONG)
    if answer.outcome == "unavailable":
        raise AmqpError(PRECONDITION_FAILED, "the authentication service cannot check passwords now")
    return answer.login, None


async def _response(ask: Ask, challenge: bytes) -> bytes:
    try:
        async with asyncio.timeout(RESPONSE):
            found = await ask(challenge)
    except TimeoutError:
        raise ClientRefused(Refusal.NOT_ALLOWED, "no response to a challenge") from None
    if len(found) > LONGEST:
        raise ClientRefused(Refusal.CREDENTIALS, _BAD)
    return found


async def _relay(
    mechanism: _Relay, connection: Connection, ask: Ask, answer: asyncio.Future[Mapping[Any, Any]]
) -> bytes | None:
    """Relay challenges and responses until the service has decided; return its last message (RFC 5802, 7:
    server-final-message), which CONNACK carries: the client does not respond to it."""
    last = None
    while True:
        challenge = asyncio.ensure_future(mechanism.challenges.get())
        try:
            await asyncio.wait((challenge, answer), return_when=asyncio.FIRST_COMPLETED)
            if not challenge.done():
                return last
            data = challenge.result()
        finally:
            challenge.cancel()
        if data.startswith(b"v="):
            last = data
            connection.answer_challenge(b"")
        else:
            connection.answer_challenge(await _response(ask, data))


def _login(properties: Mapping[Any, Any]) -> Login:
    """The user that an answer states. Raises AmqpError if it states none."""
    login = stated(properties)
    if login is None:
        raise AmqpError(UNAUTHORIZED_ACCESS, "the authentication service does not state the user")
    if login.principal.name == ANONYMOUS:  # it does not know the users yet, and takes any password
        raise AmqpError(UNAUTHORIZED_ACCESS, "the authentication service has no users yet")
    return login
