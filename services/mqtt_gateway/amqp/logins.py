"""Logins at the authentication service: one connection for each, by the SASL delegation contract (docs/contracts.md,
"authserv"). Their number is bounded, in all and for a client address; the others wait in their order."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from enmasse import log as logs
from enmasse.aio.transport import Hub, dial
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import CONNECTION_FORCED, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.performatives import SASL_AUTH
from enmasse.amqp.sasl import PlainClient, SaslClient
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.mqtt import reasons
from services.mqtt_gateway.amqp.access import Login
from services.mqtt_gateway.ports import Refused

log = logs.get(part="logins")

AT_ONCE: Final = 256
"""Logins that are under way."""
OF_ADDRESS: Final = 64
"""Logins of one client address that are under way: clients that are refused slowly do not keep others waiting."""
WAITING: Final = 20_000
"""Logins that wait, beside those; more are refused at once."""
PATIENCE: Final = 10.0
"""Seconds for a login, waiting included."""
LONGEST: Final = 15 * 1024
"""Bytes of user name and password: the authentication service takes SASL frames of 16 KiB."""
_BAD = "user name or password is wrong"
_AWAY = "the authentication service is not reached"
_LIMITS = Limits(max_sessions=1, max_links=1, handshake_timeout_ms=10_000)


class _Address:
    """Logins of the clients at an address."""

    __slots__ = ("count", "slots")

    def __init__(self) -> None:
        self.count = 0
        self.slots = asyncio.Semaphore(OF_ADDRESS)


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


class Logins:
    """`host`, `port`: of the service; `tls`: None for a connection without TLS. `container`: the name of this
    gateway."""

    def __init__(self, hub: Hub, host: str, port: int, tls: ssl.SSLContext | None, container: str) -> None:
        self.outcomes: Counter[str] = Counter()
        """Logins that were accepted, refused, or failed without an answer."""
        self.waiting = 0
        """Logins under way, and those that wait."""
        self.trouble = ""
        """Why the last login has failed; empty if it was answered."""
        self._hub = hub
        self._host = host
        self._port = port
        self._tls = tls
        self._container = container
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._addresses: dict[str, _Address] = {}

    async def login(self, user: str, password: bytes, peer: str, wanted: Callable[[], bool]) -> Login:
        """Prove a user name and password. `peer`: host:port of the client; `wanted`: whether it is still there.
        Raises Refused."""
        try:
            mechanism = PlainClient(user, password.decode())
            if len(user.encode()) + len(password) > LONGEST:
                raise ValueError
        except ValueError:
            self.outcomes["refused"] += 1
            raise Refused(reasons.BAD_USER_NAME_OR_PASSWORD, _BAD) from None
        if self.waiting >= AT_ONCE + WAITING:
            raise Refused(reasons.SERVER_BUSY, "too many clients log in")
        host = peer.rpartition(":")[0].strip("[]")
        try:
            async with asyncio.timeout(PATIENCE), self._slot(host):
                if not wanted():
                    raise Refused(reasons.SERVER_BUSY)
                found = await self._ask(mechanism, host)
        except Refused as refusal:
            if refusal.reason == reasons.BAD_USER_NAME_OR_PASSWORD:
                self.outcomes["refused"] += 1
            raise
        except (AmqpError, OSError, TimeoutError) as error:
            self._failed(str(error) or "no answer in time")
            raise Refused(reasons.SERVER_UNAVAILABLE, _AWAY) from None
        self.outcomes["accepted"] += 1
        self.trouble = ""
        return found

    @asynccontextmanager
    async def _slot(self, host: str) -> AsyncIterator[None]:
        address = self._addresses.setdefault(host, _Address())
        address.count += 1
        self.waiting += 1
        try:
            async with address.slots, self._slots:
                yield
        finally:
            self.waiting -= 1
            address.count -= 1
            if not address.count:
                del self._addresses[host]

    async def _ask(self, mechanism: PlainClient, host: str) -> Login:
        """Return the user, as the service states it. Raises Refused, AmqpError, OSError, TimeoutError."""
        sasl = SaslClient([mechanism], f"default?client={host}")
        answer = _Answer()
        connection = Connection(
            answer, container_id=self._container, is_client=True, hostname=self._host, sasl=sasl, limits=_LIMITS
        )
        try:
            await dial(self._hub, self._host, self._port, connection, self._tls, timeout=PATIENCE)
            properties = await answer.properties
        except AmqpError as error:
            removed = sasl.done and error.condition == UNAUTHORIZED_ACCESS
            if sasl.outcome == SASL_AUTH or removed:
                raise Refused(reasons.BAD_USER_NAME_OR_PASSWORD, _BAD) from None
            raise
        finally:
            answer.properties.cancel()
            connection.close()
        return _login(properties)

    def _failed(self, reason: str) -> None:
        self.outcomes["failed"] += 1
        if not self.trouble:
            log.warning("gateway.login.failed", reason=reason)
        self.trouble = reason


def _login(properties: Mapping[Any, Any]) -> Login:
    """The user that an answer states. Raises AmqpError if it states none."""
    identity = properties.get("authenticated-identity")
    name = identity.get("sub") if isinstance(identity, Mapping) else None
    groups = properties.get("groups")
    credentials = properties.get("credentials")
    if not isinstance(name, str) or not name:
        raise AmqpError(UNAUTHORIZED_ACCESS, "the authentication service does not state the user")
    if name == ANONYMOUS:  # it does not know the users yet, and takes any password
        raise AmqpError(UNAUTHORIZED_ACCESS, "the authentication service has no users yet")
    stated = tuple(str(each) for each in groups) if isinstance(groups, list | tuple) else ()
    return Login(Principal(str(name), stated), str(credentials) if isinstance(credentials, str) else None)
