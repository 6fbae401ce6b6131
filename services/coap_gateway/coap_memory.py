"""Endpoints, and what is remembered of their requests and of messages to them (RFC 7252, 4).

A repeated request, the same datagram with the same id, gets the answer that it had. What is remembered is
bounded in bytes; what a client may still repeat is not forgotten: beyond the bound requests are refused instead.
An endpoint has proved its address when it has answered something that only it can have got; before that it gets at
most three times the bytes that have come from it.
"""

from __future__ import annotations

import heapq
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import count
from typing import Any, Final

from enmasse.bridge.lanes import Publisher
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.wire_formats.coap_messages import (
    ACK,
    CON,
    ECHO,
    EMPTY,
    MAX_AGE,
    NON,
    RST,
    BadDatagram,
    CoapMessage,
    code,
    decoded,
    encoded,
    shown,
    uint,
)

EXCHANGE_LIFETIME: Final = 247.0
NON_LIFETIME: Final = 145.0
"""Seconds in which an id stands for one request."""
REPEATED: Final = 145.0
"""Seconds in which a client may repeat a request, and the network may deliver it late."""
ACK_TIMEOUT: Final = 2.0
MAX_RETRANSMIT: Final = 4
PIGGYBACKED: Final = 1.0
"""Seconds until a request without an answer is acknowledged, so that it is not repeated; the answer follows."""
OF_EXCHANGE: Final = 450
OF_ENDPOINT: Final = 1600
"""Bytes that an exchange has beside its answer, and an endpoint."""
AMPLIFICATION: Final = 3
WRONG: Final = 8
"""Acknowledgements of nothing after which an endpoint without a proof is given up: it may be guessing."""
ECHO_SECONDS: Final = 60
_ERRORS: Final = code("4.00")
_numbers: Final = count(1)

Send = Callable[[bytes, Any], None]
"""Sends a datagram to an address."""


