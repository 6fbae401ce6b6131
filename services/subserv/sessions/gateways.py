"""`$mqtt/sessions`: gateways attach through the router, send requests, and get notifications (docs/contracts.md).

A gateway's two links have the same name; its first request is `hello`. When they go the gateway counts as gone after
GRACE seconds, of those in which the router can be reached.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.control import ControlLink, ControlReceiver, ControlSender, Delivery
from enmasse.control.errors import NOT_ALLOWED, NOT_FOUND, RESOURCE_LIMIT
from enmasse.logs import log
from enmasse.model import sessions as wire
from enmasse.network.deadline import Deadline
from enmasse.process import runner
from enmasse.storage.decoding import decode
from enmasse.stores import StoreError, StoreFull
from services.subserv import request_bodies
from services.subserv.sessions.clients import QUOTA, UNSPECIFIED, Clients, Refusal

GRACE = 5.0
WINDOW = 500
"""Requests of a gateway that may be on their way."""
OUTSTANDING = 20_000
"""Requests of a gateway that are being served; beyond that, it gets credit only as they are answered."""
UNREAD = 100_000
"""Answers that a gateway has not read; beyond that, it is detached."""

Handler = Callable[[Any], Awaitable[Any]]


class Channel:
    """The links of one gateway. `gateway` is empty until its hello."""

    def __init__(self) -> None:
        self.gateway = ""
        self.receiver: ControlReceiver | None = None
        self.sender: ControlSender | None = None
        self.serving = 0
        self.statistics: wire.Statistics | None = None

    def close(self, condition: str, description: str) -> None:
        """Close the links that are attached, with this error."""
        for link in (self.receiver, self.sender):
            if link is not None:
                link.close(condition, description)


class GatewayLinks:
    """All gateways that are attached (services.subserv.sessions.clients.Gateways)."""

    def __init__(self) -> None:
        self.by_gateway: dict[str, Channel] = {}
        self.failures = 0
        """Requests that were refused because of an unexpected error."""
        self._channels: dict[str, Channel] = {}
        self._missing: dict[str, Deadline | None] = {}
        """Gateways that are not there; their timer while the router can be reached."""
        self._reachable = False
        self._clients: Clients
        self._counts: Callable[[], dict[str, int]]
        self._counts_in_spaces: Callable[[], dict[str, dict[str, int]]]
        self._handlers: dict[str, tuple[type[Any], Handler]] = {}

    def serve(
        self,
        clients: Clients,
        counts: Callable[[], dict[str, int]],
        counts_in_spaces: Callable[[], dict[str, dict[str, int]]],
        bind_default: Handler,
    ) -> None:
        """Set the handler of requests. `counts`: numbers of what the service keeps; `counts_in_spaces`: of address
        spaces."""
        self._clients = clients
        self._counts, self._counts_in_spaces = counts, counts_in_spaces
        self._handlers = {
            "open": (wire.Open, clients.open),
            "handover": (wire.Handover, clients.hand_over),
            "subscribe": (wire.Subscribe, clients.subscribe),
            "unsubscribe": (wire.Unsubscribe, clients.unsubscribe),
            "close": (wire.Close, clients.close),
            "packets": (wire.Packets, clients.packets),
            "statistics": (wire.Statistics, self._statistics),
            "bind_default": (wire.BindDefault, bind_default),
        }
        self._missing = {
            session.record.gateway: None for session in clients.sessions.by_client.values() if session.record.connected
        }

    # the router

    def reachable(self) -> None:
        """Note that the router is connected: gateways can attach."""
        self._reachable = True
        for gateway in list(self._missing):
            self._await(gateway)

    def unreachable(self) -> None:
        """Note that the router is not connected: no gateway can attach, and none counts as lost because of that."""
        self._reachable = False
        for gateway, timer in self._missing.items():
            if timer is not None:
                timer.cancel()
            self._missing[gateway] = None

    def attached(self, link: ControlLink) -> None:
        """Answer an attach that the router has passed on."""
        address = link.remote_source if link.is_sender else link.remote_target
        if address != wire.ADDRESS:
            link.refuse(NOT_FOUND, f"there is no {address}: attach to {wire.ADDRESS}")
            return
        channel = self._channels.setdefault(link.name, Channel())
        link.on_closed = lambda _: self._closed(link, channel)
        if isinstance(link, ControlSender):
            channel.sender = link
            link.accept()
        elif isinstance(link, ControlReceiver):
            channel.receiver = link
            link.window, link.counts_settled = WINDOW, True
            link.on_message = lambda delivery: self._on_message(channel, delivery)
            link.accept()
            link.grant(WINDOW)

    def _closed(self, link: ControlLink, channel: Channel) -> None:
        if self._channels.get(link.name) is channel:
            del self._channels[link.name]
        if self.by_gateway.get(channel.gateway) is channel:
            del self.by_gateway[channel.gateway]
            log.get().info("subserv.gateway.detached", gateway=channel.gateway)
            self._missing[channel.gateway] = None
            if self._reachable:
                self._await(channel.gateway)
        channel.close("amqp:link:detach-forced", "the other link of this gateway has ended")

    def _await(self, gateway: str) -> None:
        loop = asyncio.get_running_loop()
        timer = self._missing.get(gateway)
        if timer is None:
            self._missing[gateway] = Deadline(loop, loop.time() + GRACE, partial(self._give_up, gateway))

    def _give_up(self, gateway: str) -> None:
        self._missing.pop(gateway, None)
        runner.spawn(self._gone(gateway), f"gateway {gateway} is gone")

    async def _gone(self, gateway: str) -> None:
        try:
            await self._clients.gateway_gone(gateway)
        except Exception as error:
            if not isinstance(error, StoreError):
                self.failures += 1
            log.get().error("subserv.gateway.not-released", gateway=gateway, reason=str(error))
            if gateway not in self.by_gateway:
                self._missing[gateway] = None
                if self._reachable:
                    self._await(gateway)

    # requests

    def _on_message(self, channel: Channel, delivery: Delivery) -> None:
        if channel.sender is not None and channel.sender.queued > UNREAD:
            channel.close(RESOURCE_LIMIT, f"more than {UNREAD} answers were not read")
            return
        try:
            request = request_bodies.read(delivery.data)
        except AmqpError as error:
            delivery.reject(error.condition, error.description or "")
            return
        channel.serving += 1
        if channel.serving <= OUTSTANDING:
            delivery.accept()
        if request.subject == "hello" or request.subject not in self._handlers:
            self._answer_now(channel, request)
            self._served(channel, delivery)
        else:
            runner.spawn(self._serve(channel, request, delivery), request.subject)

    def _served(self, channel: Channel, delivery: Delivery) -> None:
        channel.serving -= 1
        delivery.accept()

    def _answer_now(self, channel: Channel, request: request_bodies.Request) -> None:
        body: Any
        if request.subject == "hello":
            try:
                body = self._hello(channel, decode(_text(request.body), wire.Hello))
            except ValueError as error:
                body = _invalid(error)
            except Exception:
                self.failures += 1
                log.get().exception("subserv.request.failed", subject=request.subject)
                body = wire.Failure(
                    condition="amqp:internal-error", description=request_bodies.FAILED, reason=UNSPECIFIED
                )
        else:
            text = f"no operation {request.subject[:50]!r}; there are hello, {', '.join(self._handlers)}"
            body = wire.Failure(condition="amqp:not-implemented", description=text, reason=UNSPECIFIED)
        self._reply(channel, request, body)

    def _hello(self, channel: Channel, hello: wire.Hello) -> wire.HelloReply:
        old = self.by_gateway.get(hello.gateway)
        channel.gateway = hello.gateway
        self.by_gateway[hello.gateway] = channel
        if old is not None and old is not channel:
            old.close("amqp:link:stolen", "this gateway has attached again")
        if (timer := self._missing.pop(hello.gateway, None)) is not None:
            timer.cancel()
        log.get().info("subserv.gateway.attached", gateway=hello.gateway, sessions=len(hello.sessions))
        return self._clients.hello(hello)

    async def _serve(self, channel: Channel, request: request_bodies.Request, delivery: Delivery) -> None:
        kind, handler = self._handlers[request.subject]
        try:
            if not channel.gateway:
                raise Refusal(NOT_ALLOWED, "the first request of a gateway is hello", UNSPECIFIED)
            body = await handler(decode(_text(request.body), kind))
        except Refusal as refusal:
            body = refusal.failure
        except StoreFull as error:
            log.get().info("subserv.write.refused", subject=request.subject, reason=str(error))
            body = wire.Failure(condition=RESOURCE_LIMIT, description=request_bodies.STORE_FULL, reason=QUOTA)
        except StoreError as error:
            log.get().info("subserv.write.refused", subject=request.subject, reason=str(error))
            body = wire.Failure(condition="amqp:internal-error", description=request_bodies.STORE_AWAY, reason=0x88)
        except ValueError as error:
            body = _invalid(error)
        except Exception:  # the gateway's other clients are not to wait for an answer that never comes
            self.failures += 1
            log.get().exception("subserv.request.failed", subject=request.subject)
            body = wire.Failure(condition="amqp:internal-error", description=request_bodies.FAILED, reason=UNSPECIFIED)
        self._reply(channel, request, body)
        self._served(channel, delivery)

    async def _statistics(self, body: wire.Statistics) -> wire.StatisticsReply:
        """Take the counters of a gateway, and return the sums over all. Those of a gateway go with its links."""
        if (channel := self.by_gateway.get(body.gateway)) is not None:
            channel.statistics = body
        there = [each.statistics for each in self.by_gateway.values() if each.statistics is not None]
        sums: Counter[str] = Counter()
        for each in there:
            sums.update(each.values)
        since = min((each.since for each in there), default=body.since)
        in_spaces: dict[str, Counter[str]] = defaultdict(Counter)
        for statistics in there:
            for space, values in statistics.in_spaces.items():
                in_spaces[space].update(values)
        for space, counts in self._counts_in_spaces().items():
            in_spaces[space].update(counts)
        values_of = {space: dict(values) for space, values in in_spaces.items()}
        stay = [each for each in there if each.group == body.group and not each.leaving]
        return wire.StatisticsReply(
            since=since,
            values={**sums, **self._counts()},
            in_spaces=values_of,
            gateways=len(stay),
            clients=sum(each.values.get("clients", 0) for each in stay),
        )

    def _reply(self, channel: Channel, request: request_bodies.Request, body: Any) -> None:
        subject = "error" if isinstance(body, wire.Failure) else request.subject
        if channel.sender is not None and not channel.sender.closed:
            channel.sender.send(request_bodies.json_answer(subject, body, request.correlation), settled=True)

    def command(self, gateway: str, subject: str, body: Any) -> bool:
        """Send a command to a gateway. Return False if it is not connected."""
        channel = self.by_gateway.get(gateway)
        if channel is None or channel.sender is None or channel.sender.closed:
            return False
        channel.sender.send(request_bodies.json_answer(subject, body), settled=True)
        return True


def _text(body: Any) -> str | bytes:
    if isinstance(body, str | bytes):
        return body
    raise ValueError("the body must be JSON text: a string in an amqp-value section")


def _invalid(error: ValueError) -> wire.Failure:
    return wire.Failure(condition="amqp:invalid-field", description=str(error)[:500], reason=UNSPECIFIED)
