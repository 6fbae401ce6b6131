"""One client: its SASL exchange, then an Open that states the identity (docs/contracts.md, "authserv")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SASL_AUTH
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.layer import TEMPORARY, Exchange, ServerMechanism, anonymous, plain
from enmasse.identity.login import SPACES, Login
from enmasse.identity.principal import Principal
from enmasse.identity.processes.relays import CLIENT, relayed_client
from enmasse.identity.processes.scram import UnknownUsers, scram
from enmasse.identity.proofs.login_requests import RedeemCode, RefreshLogin
from enmasse.identity.proofs.passwords import Busy
from enmasse.identity.user_directory import removed
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.users import ANONYMOUS, TokenFacts, Verifier, prepared
from services.authserv.authenticator import Authenticator
from services.authserv.authz import AUTHZ, NOTHING, address_authz
from services.authserv.bearer import oauthbearer, xoauth2
from services.authserv.proof import Proof, Unavailable

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection

BEARER = {"OAUTHBEARER": oauthbearer, "XOAUTH2": xoauth2}


class SaslLogin(Handler):
    """Login of one client. `address`: its host; `relayed`: it may state another one, with a proof by `relay_key` unless
    that is empty. `spaces`: False if the relay knows no address spaces; `space`: the client has chosen this one."""

    def __init__(
        self,
        logins: Authenticator,
        address: str,
        *,
        relayed: bool,
        relay_key: str = "",
        spaces: bool = True,
        space: str | None = None,
    ) -> None:
        self._logins = logins
        self._peer = address
        self._relayed = relayed
        self._relay_key = relay_key
        self._address: str | None = None
        self._who = Principal("")
        """The user that the client means."""
        self._spaces = spaces
        self._space: str | None = space if spaces else DEFAULT_SPACE
        """The address space that the client has chosen; None: its name decides."""
        self._principal: Principal | None = None
        self._expires: int | None = None
        self._token: str = ""
        self._facts: TokenFacts | None = None
        self.refresh_token: str | None = None
        """The issuer gives it with a login of a browser that was accepted."""
        self._credentials: str | None = None
        """Credentials that the user had when the client began to prove them; a change meanwhile makes them differ."""
        self._trying = False
        self.waiting = False
        """The client was refused unseen, because of earlier failures or of too many attempts under way."""
        self._began = 0.0
        self._covert = False
        """A refusal must not tell by its time whether there is a space."""

    def mechanisms(self, names: tuple[str, ...], unknown: UnknownUsers) -> dict[str, Callable[[], ServerMechanism]]:
        """Return the mechanisms of these names for SaslServer."""
        return {name: self._watched(self._mechanism(name, unknown)) for name in names}

    def open_to_all(self) -> dict[str, Callable[[], ServerMechanism]]:
        """Return mechanisms that let in everyone as the anonymous user, whatever the password."""
        everyone = plain(self._let_in)
        return {"PLAIN": self._watched(everyone), "ANONYMOUS": self._watched(anonymous)}

    def unready(self, names: tuple[str, ...]) -> dict[str, Callable[[], ServerMechanism]]:
        """Return mechanisms that fail for now."""
        return dict.fromkeys(names, _Unready)

    # --- engine -------------------------------------------------------------------------------------------------------

    def on_open(self, c: Connection) -> None:
        """State the identity, then close."""
        found = self.identity()
        wanted = c.remote_open.desired_capabilities if c.remote_open is not None else None
        desired = tuple(map(str, wanted or ()))
        if found is None or (found.principal.space != DEFAULT_SPACE and SPACES not in desired):
            # A router of Dispatch has let the client in already: the rights are all that it still heeds.
            c.open_fields.properties = {**(c.open_fields.properties or {}), Symbol("address-authz"): NOTHING}
            c.close(AmqpError(errors.UNAUTHORIZED_ACCESS, removed(self._who.name)))
            return
        principal = found.principal
        properties: dict[Any, Any] = {
            Symbol("authenticated-identity"): {"sub": principal.name, "preferred_username": principal.name},
            Symbol("groups"): list(principal.groups),
        }
        if found.credentials is not None:
            properties[Symbol("credentials")] = found.credentials
        if found.expires is not None:
            properties[Symbol("exp")] = found.expires
        if principal.space != DEFAULT_SPACE:
            properties[Symbol("space")] = principal.space
        if AUTHZ in desired:
            spaces = self._logins.has_spaces
            authz = address_authz(self._logins.rights(principal), principal.name, spaces=spaces)
            properties[Symbol("address-authz")] = authz
            c.open_fields.offered_capabilities = (Symbol(AUTHZ),)
        c.open_fields.properties = {**(c.open_fields.properties or {}), **properties}
        self._logins.soon(c.close)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """End an attempt that has no outcome."""
        self._end()

    def identity(self) -> Login | None:
        """Return the identity of the client, after it was accepted; None: the user was removed meanwhile."""
        principal, credentials = self._principal, self._credentials
        if principal is None:
            return None
        if self._facts is not None:
            facts = self._facts
            return Login(principal, facts.id, self._expires, token=self._token, read_only=facts.read_only)
        if credentials is None:
            credentials = self._logins.credentials(principal)
        return Login(principal, credentials, self._expires)

    def means_default(self, user: str) -> bool:
        """Return whether a client that states this name means the default space."""
        return self._logins.meant(prepared(user) or user, self._space).space == DEFAULT_SPACE

    def check(self, exchange: Exchange, user: str, password: str) -> None:
        """Check a password that has come without a SASL exchange, and answer as a mechanism does."""
        self.begun(None)
        self._check(_Answer(exchange, self), user, password)

    def check_api_token(self, exchange: Exchange, user: str, secret: str) -> None:
        """Check an API token, and answer as a mechanism does. `user`: empty unless the client states one. One that is
        right waits for nothing: failures of others at this address bound no guesses of 256 random bits."""
        self.begun(None)
        answer, who = _Answer(exchange, self), self._meant(prepared(user) or user)
        self._who, space = who, self._chosen(who)
        found = self._logins.api_token(secret)
        right = found is not None and space in (None, found.principal.space)
        if found is not None and right and who.name in ("", found.principal.name):
            self._proved(answer, found)
        else:
            self._may_try()
            answer.fail()

    def redeem(self, exchange: Exchange, code: RedeemCode) -> None:
        """Check a code that a browser has brought from its issuer, and answer as a mechanism does."""
        self.begun(None)
        self._decide(_Answer(exchange, self), Principal(""), self._space, self._logins.redeem(code))

    def refresh(self, exchange: Exchange, request: RefreshLogin) -> None:
        """Check a refresh token, and answer as a mechanism does. Failures of others at this address do not count:
        this client was logged in before."""
        self.begun(None)
        self._logins.spawn(
            self._decided(_Answer(exchange, self), Principal(""), self._space, self._logins.refresh(request))
        )

    # --- mechanisms ---------------------------------------------------------------------------------------------------

    def _mechanism(self, name: str, unknown: UnknownUsers) -> Callable[[], ServerMechanism]:
        if name == "PLAIN":
            return plain(self._check)
        if name in BEARER:
            return BEARER[name](self._check_token)
        if name == ANONYMOUS.upper():
            return anonymous
        return scram(lambda user: self._verifier(user, name), name, unknown)

    def _watched(self, factory: Callable[[], ServerMechanism]) -> Callable[[], ServerMechanism]:
        return lambda: _Watched(factory(), self)

    def _may_try(self) -> bool:
        self._trying = self._trying or self._logins.begin(self._who, self._address)
        self.waiting = not self._trying
        return self._trying

    def _end(self, *, failed: bool = False) -> bool:
        """End the attempt; return whether there was one."""
        trying, self._trying = self._trying, False
        if trying:
            self._logins.end(self._who, self._address, failed=failed)
        return trying

    def _verifier(self, user: str, mechanism: str) -> Verifier | None:
        who = self._who = self._logins.meant(user, self._space)
        self._credentials = self._logins.credentials(who)
        return self._logins.verifier(who, mechanism) if self._may_try() else None

    def _let_in(self, exchange: Exchange, user: str, password: str) -> None:
        """Let in a client that means the default space."""
        if self.means_default(user):
            exchange.succeed(ANONYMOUS)
        else:
            self._check(exchange, user, password)

    def _check(self, exchange: Exchange, user: str, password: str) -> None:
        who = self._who = self._meant(prepared(user) or user)
        self._credentials = self._logins.credentials(who)
        if not self._may_try():
            exchange.fail()
        elif (proof := self._logins.at_once(who, password)) is not None:
            self._proved(exchange, proof)
        else:
            self._logins.spawn(self._checked(exchange, who, password))

    async def _checked(self, exchange: Exchange, who: Principal, password: str) -> None:
        try:
            proof = await self._logins.check(who, password, self._chosen(who))
        except (Busy, Unavailable):
            exchange.fail(TEMPORARY)
            return
        if proof is None:
            exchange.fail()
        else:
            self._proved(exchange, proof)

    def _meant(self, stated: str) -> Principal:
        """Return the user that the client means by a name."""
        self._covert = self._logins.covert
        return self._logins.meant(stated, self._space)

    def _chosen(self, who: Principal) -> str | None:
        """Return the address space that the client has chosen, by its name too; None: its token decides."""
        return self._space if self._space is not None or who.space == DEFAULT_SPACE else who.space

    def _proved(self, exchange: Exchange, proof: Proof) -> None:
        if proof.principal.full_name != self._who.full_name:  # a token has named the user, or its space
            self._credentials = None
        self._principal, self._expires, self.refresh_token, self._token, self._facts = proof
        exchange.succeed(proof.principal.name)

    def _check_token(self, exchange: Exchange, user: str, token: str) -> None:
        who = self._meant(prepared(user) or user)
        space = self._chosen(who)
        self._decide(exchange, who, space, self._logins.check_token(token, space))

    def _decide(
        self, exchange: Exchange, who: Principal, space: str | None, check: Coroutine[Any, Any, Proof | None]
    ) -> None:
        """Answer what a check finds. `who`: the user that the client means; without a name: any. `space`: the address
        space that it has chosen; None: any."""
        self._who = who
        if self._may_try():
            self._logins.spawn(self._decided(exchange, who, space, check))
        else:
            check.close()
            exchange.fail()

    async def _decided(
        self, exchange: Exchange, who: Principal, space: str | None, check: Awaitable[Proof | None]
    ) -> None:
        try:
            found = await check
        except (Busy, Unavailable):
            exchange.fail(TEMPORARY)
            return
        if found is None or space not in (None, found.principal.space) or who.name not in ("", found.principal.name):
            exchange.fail()
        else:
            self._proved(exchange, found)

    # --- for _Watched -------------------------------------------------------------------------------------------------

    def begun(self, hostname: str | None) -> None:
        """Take the address that a router or gateway states for its client, and the space that the client has chosen."""
        self._began, self._covert, self.waiting = self._logins.now(), False, False
        realm = (hostname or "").partition(CLIENT)[0]
        if self._spaces and self._relayed and realm not in ("", DEFAULT_SPACE) and self._logins.users.spaces:
            self._space = realm
        self._who = Principal("", space=self._space or DEFAULT_SPACE)
        self._address = relayed_client(hostname or "", self._relay_key) if self._relayed else self._peer

    def ended(self, mechanism: str, user: str | None, answer: Callable[[], None]) -> None:
        """Answer the client: `user` None if the login has failed."""
        checked = self._end(failed=user is None)
        if user is None:
            took = self._logins.now() - self._began if self._covert else None
            self._logins.failed(
                mechanism, self._who, self._address, answer, checked=checked, waiting=self.waiting, took=took
            )
            return
        if self._principal is None:
            who = self._anonymous if user == ANONYMOUS else self._logins.meant(user, self._space)
            self._principal = self._logins.principal(who)
        self._logins.succeeded(mechanism, self._principal or self._who, self._address, self._token)
        answer()

    @property
    def _anonymous(self) -> Principal:
        return Principal(ANONYMOUS, space=self._space or DEFAULT_SPACE)

    def admits_anonymous(self) -> bool:
        """Return whether the client may do without credentials in the space that it has chosen, or has proved that it
        is a user of this name."""
        return self._principal is not None or self._logins.principal(self._anonymous) is not None

    def undecided(self, mechanism: str) -> None:
        """End an attempt that cannot be decided now, which is no failure of the client."""
        self._end()
        self._logins.undecided(mechanism)


class _Unready:
    """A mechanism while there are no users yet."""

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        exchange.fail(TEMPORARY)

    def respond(self, exchange: Exchange, response: bytes) -> None:
        exchange.fail(TEMPORARY)


class _Watched:
    """A mechanism whose outcome passes through the login."""

    def __init__(self, mechanism: ServerMechanism, login: SaslLogin) -> None:
        self._mechanism = mechanism
        self._login = login

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        self._login.begun(exchange.hostname)
        self._mechanism.start(_Answer(exchange, self._login), initial)

    def respond(self, exchange: Exchange, response: bytes) -> None:
        self._mechanism.respond(_Answer(exchange, self._login), response)


class _Answer(Exchange):
    """An exchange whose outcome the login sends."""

    def __init__(self, exchange: Exchange, login: SaslLogin) -> None:
        self.hostname = exchange.hostname
        self.mechanism = exchange.mechanism
        self._exchange = exchange
        self._login = login
        self._decided = False

    def challenge(self, data: bytes) -> None:
        self._exchange.challenge(data)

    def succeed(self, user: str | None) -> None:
        if user in (None, ANONYMOUS) and not self._login.admits_anonymous():
            self.fail()
        elif not self._decided:
            self._decided = True
            self._login.ended(self.mechanism, user or ANONYMOUS, lambda: self._exchange.succeed(user))

    def fail(self, code: int = SASL_AUTH) -> None:
        if self._decided:
            return
        self._decided = True
        if code == SASL_AUTH:
            self._login.ended(self.mechanism, None, self._exchange.fail)
        else:
            self._login.undecided(self.mechanism)
            self._exchange.fail(code)
