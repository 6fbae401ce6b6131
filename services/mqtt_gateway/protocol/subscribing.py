"""SUBSCRIBE and UNSUBSCRIBE (3.8, 3.10): one at a time, an answer for each filter, the limit of filters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from enmasse.model.topic_map import MAX_LEVELS
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NONE, Properties, SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe
from enmasse.mqtt.topics import levels, matches, parse_share
from services.mqtt_gateway.interfaces import Delivery, Session, is_system
from services.mqtt_gateway.protocol import intake
from services.mqtt_gateway.protocol.inbound import Inbound
from services.mqtt_gateway.protocol.intake import Host
from services.mqtt_gateway.protocol.outbound import Outbound
from services.mqtt_gateway.protocol.output import Output
from services.mqtt_gateway.protocol.server_state import ServerState

MOST_WAITING: Final = 16
"""Packets that wait for the one before; then nothing is read."""
MOST_SYSTEM: Final = 20
"""Filters below `$SYS/` of a client."""


class Subscribing:
    """SUBSCRIBEs and UNSUBSCRIBEs of one client: `interfaces.Replies`.

    `bridge`: the client is another broker. Like mosquitto, its subscriptions get what bridges of MQTT 5 ask for by
    options that 3.1.1 does not have: nothing of what it has published itself, and the retain flag as published.
    """

    __slots__ = (
        "_asked",
        "_bridge",
        "_codes",
        "_full",
        "_host",
        "_inbound",
        "_most",
        "_outbound",
        "_output",
        "_read",
        "_server_state",
        "_session",
        "_system",
        "_text",
        "_unanswered",
        "_waiting",
    )

    def __init__(
        self,
        server_state: ServerState,
        host: Host,
        output: Output,
        session: Session,
        inbound: Inbound,
        outbound: Outbound,
        bridge: bool,
    ) -> None:
        self._server_state = server_state
        self._unanswered = server_state.unanswered
        self._host = host
        self._output = output
        self._session = session
        self._inbound = inbound
        self._outbound = outbound
        self._most = server_state.limits.subscriptions
        self._bridge = bridge
        self._asked: Subscribe | Unsubscribe | None = None  # the session answers it
        self._codes: list[int | None] = []  # of `_asked`; None: the session says it
        self._text = ""
        self._waiting: deque[Subscribe | Unsubscribe] | None = None
        self._full = False
        self._read: dict[str, tuple[int, ...]] = {}  # of `_asked`: below $SYS, they get the present values
        self._system: dict[str, tuple[int, ...]] | None = None  # filter below $SYS → subscription identifiers

    def close(self) -> None:
        """Forget the subscriptions below `$SYS/`: the connection has ended."""
        self._server_state.system_of(self._host.owner.space).readers.discard(self)

    def system(self, topics: Mapping[str, bytes]) -> None:
        """As system.Reader."""
        self._send_system(topics, self._system or {}, retain=False)

    def _send_system(
        self, topics: Mapping[str, bytes], filters: Mapping[str, tuple[int, ...]], *, retain: bool
    ) -> None:
        allowed = [filter for filter in filters if self._session.may_read_system(filter)]
        for topic, payload in topics.items():
            matched = [filter for filter in allowed if matches(filter, topic)]
            if matched:
                ids = tuple(id for filter in matched for id in filters[filter])
                values = Properties(subscription_ids=ids) if ids else NONE
                delivery = Delivery(topic, payload, retain=retain, properties=values, fleeting=True)
                self._outbound.deliver(delivery)

    def _uses(self, packet_id: int) -> bool:
        """Return whether a message or request with this id has not been answered."""
        if self._inbound.uses(packet_id):
            return True
        if self._asked is not None and self._asked.packet_id == packet_id:
            return True
        return any(each.packet_id == packet_id for each in self._waiting or ())

    def take(self, packet: Subscribe | Unsubscribe) -> None:
        """Process a SUBSCRIBE or UNSUBSCRIBE."""
        if self._uses(packet.packet_id):
            in_use = reasons.PACKET_IDENTIFIER_IN_USE
            if isinstance(packet, Subscribe):
                self._output.answer(SubAck(packet.packet_id, (in_use,) * len(packet.subscriptions)), "")
            else:
                self._output.answer(UnsubAck(packet.packet_id, (in_use,) * len(packet.filters)), "")
            return
        if self._asked is None:
            self._ask(packet)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(packet)
        if len(self._waiting) >= MOST_WAITING:
            self._full = True
            self._host.intake.hold(intake.REQUESTS)

    def subscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """As interfaces.Replies."""
        asked = self._asked
        if asked is None or asked.packet_id != packet_id:
            return
        found = iter(codes)
        full = tuple(next(found, reasons.UNSPECIFIED_ERROR) if code is None else code for code in self._codes)
        self._answer(packet_id, full, text or self._text)
        self._outbound.subscribing = False
        self._outbound.go_on()
        read, self._read = self._read, {}
        self._send_system(self._server_state.system_of(self._host.owner.space).topics, read, retain=True)
        self._unanswered.answered(self._host)
        self._next()

    def _answer(self, packet_id: int, codes: tuple[int, ...], text: str) -> None:
        """Write a SUBACK. `text`: the reason of one refusal; the number of the others follows."""
        more = sum(code >= reasons.UNSPECIFIED_ERROR for code in codes) - 1
        self._output.answer(SubAck(packet_id, codes), f"{text} and {more} more" if text and more > 0 else text)

    def unsubscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """As interfaces.Replies."""
        asked = self._asked
        if asked is None or asked.packet_id != packet_id:
            return
        found = iter(codes)
        full = tuple(next(found, reasons.UNSPECIFIED_ERROR) if code is None else code for code in self._codes)
        self._output.answer(UnsubAck(packet_id, full), text)
        self._next()

    def _next(self) -> None:
        self._asked = None
        waiting = self._waiting
        while waiting and self._asked is None:
            self._ask(waiting.popleft())
        if self._full and (not waiting or len(waiting) < MOST_WAITING):
            self._full = False
            self._host.intake.release(intake.REQUESTS)

    def _ask(self, packet: Subscribe | Unsubscribe) -> None:
        if isinstance(packet, Unsubscribe):
            self._end(packet)
            return
        self._text = ""
        if self._bridge:
            packet = Subscribe(packet.packet_id, tuple(map(_of_bridge, packet.subscriptions)))
        codes = self._examined(packet)
        read = self._read_system(packet, codes)
        wanted = tuple(one for one, code in zip(packet.subscriptions, codes, strict=True) if code is None)
        if not wanted:
            self._answer(packet.packet_id, tuple(code or 0 for code in codes), self._text)
            self._send_system(self._server_state.system_of(self._host.owner.space).topics, read, retain=True)
            return
        if len(wanted) < len(codes):
            packet = Subscribe(packet.packet_id, wanted, packet.properties)
        self._asked, self._codes = packet, codes
        self._outbound.subscribing = True
        self._unanswered.asked(self._host, tuple(one.filter for one in wanted))
        self._read = read
        self._session.subscribe(packet)

    def _end(self, packet: Unsubscribe) -> None:
        """Process an UNSUBSCRIBE: of filters below `$SYS/` here, of others at the session."""
        codes: list[int | None] = []
        for filter in packet.filters:
            if not is_system(filter):
                codes.append(None)
            elif self._system is not None and self._system.pop(filter, None) is not None:
                codes.append(reasons.SUCCESS)
            else:
                codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
        if not self._system:
            self.close()
        wanted = tuple(filter for filter, code in zip(packet.filters, codes, strict=True) if code is None)
        if not wanted:
            self._output.answer(UnsubAck(packet.packet_id, tuple(code or 0 for code in codes)), "")
            return
        if len(wanted) < len(codes):
            packet = Unsubscribe(packet.packet_id, wanted, packet.properties)
        self._asked, self._codes = packet, codes
        self._session.unsubscribe(packet)

    def _read_system(self, packet: Subscribe, codes: list[int | None]) -> dict[str, tuple[int, ...]]:
        """Take over the subscriptions below `$SYS/` that are granted; return those that get the present values."""
        found: dict[str, tuple[int, ...]] = {}
        for one, code in zip(packet.subscriptions, codes, strict=True):
            if code != 0 or not is_system(one.filter):
                continue
            if self._system is None:
                self._system = {}
            ids = tuple(packet.properties.subscription_ids)
            if one.retain_handling == 0 or (one.retain_handling == 1 and one.filter not in self._system):
                found[one.filter] = ids
            self._system[one.filter] = ids
            self._server_state.system_of(self._host.owner.space).readers.add(self)
        return found

    def _examined(self, packet: Subscribe) -> list[int | None]:
        """Return the reason codes of filters that are refused here; None for the others."""
        filters = self._session.filters
        new: set[str] = set()
        codes: list[int | None] = []
        for one in packet.subscriptions:
            code = self._refusal(one, new)
            if code is None and one.filter not in filters:
                new.add(one.filter)
            codes.append(code)
        return codes

    def _refusal(self, one: Subscription, new: set[str]) -> int | None:
        if levels(one.filter) > MAX_LEVELS:
            self._text = self._text or f"a filter has more than {MAX_LEVELS} levels"
            return reasons.TOPIC_FILTER_INVALID
        filters = self._session.filters
        if is_system(one.filter):
            if not self._session.may_read_system(one.filter):
                self._text = self._text or f"no permission to receive from {one.filter[:100]!r}"
                return reasons.NOT_AUTHORIZED
            known = self._system or {}
            return reasons.QUOTA_EXCEEDED if one.filter not in known and len(known) >= MOST_SYSTEM else 0
        if one.filter not in filters and one.filter not in new and len(filters) + len(new) >= self._most:
            self._text = self._text or f"a client may have {self._most} subscriptions"
            return reasons.QUOTA_EXCEEDED
        return None


def _of_bridge(one: Subscription) -> Subscription:
    return replace(one, no_local=parse_share(one.filter) is None, retain_as_published=True)
