"""Passwords that a gateway has checked over one connection: requests on one link, answers on another
(docs/contracts.md, "authserv": `logins`). A connection for each login would cost both sides five times as much."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from enmasse import log
from enmasse.amqp import errors
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.performatives import SASL_AUTH
from enmasse.amqp.sasl import Exchange
from enmasse.identity.admission import Admission
from enmasse.identity.login_requests import (
    ADDRESS,
    MAX_REQUEST,
    MOST,
    LoginAnswer,
    decoded_request,
    encoded,
)
from services.authserv.login import Login

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.authserv.app import AuthService

LIMITS = Limits(max_sessions=1, max_links=2, max_message_size=MAX_REQUEST)
_log = log.get(part="logins")


class LoginRequests(Handler):
    """The connection of one gateway."""

    def __init__(self, service: AuthService, admission: Admission) -> None:
        self._service = service
        self._admission = admission
        self._requests: Receiver | None = None
        self._answers: Sender | None = None
        self._waiting: deque[bytes] = deque()
        """Answers without credit."""
        self._answered = 0
        """Requests that were answered since credit was granted last."""

    def on_open(self, c: Connection) -> None:
        """Admit gateways, by the table of roles."""
        self._admission.close = c.close
        self._admission.opened(c.user)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """Forget the gateway."""
        self._admission.ended(error)
        self._admission.close = None
        self._requests = self._answers = None

    def on_attach(self, link: Link) -> None:
        """Take one link for requests, and one for answers."""
        if isinstance(link, Sender):
            self._admission.check_receive(_address(link.remote_source))
            if self._answers is None:
                self._answers = link
        elif isinstance(link, Receiver):
            self._admission.check_send(_address(link.remote_target))
            if self._requests is None:
                self._requests = link
                link.grant(MOST)
        if link not in (self._requests, self._answers):
            raise AmqpError(errors.NOT_ALLOWED, f"{ADDRESS} has one link of a connection in each direction")
        link.accept()

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Forget a link. Requests without an answer, or answers without a link, are for the next connection."""
        if link in (self._requests, self._answers):
            self._requests = self._answers = None
            self._waiting.clear()
            link.session.connection.close()

    def on_flow(self, link: Sender) -> None:
        """Send answers that have waited for credit."""
        if link.drain:
            link.drained()
        self._pump()

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Check the password of a request."""
        if not settled:
            link.session.settle(delivery_id)
        try:
            request = decoded_request(payload)
        except ValueError as error:
            raise AmqpError(errors.DECODE_ERROR, str(error)) from None
        if not self._service.has_users:
            self._answer(LoginAnswer(request.id, "unavailable"))
            return
        login = Login(self._service, request.client, relayed=False)
        login.check(_Reply(request.id, login, self._answer), request.user, request.password)

    def _answer(self, answer: LoginAnswer) -> None:
        if self._requests is not None:  # else its connection has ended meanwhile
            self._waiting.append(encoded(answer))
            self._pump()

    def _pump(self) -> None:
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

    def __init__(self, id: int, login: Login, answer: Callable[[LoginAnswer], None]) -> None:
        self.hostname = None
        self.mechanism = "PLAIN"
        self._id = id
        self._login = login
        self._answer = answer

    def succeed(self, user: str | None) -> None:
        found = self._login.identity()
        if found is None:  # the user was removed meanwhile
            self._answer(LoginAnswer(self._id, "refused"))
            return
        principal = found.principal
        self._answer(
            LoginAnswer(self._id, "accepted", principal.name, principal.groups, found.credentials, found.expires)
        )

    def fail(self, code: int = SASL_AUTH) -> None:
        self._answer(LoginAnswer(self._id, "refused" if code == SASL_AUTH else "unavailable"))


def _address(terminus: object) -> str:
    return str(getattr(terminus, "address", None) or "")
