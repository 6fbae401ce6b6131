"""Logins that gateways and the console have checked over one connection: requests on one link, answers on another
(docs/contracts.md, "authserv": `logins`, `issuers`). A connection for each login would cost both sides five times as
much."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SASL_AUTH
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.sasl.layer import Exchange
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.proofs.api_tokens import is_secret
from enmasse.identity.proofs.login_requests import (
    ADDRESS,
    ISSUERS,
    MAX_REQUEST,
    MOST,
    AskRevision,
    IssuersAnswer,
    ListIssuers,
    LoginAnswer,
    RefreshLogin,
    RevisionAnswer,
    decoded_issuer_request,
    decoded_request,
    encoded,
)
from enmasse.logs import log
from services.authserv.authenticator import Authenticator
from services.authserv.sasl_login import SaslLogin

if TYPE_CHECKING:
    from collections.abc import Callable


LIMITS = Limits(max_sessions=1, max_links=4, max_message_size=MAX_REQUEST)
CODE, REFRESH, API_TOKEN = "code", "refresh", "API token"
"""Logins with codes and refresh tokens of issuers, and with API tokens, among the mechanisms of SASL in metrics and
audit."""
_log = log.get(part="logins")


class LoginRequests(Handler):
    """The connection of one gateway, or of the console."""

    def __init__(self, logins: Authenticator, admission: PeerCheck) -> None:
        self._logins = logins
        self._admission = admission
        self._pairs = {ADDRESS: _Pair(self._check_password), ISSUERS: _Pair(self._ask_issuers)}

    def on_open(self, c: Connection) -> None:
        """Admit gateways and the console, by the table of roles."""
        self._admission.close = c.close
        self._admission.opened(c.user)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """Forget the peer."""
        self._admission.ended(error)
        self._admission.close = None
        for pair in self._pairs.values():
            pair.end()

    def on_attach(self, link: Link) -> None:
        """Take, for each address, one link for requests and one for answers."""
        if isinstance(link, Sender):
            address = _address(link.remote_source)
            self._admission.check_receive(address)
        else:
            address = _address(link.remote_target)
            self._admission.check_send(address)
        pair = self._pairs.get(address)
        if pair is None or not pair.take(link):
            raise AmqpError(errors.NOT_ALLOWED, f"{address} has one link of a connection in each direction")
        link.accept()

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Forget a link. Requests without an answer, or answers without a link, are for the next connection."""
        if any(pair.has(link) for pair in self._pairs.values()):
            for pair in self._pairs.values():
                pair.end()
            link.session.connection.close()

    def on_flow(self, link: Sender) -> None:
        """Send answers that have waited for credit."""
        if link.drain:
            link.drained()
        for pair in self._pairs.values():
            pair.pump()

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Answer a request."""
        if not settled:
            link.session.settle(delivery_id)
        try:
            for pair in self._pairs.values():
                if pair.has(link):
                    pair.ask(payload)
        except ValueError as error:
            raise AmqpError(errors.DECODE_ERROR, str(error)) from None

    def _check_password(self, payload: bytes) -> None:
        request, answer = decoded_request(payload), self._pairs[ADDRESS].answer
        login = SaslLogin(self._logins, request.client, relayed=False, spaces=request.spaces, space=request.space)
        if not self._logins.has_users and login.means_default(request.user):
            answer(encoded(LoginAnswer(request.id, "unavailable")))
            return
        if request.api and is_secret(request.password):
            login.check_api_token(_Reply(request.id, API_TOKEN, login, answer), request.user, request.password)
            return
        login.check(_Reply(request.id, "PLAIN", login, answer), request.user, request.password)

    def _ask_issuers(self, payload: bytes) -> None:
        request, answer = decoded_issuer_request(payload), self._pairs[ISSUERS].answer
        if isinstance(request, ListIssuers):
            answer(encoded(IssuersAnswer(request.id, self._logins.issuers.for_browsers(request.space))))
            return
        if isinstance(request, AskRevision):
            answer(encoded(RevisionAnswer(request.id, self._logins.users.revision)))
            return
        login = SaslLogin(self._logins, request.client, relayed=False, space=request.space)
        if isinstance(request, RefreshLogin):
            login.refresh(_Reply(request.id, REFRESH, login, answer), request)
        else:
            login.redeem(_Reply(request.id, CODE, login, answer), request)


class _Pair:
    """The links of one address. `ask`: called with a request. Raises ValueError."""

    def __init__(self, ask: Callable[[bytes], None]) -> None:
        self.ask = ask
        self._requests: Receiver | None = None
        self._answers: Sender | None = None
        self._waiting: deque[bytes] = deque()
        """Answers without credit."""
        self._answered = 0
        """Requests that were answered since credit was granted last."""

    def take(self, link: Link) -> bool:
        """Take a link; return whether there was none in its direction."""
        if isinstance(link, Sender) and self._answers is None:
            self._answers = link
        elif isinstance(link, Receiver) and self._requests is None:
            self._requests = link
            link.grant(MOST)
        else:
            return False
        return True

    def has(self, link: Link) -> bool:
        """Return whether this is one of the links."""
        return link is self._requests or link is self._answers

    def end(self) -> None:
        """Forget the links."""
        self._requests = self._answers = None
        self._waiting.clear()

    def answer(self, message: bytes) -> None:
        """Send an answer, or keep it until there is credit."""
        if self._requests is not None:  # else its connection has ended meanwhile
            self._waiting.append(message)
            self.pump()

    def pump(self) -> None:
        """Send answers that wait."""
        requests, answers, waiting = self._requests, self._answers, self._waiting
        if requests is None or answers is None:
            return
        while waiting and answers.credit > 0:
            answers.send(waiting.popleft(), settled=True)
            self._answered += 1
        if self._answered >= MOST // 2:
            requests.grant(self._answered)
            self._answered = 0


class _Reply(Exchange):
    """The outcome of a request, in place of that of SASL."""

    def __init__(self, id: int, mechanism: str, login: SaslLogin, answer: Callable[[bytes], None]) -> None:
        self.hostname = None
        self.mechanism = mechanism
        self._id = id
        self._login = login
        self._answer = answer

    def succeed(self, user: str | None) -> None:
        found = self._login.identity()
        if found is None:  # the user was removed meanwhile
            self._answer(encoded(LoginAnswer(self._id, "refused")))
            return
        principal = found.principal
        answer = LoginAnswer(
            self._id, "accepted", principal.name, principal.groups, found.credentials, found.expires,
            self._login.refresh_token, principal.space, found.token, found.read_only,
        )  # fmt: skip
        self._answer(encoded(answer))

    def fail(self, code: int = SASL_AUTH) -> None:
        outcome = LoginAnswer(self._id, "unavailable")
        if code == SASL_AUTH:
            outcome = LoginAnswer(self._id, "refused", waiting=self._login.waiting)
        self._answer(encoded(outcome))


def _address(terminus: object) -> str:
    return str(getattr(terminus, "address", None) or "")