class CoapEndpoint(Publisher):
    """A client, or what says it is one: an address and a port. `key` of its messages is a CoapExchange. `space`:
    address space of its listener."""

    def __init__(self, send: Send, address: Any, space: str | None, listener: int) -> None:
        super().__init__()
        self.address = address
        self.key = listener, address
        self.space = space
        self.number = next(_numbers)
        self.name = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        self.proven = False
        self.wrong = 0
        self.received = self.replied = 0
        """Bytes of datagrams."""
        self.messages_in = self.messages_out = 0
        self.opened = self.heard = 0.0
        self.user = ""
        self.exchanges = 0
        self.observations: dict[bytes, Any] = {}
        """Token → observation."""
        self.unconfirmed: dict[int, Unconfirmed] = {}
        """Id → confirmable message to it that has no acknowledgement."""
        self._send = send
        self._id = secrets.randbelow(1 << 16)

    def next_id(self) -> int:
        """Return the id of a new message."""
        self._id = (self._id + 1) & 0xFFFF
        return self._id

    def transmit(self, data: bytes) -> bool:
        """Send a datagram, unless the endpoint may not get as many bytes; return whether it was sent."""
        if not self.proven and self.replied + len(data) > AMPLIFICATION * self.received:
            return False
        self.replied += len(data)
        self._send(data, self.address)
        return True

    def sent(self, key: CoapExchange, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher."""
        settled, key.settled = key.settled, _nothing
        settled(outcome, condition, text)

    def failed(self, error: Exception) -> None:
        """As Publisher."""
        raise error


class CoapExchange:
    """A request of an endpoint, until its id may be used again. `data`: its datagram, only to recognise it."""

    __slots__ = (
        "_reply", "acknowledged", "answered", "at", "digest", "endpoint", "forgotten", "id", "memory", "settled",
        "token", "type",
    )  # fmt: skip

    def __init__(self, memory: CoapMemory, endpoint: CoapEndpoint, message: CoapMessage, digest: int) -> None:
        self.memory = memory
        self.endpoint = endpoint
        self.type = message.type
        self.id = message.id
        self.token = message.token
        self.digest = digest
        self.at = memory.now()
        self.answered = False
        self.acknowledged = False
        self.forgotten = False
        self.settled: Callable[[MessageOutcome, str, str], None] = _nothing
        """Called with the outcome of the message that the request is."""
        self._reply = b""

    def answer(
        self,
        number: int,
        options: Iterable[tuple[int, bytes]] = (),
        payload: bytes = b"",
        done: Callable[[bool], None] | None = None,
    ) -> None:
        """Answer, once. `done`: called when the client has the answer, or with False when it has not; the answer is
        confirmable then. Of a text that is more than the client may get the first clause is sent, or nothing."""
        if self.answered:
            return
        self.answered = True
        memory, endpoint = self.memory, self.endpoint
        memory.answers[number] += 1
        if done is not None and self.type == CON:
            self.acknowledge()
        separate = self.acknowledged or done is not None
        if separate:
            data = encoded(CON, number, endpoint.next_id(), self.token, options, payload)
            memory.confirm(endpoint, data, done or _whatever)
        else:
            kind, id = (ACK, self.id) if self.type == CON else (NON, endpoint.next_id())
            data = encoded(kind, number, id, self.token, options, payload)
            if not endpoint.transmit(data):
                short = payload.partition(b"; ")[0] if number >= _ERRORS else b""
                for text in (short, b""):
                    data = encoded(kind, number, id, self.token, options, text)
                    if endpoint.transmit(data):
                        break
            self._keep(data)
        memory.answered(self)

    def acknowledge(self) -> None:
        """Say that the request has come: its answer comes later."""
        if not self.acknowledged:
            self.acknowledged = True
            self._keep(encoded(ACK, EMPTY, self.id))
            self.again()

    def again(self) -> None:
        """Handle a repetition of the request."""
        if self._reply:
            self.endpoint.transmit(self._reply)

    def _keep(self, data: bytes) -> None:
        if not self.forgotten:
            self.memory.kept += len(data) - len(self._reply)
        self._reply = data

    @property
    def size(self) -> int:
        """Bytes that are kept of it."""
        return OF_EXCHANGE + len(self._reply)


def _nothing(outcome: MessageOutcome, condition: str, text: str) -> None:
    pass


def _whatever(done: bool) -> None:
    pass


class Unconfirmed:
    """A confirmable message to an endpoint that has no acknowledgement."""

    __slots__ = ("data", "done", "endpoint", "id", "timeout", "tries")

    def __init__(self, endpoint: CoapEndpoint, data: bytes, done: Callable[[bool], None]) -> None:
        self.endpoint = endpoint
        self.data = data
        self.done = done
        self.id = data[2] << 8 | data[3]
        self.timeout = ACK_TIMEOUT * (1 + secrets.randbelow(512) / 1024)
        self.tries = 0


class CoapMemory:
    """`most`: bytes. `handle` is called with each new request; `now`: a clock in seconds."""

    def __init__(
        self, most: int, handle: Callable[[CoapExchange, CoapMessage, bytes], None], now: Callable[[], float]
    ) -> None:
        self.now = now
        self.kept = 0
        self.endpoints: dict[tuple[int, Any], CoapEndpoint] = {}
        self.answers: Counter[int] = Counter()
        """Code → answers."""
        self.events: Counter[str] = Counter()
        """`malformed`, `repeated`, `retransmitted`, `given up`, `not remembered`, `challenged` → datagrams."""
        self.pending = 0
        """Requests without an answer."""
        self._most = most
        self._handle = handle
        self._key = secrets.token_bytes(16)
        self._exchanges: OrderedDict[tuple[CoapEndpoint, int], CoapExchange] = OrderedDict()
        self._pending: deque[CoapExchange] = deque()
        self.unconfirmed = 0
        """Messages to endpoints that are not acknowledged."""
        self._due: list[tuple[float, int, Unconfirmed]] = []
        self._touched: set[CoapEndpoint] = set()
        """Endpoints of which less is remembered than before; behind each datagram and tick the unused are forgotten."""

    @property
    def pressed(self) -> bool:
        """Half of the memory is used: endpoints prove their address first."""
        return self.kept > self._most // 2

    # datagrams

    def take(self, data: bytes, address: Any, listener: int, send: Send, space: str | None) -> None:
        """Take a datagram. `listener`: where it has come."""
        self._take(data, address, listener, send, space)
        self._forget_unused()

    def _take(self, data: bytes, address: Any, listener: int, send: Send, space: str | None) -> None:
        try:
            message = decoded(data)
        except BadDatagram as error:
            self.events["malformed"] += 1
            if error.id is not None:
                send(encoded(RST, EMPTY, error.id), address)
            return
        endpoint = self.endpoints.get((listener, address))
        if endpoint is not None:
            endpoint.received += len(data)
            endpoint.heard = self.now()
        if message.type in (ACK, RST):
            if endpoint is not None:
                self._acknowledged(endpoint, message)
        elif message.code == EMPTY or message.code >> 5:
            if message.type == CON:  # a ping, or an answer to nothing
                send(encoded(RST, EMPTY, message.id), address)
        else:
            self._request(endpoint, message, data, address, listener, send, space)

    def _request(
        self,
        endpoint: CoapEndpoint | None,
        message: CoapMessage,
        data: bytes,
        address: Any,
        listener: int,
        send: Send,
        space: str | None,
    ) -> None:
        digest = hash(data)
        if endpoint is not None:
            known = self._exchanges.get((endpoint, message.id))
            if known is not None and known.digest == digest and known.token == message.token:
                self.events["repeated"] += 1
                known.again()
                return
            if known is not None:  # an id that was used again too early, for another request
                self._forget(known)
        echoed = message.option(ECHO)
        proven = endpoint is not None and endpoint.proven
        if not proven and echoed is not None and self._is_echo(echoed, address):
            proven = True
        if self.pressed and not proven:
            self.events["challenged"] += 1
            self._stateless(message, data, address, send, "4.01", ((ECHO, self.echo(address)),))
            return
        if self.kept > self._most and not self._make_room():
            self.events["not remembered"] += 1
            self._stateless(message, data, address, send, "5.03", ((MAX_AGE, uint(5)),))
            return
        if endpoint is None:
            endpoint = self.endpoints[listener, address] = CoapEndpoint(send, address, space, listener)
            endpoint.opened = endpoint.heard = self.now()
            endpoint.received = len(data)
            self.kept += OF_ENDPOINT
        endpoint.proven = endpoint.proven or proven
        exchange = CoapExchange(self, endpoint, message, digest)
        self._exchanges[endpoint, message.id] = exchange
        endpoint.exchanges += 1
        self.kept += OF_EXCHANGE
        self.pending += 1
        self._handle(exchange, message, data)
        if not exchange.answered:
            self._pending.append(exchange)

    def _stateless(
        self, message: CoapMessage, data: bytes, address: Any, send: Send, number: str,
        options: tuple[tuple[int, bytes], ...],
    ) -> None:  # fmt: skip
        """Answer a request of which nothing is remembered."""
        self.answers[code(number)] += 1
        kind = ACK if message.type == CON else NON
        made = encoded(kind, code(number), message.id, message.token, options)
        if len(made) <= AMPLIFICATION * len(data):
            send(made, address)

    # proofs of an address

    def echo(self, address: Any) -> bytes:
        """Return what only this address gets (RFC 9175)."""
        return self._echo(address, int(self.now() / ECHO_SECONDS))

    def _echo(self, address: Any, slot: int) -> bytes:
        return blake2b(f"{address}/{slot}".encode(), digest_size=8, key=self._key).digest()

    def _is_echo(self, value: bytes, address: Any) -> bool:
        slot = int(self.now() / ECHO_SECONDS)
        return any(secrets.compare_digest(value, self._echo(address, slot - age)) for age in (0, 1))

    # messages to endpoints

    def confirm(self, endpoint: CoapEndpoint, data: bytes, done: Callable[[bool], None]) -> None:
        """Send a confirmable message until it is acknowledged. `done`: called once, False: it was not, or refused."""
        found = Unconfirmed(endpoint, data, done)
        if found.id in endpoint.unconfirmed:
            self._give_up(endpoint.unconfirmed[found.id])
        endpoint.unconfirmed[found.id] = found
        self.unconfirmed += 1
        endpoint.transmit(data)
        self._later(found)

    def _later(self, found: Unconfirmed) -> None:
        heapq.heappush(self._due, (self.now() + found.timeout, next(_numbers), found))

    def _acknowledged(self, endpoint: CoapEndpoint, message: CoapMessage) -> None:
        found = endpoint.unconfirmed.pop(message.id, None)
        if found is None:
            endpoint.wrong += not endpoint.proven
            if endpoint.wrong >= WRONG:
                for each in list(endpoint.unconfirmed.values()):
                    self._give_up(each)
            return
        self.unconfirmed -= 1
        self.release(endpoint)
        endpoint.proven = True
        found.done(message.type == ACK)

    def _give_up(self, found: Unconfirmed) -> None:
        if found.endpoint.unconfirmed.pop(found.id, None) is not None:
            self.unconfirmed -= 1
            self.events["given up"] += 1
            self.release(found.endpoint)
            found.done(False)

    # time

    def answered(self, exchange: CoapExchange) -> None:
        """A request has its answer."""
        self.pending -= 1

    def tick(self) -> None:
        """Let time pass; every few tenths of a second."""
        now = self.now()
        pending = self._pending
        while pending and (pending[0].answered or pending[0].at <= now - PIGGYBACKED):
            exchange = pending.popleft()
            if not exchange.answered and exchange.type == CON:
                exchange.acknowledge()
        while self._due and self._due[0][0] <= now:
            found = heapq.heappop(self._due)[2]
            if found.endpoint.unconfirmed.get(found.id) is not found:
                continue
            found.tries += 1
            if found.tries > MAX_RETRANSMIT:
                self._give_up(found)
                continue
            found.timeout *= 2
            self.events["retransmitted"] += found.endpoint.transmit(found.data)
            self._later(found)
        while self._exchanges:
            exchange = next(iter(self._exchanges.values()))
            lifetime = EXCHANGE_LIFETIME if exchange.type == CON else NON_LIFETIME
            if exchange.at > now - lifetime:
                break
            self._forget(exchange)
        self._forget_unused()

    def _make_room(self) -> bool:
        """Forget what clients no longer repeat; return whether there is room then."""
        before = self.now() - REPEATED
        while self.kept > self._most and self._exchanges:
            oldest = next(iter(self._exchanges.values()))
            if oldest.at > before:
                return False
            self._forget(oldest)
        return True

    def _forget(self, exchange: CoapExchange) -> None:
        exchange.forgotten = True
        del self._exchanges[exchange.endpoint, exchange.id]
        self.kept -= exchange.size
        exchange.endpoint.exchanges -= 1
        self.release(exchange.endpoint)

    def release(self, endpoint: CoapEndpoint) -> None:
        """Forget an endpoint soon, if nothing else is remembered of it."""
        self._touched.add(endpoint)

    def _forget_unused(self) -> None:
        while self._touched:
            endpoint = self._touched.pop()
            unused = not (endpoint.exchanges or endpoint.observations or endpoint.unconfirmed)
            if unused and self.endpoints.get(endpoint.key) is endpoint:
                del self.endpoints[endpoint.key]
                self.kept -= OF_ENDPOINT

    def counts(self) -> dict[str, int]:
        """Return the number of answers by their code."""
        return {shown(number): n for number, n in sorted(self.answers.items())}
