"""SASL of clients by an authentication service (`authServicePlugin`): frames are relayed, over a connection to the
service for each login, and the service's Open states who the client is (docs/contracts.md, "authserv")."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import (
    SASL_AUTH,
    SASL_OK,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.sasl.layer import EXTERNAL, TEMPORARY, SaslClient, SaslServer
from enmasse.identity.allowances import Allowances, Reservation
from enmasse.identity.login import SPACES, Login, stated
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.identity.proofs.stated_names import user_in
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network.host import counted_host
from enmasse.process import runner
from services.router import PRODUCT, SIMULATES
from services.router.network import hosts, tls
from services.router.network.port_settings import ANONYMOUS, PLAIN, AuthService, SslProfile

SECONDS = 8.0
"""Time for a login, until then it must have its outcome."""
MOST, MOST_OF_A_HOST, MOST_WAITING = 128, 64, 4096
"""Logins with a connection to a service, those of one host among them, and logins that wait for one."""
MOST_ROUNDS = 16
READABLE = (PLAIN, "OAUTHBEARER", "XOAUTH2")
"""Mechanisms that send a secret: only where no other machine can read the connections, to the service too."""
UNREADY = ("SCRAM-SHA-512", "SCRAM-SHA-256", PLAIN, ANONYMOUS)
"""Offered if the service cannot be asked: each of them fails for now."""
_LIMITS = Limits(max_sessions=1, max_links=1)


class Client(NamedTuple):
    """A client that logs in. `host`: its address; `protected`: no other machine can read the
    connection."""

    host: str
    protected: bool
    mechanisms: tuple[str, ...] = ()
    """The ones that the listener permits; empty: all."""


class LoginQueue:
    """Logins under way. Hosts with waiting logins take turns, so that many of one host do not keep out others."""

    def __init__(self, hub: Hub, router_id: str, profile: Callable[[str], SslProfile], relay_key: str = "") -> None:
        """`relay_key`: proves the addresses of clients to the service (enmasse/identity/processes/relays.py)."""
        self.hub = hub
        self.loop = hub.loop
        self.router_id = router_id
        self.profile = profile
        self.relay_key = relay_key
        self.offers: dict[AuthService, tuple[str, ...]] = {}
        """Mechanisms that a service has offered last."""
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[RelayedLogin]] = {}
        self._number = 0

    def begin(self, login: RelayedLogin) -> bool:
        """Ask the service when it is this login's turn. Return False if too many wait."""
        if self._number >= MOST_WAITING:
            return False
        self._number += 1
        self._waiting.setdefault(counted_host(login.client.host), deque()).append(login)
        self._proceed()
        return True

    def leave(self, login: RelayedLogin) -> None:
        """Remove a login that has ended: one that waited, or one that was under way."""
        host = counted_host(login.client.host)
        waiting = self._waiting.get(host)
        if waiting is not None and login in waiting:
            waiting.remove(login)
            self._number -= 1
            if not waiting:
                del self._waiting[host]
            return
        self._under_way[host] -= 1
        if not self._under_way[host]:
            del self._under_way[host]
        self._proceed()

    def _proceed(self) -> None:
        while self._under_way.total() < MOST:
            host = next((each for each in self._waiting if self._under_way[each] < MOST_OF_A_HOST), None)
            if host is None:
                return
            waiting = self._waiting.pop(host)
            login = waiting.popleft()
            if waiting:
                self._waiting[host] = waiting  # behind the other hosts
            self._number -= 1
            self._under_way[host] += 1
            login.ask_service()


