"""Requests of clients, and what they mean: messages to addresses, observations, blocks."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from hashlib import blake2b
from typing import Final

from enmasse.bridge.client_rates import too_large
from enmasse.bridge.message_outcomes import NOT_TAKEN, OUTCOME_WITHIN, OVERDUE, MessageOutcome
from enmasse.bridge.message_routes import unknown_address
from enmasse.identity import senders
from enmasse.logs import log as logs
from enmasse.model.tenants.spaces import meant_host
from enmasse.network.deadline import Deadline
from enmasse.wire_formats.coap_messages import (
    ACCEPT,
    BLOCK1,
    BLOCK2,
    CON,
    CONTENT_FORMAT,
    ECHO,
    GET,
    OBSERVE,
    POST,
    PUT,
    REQUEST_TAG,
    SIZE1,
    URI_HOST,
    URI_PATH,
    URI_QUERY,
    CoapBlock,
    CoapMessage,
    Options,
    block,
    block_option,
    code,
    encoded,
    uint,
)
from services.coap_gateway.coap_answers import SOON, CoapAnswer, of_outcome
from services.coap_gateway.coap_mapping import JSON, KEY, REPLY_TO, to_amqp
from services.coap_gateway.coap_memory import EXCHANGE_LIFETIME, CoapEndpoint, CoapExchange, CoapMemory
from services.coap_gateway.coap_observations import CoapObservations
from services.coap_gateway.coap_options import understood
from services.coap_gateway.coap_paths import CoapResource, resource, texts
from services.coap_gateway.coap_uploads import CoapUploads
from services.coap_gateway.coap_visitors import CoapVisitor, CoapVisitors

log = logs.get(part="coap")

KEY_LENGTH: Final = 200
LARGEST: Final = 6
"""Exponent of the size of the largest blocks: 1,024 bytes."""
_NAMES: Final = frozenset((URI_PATH, URI_QUERY, REQUEST_TAG, CONTENT_FORMAT))
"""Options that are the same for all blocks of a body."""
_CORE: Final = [".well-known", "core"]
_LINKS: Final = b"</v1>;rt=enmasse"
_LINK_FORMAT: Final = 40
_FORM: Final = "form"
CREATED, CHANGED, CONTENT, CONTINUE = code("2.01"), code("2.04"), code("2.05"), code("2.31")


class CoapRequests:
    """`most`: bytes of a message; `memory`: of all that come in blocks or have no outcome, and again of those that wait
    for observers; `remembered`: of endpoints and their requests."""

    def __init__(self, most: int, memory: int, remembered: int) -> None:
        now = asyncio.get_running_loop().time
        self.memory = CoapMemory(remembered, self.handle, now)
        self.uploads = CoapUploads(memory, now)
        self.observations = CoapObservations(self.memory, memory, log)
        self.visitors = CoapVisitors(self.observations.review)
        self.kept = 0
        """Bytes of messages without an outcome."""
        self.outcomes: dict[MessageOutcome, int] = {}
        self.stopping = False
        self._most = most
        self._memory = memory

    def tick(self) -> None:
        """Let time pass; every few tenths of a second."""
        self.memory.tick()
        self.uploads.tick()
        self.observations.tick()

    def handle(self, exchange: CoapExchange, message: CoapMessage, data: bytes) -> None:
        """Answer a request, now or later. Does not raise."""
        try:
            self._handle(exchange, message, data)
        except CoapAnswer as answer:
            self._end(exchange, answer)
        except Exception as error:
            self._failed(exchange, error)

    def _end(self, exchange: CoapExchange, answer: CoapAnswer) -> None:
        exchange.answer(code(answer.code), answer.options, answer.text.encode("utf-8", "replace"))

    def _failed(self, exchange: CoapExchange, error: Exception) -> None:
        log.error("coap-gateway.request.failed", peer=exchange.endpoint.name, exc_info=error)
        self._end(exchange, CoapAnswer("5.00", "an unexpected error of the gateway, which is in its log"))

    def _handle(self, exchange: CoapExchange, message: CoapMessage, data: bytes) -> None:
        if self.stopping:
            raise CoapAnswer("5.03", "the gateway ends", retry=SOON)
        message = understood(message)
        if message.code not in (GET, POST, PUT):
            raise CoapAnswer("4.05", "possible are POST, PUT and GET with Observe")
        if message.code == GET and texts(message, URI_PATH) == _CORE:
            exchange.answer(CONTENT, ((CONTENT_FORMAT, uint(_LINK_FORMAT)),), _LINKS)
            return
        where = resource(message)
        host = meant_host((texts(message, URI_HOST) or [""])[0])
        visitor = self.visitors.known(exchange.endpoint.space, host)
        if visitor is None:
            self.visitors.bridge.spawn(self._enter(exchange, message, data, where, host))
            return
        self._serve(exchange, message, data, where, visitor)

    async def _enter(
        self, exchange: CoapExchange, message: CoapMessage, data: bytes, where: CoapResource, host: str
    ) -> None:
        try:
            visitor = await self.visitors.enter(exchange.endpoint, host)
            self._serve(exchange, message, data, where, visitor)
        except CoapAnswer as answer:
            self._end(exchange, answer)
        except Exception as error:
            self._failed(exchange, error)

    def _serve(
        self, exchange: CoapExchange, message: CoapMessage, data: bytes, where: CoapResource, visitor: CoapVisitor
    ) -> None:
        exchange.endpoint.user = visitor.user
        if message.code == GET:
            self._get(exchange, message, where, visitor)
        else:
            self._post(exchange, message, data, where, visitor)

    # POST and PUT

    def _post(
        self, exchange: CoapExchange, message: CoapMessage, data: bytes, where: CoapResource, visitor: CoapVisitor
    ) -> None:
        endpoint, bridge = exchange.endpoint, self.visitors.bridge
        if where.wild:
            raise CoapAnswer("4.04", "messages go to one address, without wildcards")
        self.visitors.check(visitor, "send", where.address, endpoint)
        way = visitor.lanes.publishing.way(where.address)
        if way is None:
            text = unknown_address(where.address, visitor.lanes.topics, "send", visitor.rights)
            self._note_message(where.address, "amqp:not-found", text, endpoint, visitor)
            raise CoapAnswer("4.04", text)
        if endpoint.held:
            raise CoapAnswer("5.03", "too many messages of this client wait", retry=SOON)
        body = message.payload
        options: Options = ()
        most = self._most_of(visitor)
        stated = message.option(SIZE1)
        size = max(len(body), int.from_bytes(stated[:4], "big") if stated is not None else 0)
        if size > most:
            allowances = bridge.allowances
            by_plan = allowances.limits(visitor.space).max_message_size == most
            text = too_large(size, allowances, visitor.space) if by_plan else f"a message has at most {most} bytes"
            raise CoapAnswer("4.13", text, options=((SIZE1, uint(most)),))
        if REPLY_TO in where.query:
            self.visitors.check(visitor, "recv", where.query[REPLY_TO], endpoint)
        content_format = message.option(CONTENT_FORMAT)
        if (value := message.option(BLOCK1)) is not None:
            part = _block(value)
            if not part.number:  # a wrong one is refused before its body is kept
                to_amqp(where.query, content_format, b"", way.route.to, "")
            options = ((BLOCK1, block_option(part)),)
            found = self._upload(exchange, message, part, most, visitor)
            if found is None:
                exchange.answer(CONTINUE, options)
                return
            body = found
        if self.kept + len(body) > self._memory and self.kept:
            raise CoapAnswer("5.03", "the gateway has too many messages at once", retry=SOON)
        stored = way.route.traits.stored
        duplicate = self._duplicate(visitor, exchange, where, data, body) if stored else ""
        payload = to_amqp(where.query, content_format, body, way.route.to, duplicate)
        if not bridge.rates.admits(visitor.space, len(body)):
            raise CoapAnswer("4.29", "the address space sends more than its plan allows: send it again", retry=SOON)
        kept = len(payload)
        self.kept += kept
        endpoint.messages_in += 1
        relative = visitor.lanes.topics.relative

        def settled(outcome: MessageOutcome, condition: str, text: str) -> None:
            timer.cancel()
            self.kept -= kept
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            if outcome is MessageOutcome.ACCEPTED:
                exchange.answer(CREATED if stored else CHANGED, options)
            elif outcome is MessageOutcome.UNHEARD:
                exchange.answer(CHANGED, options)
            else:
                if outcome in NOT_TAKEN:
                    self._note_message(way.route.to, condition, text, endpoint, visitor)
                self._end(exchange, of_outcome(outcome, condition, relative(text)))

        loop = asyncio.get_running_loop()
        timer = Deadline(loop, loop.time() + OUTCOME_WITHIN, partial(endpoint.sent, exchange, 1, *OVERDUE))
        exchange.settled = settled
        way.lane.send(endpoint, exchange, 1, payload)

    def _note_message(self, to: str, condition: str, text: str, endpoint: CoapEndpoint, visitor: CoapVisitor) -> None:
        bridge = self.visitors.bridge
        bridge.note_message(to, condition, text, peer=endpoint.name, user=visitor.user, lanes=visitor.lanes)

    def _most_of(self, visitor: CoapVisitor) -> int:
        allowed = self.visitors.bridge.allowances.limits(visitor.space).max_message_size
        return self._most if allowed is None else min(self._most, allowed)

    def _upload(
        self, exchange: CoapExchange, message: CoapMessage, part: CoapBlock, most: int, visitor: CoapVisitor
    ) -> bytes | None:
        endpoint = exchange.endpoint
        if self.uploads.pressed:
            self._prove(exchange)
        names = tuple(option for option in message.options if option[0] in _NAMES)
        same = blake2b(f"{visitor.space}/".encode() + encoded(CON, message.code, 0, b"", names), digest_size=16)
        return self.uploads.take((endpoint.number, same.digest()), part, message.payload, most, proven=endpoint.proven)

    def _prove(self, exchange: CoapExchange) -> None:
        """Raise CoapAnswer unless the endpoint has proved its address."""
        endpoint = exchange.endpoint
        if not endpoint.proven:
            self.memory.events["challenged"] += 1
            raise CoapAnswer("4.01", "", options=((ECHO, self.memory.echo(endpoint.address)),))

    def _duplicate(
        self, visitor: CoapVisitor, exchange: CoapExchange, where: CoapResource, data: bytes, body: bytes
    ) -> str:
        """Return the duplicate id of a message: by the key that the client states; else by the datagram, so that one
        which is repeated after the gateway was killed is not stored twice. Two of an endpoint that are the same
        within EXCHANGE_LIFETIME are one message (RFC 7252, 4.4)."""
        key = where.query.get(KEY)
        if key is not None:
            if not 0 < len(key) <= KEY_LENGTH:
                raise CoapAnswer("4.00", f"key has 1 to {KEY_LENGTH} characters")
            return senders.id_for(visitor.login.principal, f"coap.{key}")
        made = blake2b(f"{exchange.endpoint.name}/{int(time.time() / EXCHANGE_LIFETIME)}/".encode(), digest_size=12)
        made.update(data)
        if body is not data:
            made.update(body)
        return senders.id_for(visitor.login.principal, f"coap-id.{made.hexdigest()}")

    # GET

    def _get(self, exchange: CoapExchange, message: CoapMessage, where: CoapResource, visitor: CoapVisitor) -> None:
        endpoint = exchange.endpoint
        self.visitors.check(visitor, "recv", where.address, endpoint)
        form = where.query.get(_FORM, "body")
        if form not in ("body", "json") or len(where.query) > (_FORM in where.query):
            raise CoapAnswer("4.00", "GET has the parameter form, of `body` or `json`")
        whole = form == "json"
        accept = message.option(ACCEPT)
        if accept is not None and not (whole and int.from_bytes(accept, "big") == JSON):
            raise CoapAnswer("4.06", "messages have the Content-Format that they were sent with, or 50 with form=json")
        part = CoapBlock(0, False, LARGEST)
        if (value := message.option(BLOCK2)) is not None:
            part = _block(value)
        observe = message.option(OBSERVE)
        mine = endpoint.observations
        if observe is None:
            same = [each for each in mine.values() if (each.local, each.whole) == (where.address, whole)]
            if not any(each.serve(exchange, part) for each in same):
                raise CoapAnswer("4.05" if not part.number else "4.08", "GET has Observe: there is no last message")
            return
        if int.from_bytes(observe, "big") == 1:
            if (found := mine.get(exchange.token)) is not None:
                found.end()
            exchange.answer(CONTENT)
            return
        owner = visitor.lanes.topics.owner_of_wire(where.address)
        if owner is None or (where.wild and not owner.traits.levels):
            text = unknown_address(where.address, visitor.lanes.topics, "recv", visitor.rights)
            raise CoapAnswer("4.04", text)
        if not owner.traits.fan_out:
            text = f"{where.address[:100]!r} is a {owner.type} address, whose messages are for one receiver each"
            raise CoapAnswer("4.05", text)
        alone = not self.visitors.bridge.access.users.hosts
        if self.observations.pressed:
            self._prove(exchange)
        self.observations.begin(exchange, visitor, where.address, owner, part.exponent, whole=whole, alone=alone)


def _block(value: bytes) -> CoapBlock:
    try:
        return block(value)
    except ValueError:
        raise CoapAnswer("4.02", "a block has a number of up to 20 bits, and a size of 16 to 1,024") from None
