"""The way to the gateway's live state, `$live/<name>`, through Qpid Dispatch: a link route of the gateway's own
connection, with which it ends. The embedded router passes such links on without."""

from __future__ import annotations

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.bridge.uplink import LinkUser
from enmasse.live_state import NODE
from enmasse.logs import log
from enmasse.model.names import MANAGEMENT, RELAYS_TO_TOPICS

LINK_ROUTE = "org.apache.qpid.dispatch.router.connection.linkRoute"
CREATED = 201


class Offering(LinkUser):
    """Makes the link route for the gateway `name` on each connection to a router that needs it."""

    def __init__(self, name: str) -> None:
        self._address = f"{NODE}/{name}"
        self._log = log.get(part="live")
        self._requests: Sender | None = None
        self._replies: Receiver | None = None
        self._asked = False

    def up(self, connection: Connection) -> None:
        """There is a new connection."""
        opened = connection.remote_open
        self._requests = self._replies = None
        self._asked = False
        if opened is None or RELAYS_TO_TOPICS in (opened.offered_capabilities or ()):
            return
        session = connection.begin()
        self._replies = session.attach_receiver(None, Source(dynamic=True), Target())
        self._requests = session.attach_sender(None, Source(), Target(address=MANAGEMENT))
        self._replies.context = self._requests.context = self
        self._replies.on_delivery = self._on_reply
        self._replies.credit_window = 1

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        self._ask()

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        self._ask()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser. Links that have done their work are detached here, and end with their connection."""
        if link in (self._requests, self._replies):
            self._end("" if error is None else error.description)

    def _ask(self) -> None:
        requests, replies = self._requests, self._replies
        if self._asked or requests is None or replies is None or not replies.attached or requests.credit <= 0:
            return
        source = replies.remote_source
        if source is None or not source.address:
            return
        self._asked = True
        requests.send(_request(self._address, source.address), settled=True)

    def _on_reply(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if not settled:
            link.session.settle(delivery_id)
        properties = Sections(payload).application_properties
        status = properties.get("statusCode")
        self._end("" if status == CREATED else str(properties.get("statusDescription") or status))

    def _end(self, refused: str) -> None:
        links, self._requests, self._replies = (self._requests, self._replies), None, None
        for link in links:
            if link is not None and not link.detached:
                link.detach()
        if refused:
            self._log.warning("gateway.live.not-offered", reason=refused)


def _request(address: str, reply_to: str) -> bytes:
    """Return the request that makes the link route for receivers at `address`."""
    message = Message(
        {"pattern": address, "direction": "out"},
        to=MANAGEMENT,
        reply_to=reply_to,
        correlation_id="live",
        application_properties={"operation": "CREATE", "type": LINK_ROUTE, "name": address},
    )
    return message.encode()