class RelayedLogin(SaslServer):
    """SASL of one client: its frames go to the service, and those of the service to it. `go_on` reads what the client
    has sent meanwhile."""

    def __init__(
        self,
        logins: LoginQueue,
        service: AuthService | None,
        client: Client,
        go_on: Callable[[], None],
        by_certificate: Callable[[str, str], Login | None] | None = None,
        meant: Callable[[str | None, str], str | None] = lambda hostname, stated: None,
        *,
        required: bool = True,
        allowances: Allowances | None = None,
    ) -> None:
        """`service` None: every login fails for now. `by_certificate`: the client has presented a certificate; called
        with the name that it wants to have, or an empty one, and its address space, and returns its login, None if it
        is refused. `meant`: returns the address space that the client has chosen, given the host of its sasl-init
        and the user that it names there; None: none. `allowances`: room for connections of address spaces."""
        super().__init__({}, required=required)
        self.client = client
        self.space: str | None = None
        """The address space that the client has chosen."""
        self._meant = meant
        self.identity: Login | None = None
        self.reservation: Reservation | None = None
        """Room for the connection of a client that was accepted."""
        self._allowances = allowances
        self._awaits_room = False
        self._logins = logins
        self._service = service
        self._go_on = go_on
        self._by_certificate = by_certificate
        self._init: SaslInit | None = None
        """The client's choice, for a service that is not asked yet."""
        self._asked = False
        """The service has to answer."""
        self._over = False
        self._under_way = False
        self._failed = False
        """The service could not be asked; the client gets this outcome when it has chosen a mechanism."""
        self._connection: Connection | None = None
        self._timer: Any = None
        self._task: Any = None

    @property
    def waits(self) -> bool:
        """Return whether the service, or the client's turn, is waited for."""
        return self._asked

    # --- the client -----------------------------------------------------------------------------------------------

    def start(self, send: Callable[[Any], None], on_done: Callable[[str | None, bool], None]) -> None:
        """The client begins."""
        self._send, self._on_done = send, on_done
        known = self._logins.offers.get(self._service) if self._service is not None else None
        if self._by_certificate is not None and known is not None:
            self._offer(known)  # the service is asked if the client chooses one of its mechanisms
        else:
            self._begin()

    def _begin(self) -> None:
        self._asked = True
        if self._service is None or not self._logins.begin(self):
            self.give_up()
            return
        self._under_way = True
        self._timer = self._logins.loop.call_later(SECONDS, self.give_up)

    def receive(self, frame: Any) -> None:
        """Pass on a frame of the client. Raises AmqpError if it is out of turn."""
        if isinstance(frame, SaslInit) and self.mechanism is None:
            self.mechanism = str(frame.mechanism)
            self.space = self._meant(frame.hostname, user_in(self.mechanism, frame.initial_response))
            offered = self.mechanism in (self.offered or ())
            if offered and self.mechanism == EXTERNAL:
                self._decide_by_certificate(frame.initial_response)
            elif self._failed:
                self._decide(TEMPORARY)
            elif not offered:
                self._decide(SASL_AUTH)
            else:
                self._choose(frame)
        elif isinstance(frame, SaslResponse) and self.mechanism is not None and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            self._pass_on(SaslResponse(response=frame.response))
        else:
            raise AmqpError(errors.ILLEGAL_STATE, f"{type(frame).__name__} is out of turn in the SASL exchange")

    def _choose(self, frame: SaslInit) -> None:
        assert self._service is not None
        realm = self.space or self._service.realm or DEFAULT_SPACE
        hostname = relayed_host_name(realm, self.client.host, self._logins.relay_key)
        init = SaslInit(mechanism=frame.mechanism, initial_response=frame.initial_response, hostname=hostname)
        if self._under_way:
            self._pass_on(init)
        else:
            self._init = init
            self._begin()

    def _decide_by_certificate(self, response: bytes | None) -> None:
        assert self._by_certificate is not None
        if self._service is None:  # the users are not known yet
            self._decide(TEMPORARY)
            return
        name = bytes(response or b"").decode(errors="replace")
        self.identity = self._by_certificate(name, self.space or DEFAULT_SPACE)
        if self.identity is None:
            self._decide(SASL_AUTH)
        else:
            self._accept(self.identity)

    def _accept(self, identity: Login, additional: bytes | None = None) -> None:
        """Accept the client, once it is known whether there is room for its connection. The service is not needed
        meanwhile."""
        allowances = self._allowances

        def accept() -> None:
            self._awaits_room = False
            if not self._over:
                self.identity = identity
                if allowances is not None:
                    self.reservation = allowances.reserve(identity.principal)
                self._decide(SASL_OK, identity.principal.full_name, additional)

        if allowances is not None and allowances.wait(identity.principal, accept):
            self._asked = self._awaits_room = True
            self._release()
        else:
            accept()

    def let_go(self) -> None:
        """The outcome is decided, or the client has gone: the connection to the service ends."""
        super().let_go()
        self._over = True
        self._asked = False
        self._go_on = self._meant = _nothing  # they refer to the connection, which refers to this
        self._release()

    def _release(self) -> None:
        """End the connection to the service: it is another login's turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._under_way:
            self._under_way = False
            self._logins.leave(self)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._logins.loop.call_soon(connection.close)

    def _pass_on(self, frame: Any) -> None:
        connection = self._connection
        if connection is None or connection.finished:
            self._decide(TEMPORARY)
            return
        body = encode_performative(frame)
        self._asked = True
        connection.output.put(HEADER(len(body) + 8, 2, 1, 0) + body)

    def _decide(self, code: int, user: str | None = None, additional: bytes | None = None) -> None:
        self._asked = False
        self._send(SaslOutcome(code=code, additional_data=additional))
        self.done = code == SASL_OK
        on_done = self._on_done
        self.let_go()
        on_done(user, self.done)

    # --- the service ----------------------------------------------------------------------------------------------

    def ask_service(self) -> None:
        """Connect to the service: the client has its turn."""
        self._task = runner.spawn(self._dial(), "connection to the authentication service")

    async def _dial(self) -> None:
        service, logins = self._service, self._logins
        assert service is not None
        connection = Connection(
            _Asker(self),
            container_id=logins.router_id,
            is_client=True,
            hostname=service.host,
            sasl=_ServiceSasl(self),
            properties={"product": PRODUCT, "version": SIMULATES},
            desired_capabilities=(SPACES,),
            limits=_LIMITS,
        )
        self._connection = connection
        try:
            host, context = await hosts.address(service.host, None), None
            if service.ssl_profile:
                context = tls.client_context(logins.profile(service.ssl_profile), verify_hostname=True)
            port = hosts.port_number(service.port)
            await dial(logins.hub, host, port, connection, ssl=context, server_hostname=service.host)
        except (OSError, ValueError):
            self._task = None
            self.give_up()
        else:
            self._task = None

    def offer(self, names: Sequence[str]) -> None:
        """The service offers these mechanisms."""
        assert self._service is not None
        self._logins.offers[self._service] = tuple(names)
        init, self._init = self._init, None
        if init is None:
            self._offer(names)
        else:
            self._pass_on(init)

    def _offer(self, names: Sequence[str]) -> None:
        permitted, service = self.client.mechanisms, self._service
        protected = self.client.protected and (service is None or service.protected)
        self.offered = tuple(
            name
            for name in (*([EXTERNAL] if self._by_certificate is not None else []), *names)
            if (name not in READABLE or protected) and (not permitted or name in permitted)
        )
        self._send(SaslMechanisms(sasl_server_mechanisms=tuple(map(Symbol, self.offered))))
        self._proceed()

    def challenge(self, data: bytes) -> None:
        """The service asks for more."""
        self._send(SaslChallenge(challenge=data))
        self._proceed()

    def succeed(self, identity: Login, additional: bytes | None) -> None:
        """The service has accepted the client, and states who it is."""
        if self._asked and self.space not in (None, identity.principal.space):
            self._decide(SASL_AUTH)  # its name says another one
        elif self._asked:
            self._accept(identity, additional)

    def fail(self, code: int) -> None:
        """The service has refused the client."""
        if self._asked:
            self._decide(code)

    def give_up(self) -> None:
        """The service cannot be asked, or there was no outcome in time."""
        if self._over or self._awaits_room:
            return
        if self.mechanism is not None:
            self._decide(TEMPORARY)
        elif not self._failed:
            self._failed = True
            self._release()
            if self.offered is None:
                self._offer(UNREADY)

    def _proceed(self) -> None:
        self._asked = False
        self._go_on()


def _nothing(*_: Any) -> None:
    """Ignore a call."""


class _ServiceSasl(SaslClient):
    """SASL towards the service: what it sends is passed on."""

    def __init__(self, login: RelayedLogin) -> None:
        super().__init__([])
        self.additional: bytes | None = None
        self._login = login
        self._began = False

    def receive(self, frame: Any) -> None:
        """Pass on a frame of the service. Raises AmqpError if it is out of turn."""
        login = self._login
        if isinstance(frame, SaslMechanisms) and not self._began:
            self._began = True
            login.offer([str(name) for name in frame.sasl_server_mechanisms])
        elif isinstance(frame, SaslChallenge) and login.waits and login.mechanism is not None:
            login.challenge(bytes(frame.challenge))
        elif isinstance(frame, SaslOutcome) and login.waits and login.mechanism is not None:
            if frame.code == SASL_OK:
                self.additional = None if frame.additional_data is None else bytes(frame.additional_data)
                self.done = True
            else:
                login.fail(int(frame.code))
        else:
            raise AmqpError(errors.ILLEGAL_STATE, f"{type(frame).__name__} is out of turn in the SASL exchange")


class _Asker(Handler):
    """The connection to the service."""

    def __init__(self, login: RelayedLogin) -> None:
        self._login = login

    def on_open(self, c: Connection) -> None:
        remote, sasl = c.remote_open, c.sasl
        assert remote is not None
        assert isinstance(sasl, _ServiceSasl)
        identity = stated(remote.properties or {})
        if identity is None:
            self._login.fail(TEMPORARY)
        else:
            self._login.succeed(identity, sasl.additional)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self._login.give_up()
