"""The target and feed `configure`: changes of the configuration, and their results (docs/contracts.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from enmasse.api.types import Change, ChangeResult, Fault
from enmasse.control import ControlConnection, ControlLink, Delivery, jsonmessage
from enmasse.logs import log
from enmasse.model.names import DEFAULT_SPACE
from enmasse.process import runner
from enmasse.storage.disk_errors import disk_error
from services.configserv.changes import MAX_NAMES
from services.configserv.drivers import NotWritable
from services.configserv.editing import Refused
from services.configserv.reports import LinkPair, read_or_reject

ADDRESS = "configure"
WINDOW = 8
MAX_ENTRIES = 10_000
"""Entries of a change."""


class Request(Change, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A change of an address space, its number, and for auditors the user, or its role (`operator`), and the client's
    host. A newer console may send more fields."""

    id: int
    space: str = DEFAULT_SPACE
    who: str = ""
    role: str = ""
    client: str = ""


class Result(ChangeResult, frozen=True, kw_only=True):
    """The result of the request with this number."""

    id: int


class _Peer(LinkPair):
    """The links of a connection, and results that wait for credit, with the requests that they answer: until then
    these count in the window."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[tuple[bytes, Delivery]] = deque()

    def answer(self, body: bytes, request: Delivery) -> None:
        self.waiting.append((body, request))
        self.pump()

    def pump(self) -> None:
        while self.answers is not None and self.waiting and self.answers.credit > 0:
            body, request = self.waiting.popleft()
            self.answers.send(jsonmessage.encode(None, body), settled=True)
            request.accept()


class SpaceTurns:
    """One at a time. Those that wait have their turns by address space, so that many of one do not keep out others."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, space: str) -> AsyncIterator[None]:
        """Wait for a turn of the space, and keep it as long as the block."""
        if self._taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(space, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._next()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._next()

    def _next(self) -> None:
        self._taken = False
        while self._waiting and not self._taken:
            space = next(iter(self._waiting))
            waiting = self._waiting.pop(space)
            turn = waiting.popleft()
            if waiting:
                self._waiting[space] = waiting  # behind the other spaces
            if not turn.done():
                self._taken = True
                turn.set_result(None)


class Configuring:
    """Carries out changes one after another, and checks likewise beside them. `change`: makes a change of an address
    space, in force soon after, or checks it; raises Refused, NotWritable, OSError."""

    def __init__(self) -> None:
        self.change: Callable[[Change, str], Awaitable[dict[str, str]]] | None = None
        self._peers: dict[ControlConnection, _Peer] = {}
        self._changes, self._checks = SpaceTurns(), SpaceTurns()

    def attach(self, link: ControlLink) -> None:
        """Serve a link that has been admitted."""
        peer = self._peers.setdefault(link.connection, _Peer())
        peer.attach(
            link,
            ADDRESS,
            window=WINDOW,
            take=lambda delivery: self._take(peer, delivery),
            pump=peer.pump,
            gone=self._forget,
        )

    def _forget(self, connection: ControlConnection) -> None:
        self._peers.pop(connection, None)

    def _take(self, peer: _Peer, delivery: Delivery) -> None:
        request = read_or_reject(delivery, Request)
        if request is None:
            return
        identity = delivery.link.connection.identity
        role = None if identity is None else str(identity.role)
        runner.spawn(self._work(peer, request, role, delivery), "change of the configuration")

    async def _work(self, peer: _Peer, request: Request, role: str | None, delivery: Delivery) -> None:
        async with (self._checks if request.check else self._changes).of(request.space):
            result = await self._result(request)
        if not request.check:
            outcome = "done" if result.accepted else "; ".join(error.reason for error in result.errors)[:500]
            names = " ".join([*request.set, *(f"-{name}" for name in request.remove)][:MAX_NAMES])
            log.audit(
                "audit.configuration.ordered",
                who=request.who or None, role=request.role or role, from_=request.client,
                what=f"{request.kind}: {names}", outcome=outcome, space=request.space,
            )  # fmt: skip
        peer.answer(msgspec.json.encode(result), delivery)

    async def _result(self, request: Request) -> Result:
        number = request.id
        if self.change is None:
            reason = "the configuration is not read yet; try again"
            return Result(id=number, accepted=False, errors=[Fault(file=request.kind, reason=reason)])
        if len(request.set) + len(request.remove) > MAX_ENTRIES:
            reason = f"a change may have {MAX_ENTRIES} entries at most"
            return Result(id=number, accepted=False, errors=[Fault(file=request.kind, reason=reason)])
        try:
            return Result(id=number, accepted=True, etags=await self.change(request, request.space))
        except Refused as refused:
            return Result(id=number, accepted=False, errors=refused.errors, conflict=refused.conflict)
        except NotWritable as error:
            return Result(id=number, accepted=False, errors=[Fault(file=request.kind, reason=str(error))])
        except OSError as error:
            reason = f"cannot be written, nothing was changed: {disk_error(error)}"
            return Result(id=number, accepted=False, errors=[Fault(file=request.kind, reason=reason)])
