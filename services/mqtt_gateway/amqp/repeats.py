"""QoS 0 and 1 to the client over the loss of a link: what the client has, or is about to get, is redelivered by the
broker, and is not sent to it twice on one connection (v5 MQTT-4.4.0-1). QoS 2 is the business of `exchanges`."""

from __future__ import annotations

from collections.abc import Iterable

from services.mqtt_gateway.interfaces import Delivery


def accept(delivery: Delivery) -> bool:
    """States to the broker that the client has it. False: the delivery was lost, the message will be redelivered."""
    source, link, delivery_id, _ = delivery.handle
    return link is not None and bool(source.accept(link, delivery_id))


class Repeats:
    """Deliveries of one session whose link was lost."""

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        # by source and identity: what will be redelivered; None: the client is done with it
        self._expected: dict[tuple[str, str], Delivery | None] = {}

    @property
    def expected(self) -> bool:
        """True if something of any source is expected again."""
        return bool(self._expected)

    def lost(self, source: str, unsettled: Iterable[Delivery]) -> None:
        """The link of a source is gone, and these deliveries (of any source) are not settled."""
        for delivery in unsettled:
            if delivery.source == source and delivery.identity is not None and not delivery.fleeting:
                self._expected[source, delivery.identity] = delivery

    def goes_on(self, delivery: Delivery) -> bool:
        """Return whether it is one that was lost: then this is done here."""
        if not self._expected or delivery.identity is None:
            return False
        key = delivery.source, delivery.identity
        if key not in self._expected:
            return False
        known = self._expected.pop(key)
        if known is None:
            accept(delivery)
        else:
            known.handle = delivery.handle
        return True

    def settled(self, delivery: Delivery) -> None:
        """The client is done with it, whose link is gone."""
        key = delivery.source, delivery.identity or ""
        if key in self._expected:
            self._expected[key] = None

    def unsure(self, source: str) -> bool:
        """Is something expected from this source?"""
        return any(key[0] == source for key in self._expected)

    def drained(self, source: str) -> None:
        """The broker has redelivered all its messages: forget those that are missing."""
        for key in [key for key in self._expected if key[0] == source]:
            del self._expected[key]
