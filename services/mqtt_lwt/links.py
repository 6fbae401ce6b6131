"""Links to `$lwt`, one for each AMQP client, and to `$mqtt/wills`, one for each gateway with its clients' wills."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from proton import Endpoint

from enmasse.control import (
    ControlConnection,
    ControlError,
    ControlLink,
    ControlReceiver,
    ControlSender,
    Delivery,
    LinkClosed,
)
from enmasse.control.errors import MESSAGE_SIZE, NOT_ALLOWED, NOT_FOUND, RESOURCE_LIMIT, UNAUTHORIZED_ACCESS
from enmasse.identity.link_users import of_link
from enmasse.logs import log
from services.mqtt_lwt.keeper import Keeper
from services.mqtt_lwt.permits import Permits
from services.mqtt_lwt.requests import Request, read
from services.mqtt_lwt.wills import Link

ADDRESS = "$lwt"
GATEWAYS = "$mqtt/wills"
"""`$lwt` for gateways: here `x-opt-client-id` is the id of an MQTT client. Listeners for clients refuse this node."""
NODES = (ADDRESS, GATEWAYS)
CONTAINER = "lwt-service"
"""Our container-id, by which routers route links to `$lwt`."""
WINDOW = 500
"""Unsettled deliveries of a link."""
MAX_LINKS = 20_000
MAX_REQUEST = 256 * 1024
"""Bytes of a message with a will; a larger one is refused."""
MAX_MESSAGE = 2 * 1024 * 1024
"""Bytes at which a link is closed: larger than anything that a gateway lets through from a client."""
ROUTED_LINK_LOST = "qd:routed-link-lost"
"""Condition by which a router reports that the client's connection was lost."""
_NOT_THE_CLIENTS_WORD = {ROUTED_LINK_LOST, MESSAGE_SIZE, "amqp:connection:forced"}


class Links:
    """The links of one connection to a router. `own`: names of our own links, which only test reachability."""

    def __init__(
        self,
        connection: ControlConnection,
        keeper: Keeper,
        permits: Permits,
        counters: Counters,
        own: Collection[str],
    ) -> None:
        self._connection = connection
        self._keeper = keeper
        self._permits = permits
        self._counters = counters
        self._own = {*own, *(f"{name}@{CONTAINER}" for name in own)}  # routers add the container that attaches
        self._open: set[Link] = set()

    def attach(self, link: ControlLink) -> None:
        """Accept a client's attach, or refuse it with the reason."""
        if isinstance(link, ControlSender) and link.remote_source == GATEWAYS:
            self._keeper.list_to(link)
        elif not isinstance(link, ControlReceiver):
            link.refuse(NOT_ALLOWED, f"{ADDRESS} takes messages, it gives none")
        elif link.remote_target not in NODES:
            link.refuse(NOT_FOUND, f"{str(link.remote_target)[:100]!r} is not here: attach to {ADDRESS}")
        elif link.name in self._own:
            link.accept()
        elif len(self._open) >= MAX_LINKS:
            link.refuse(RESOURCE_LIMIT, f"{MAX_LINKS} links are attached to {ADDRESS}; that is the limit")
        else:
            self._accept(link)

    def _accept(self, link: ControlReceiver) -> None:
        number = self._counters.next_link()
        self._open.add(number)
        self._counters.links += 1
        link.max_message_size = link.proton_link.max_message_size = MAX_MESSAGE
        link.window = WINDOW
        link.on_message = partial(self._received, number, link.remote_target == GATEWAYS)
        link.on_closed = partial(self._closed, number, link)
        link.accept()
        link.grant(WINDOW)

    def _received(self, number: Link, gateway: bool, delivery: Delivery) -> None:
        try:
            if delivery.settled:
                raise ControlError(NOT_ALLOWED, "sent settled: send it unsettled and wait until it is accepted")
            if len(delivery.data) > MAX_REQUEST:
                raise ControlError(MESSAGE_SIZE, f"a will with its properties has at most {MAX_REQUEST} bytes")
            request = read(delivery.data, delivery.link.name, gateway=gateway)
            if not gateway and request.operation == "will":
                self._check(request)
            self._keeper.request(request, number, delivery.accept)
        except ControlError as error:
            self._counters.refused += 1
            link = delivery.link.name
            log.get(link=link, space=of_link(link).space).warning("mqtt-lwt.request.refused", reason=str(error))
            delivery.reject(error.condition, error.description)

    def _check(self, request: Request) -> None:
        """Raise ControlError if the client may not send its will. A gateway has checked that of an MQTT client."""
        if reason := self._permits.refusal(request.author, request.to):
            raise ControlError(UNAUTHORIZED_ACCESS, reason)

    def _closed(self, number: Link, link: ControlLink, error: LinkClosed) -> None:
        self._open.discard(number)
        self._counters.links -= 1
        if not self._connection.is_open or link.proton_link.session.state & Endpoint.REMOTE_CLOSED:
            self._keeper.lost(number)
        elif error.condition == "detached":
            self._keeper.detached(number)
        elif error.condition in _NOT_THE_CLIENTS_WORD:
            self._keeper.lost(number)
        else:
            self._keeper.failed(number)


class Counters:
    """Numbers of attached links and refused requests, over all connections."""

    def __init__(self) -> None:
        self.links = self.refused = 0
        self._last_link = 0

    def next_link(self) -> Link:
        """Return a new number for a link; no two links of the process have the same."""
        self._last_link += 1
        return self._last_link
