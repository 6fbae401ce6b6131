"""Sessions of clients of an address space with a plan: rates, and the size of a message."""

from __future__ import annotations

from typing import Any

from enmasse.bridge.client_rates import ClientRates, too_large
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NONE, Publish
from services.mqtt_gateway.amqp.session import MqttSession


class MeteredSession(MqttSession):
    """Session of a client of another space than the default one."""

    def __init__(self, rates: ClientRates, *rest: Any) -> None:
        super().__init__(*rest)
        self.space = self.login.principal.space
        self.max_message = rates.allowances.limits(self.space).max_message_size
        self._rates = rates

    def publish(self, publish: Publish) -> None:
        """As interfaces.Session."""
        size = size_of(publish)
        if self.max_message is not None and size > self.max_message:
            self.refuse_size(size)
            return
        super().publish(publish)
        self._rates.count(self, size)

    @property
    def takes_runs(self) -> bool:
        """As interfaces.Session: each message counts by itself, and may be the last that the plan allows."""
        return False

    def refuse_size(self, size: int) -> None:
        """End the connection, as MQTT has no other answer to a message that is too large (v5 MQTT-3.1.2-24)."""
        text = too_large(size, self._rates.allowances, self.space)
        self._note_publish(reasons.PACKET_TOO_LARGE, text, "")
        if self.client is not None:
            self.client.disconnect(reasons.PACKET_TOO_LARGE, text)

    def throttle(self, throttled: bool) -> None:
        """Do not read the client, or read it again."""
        if self.publications is None:
            return
        try:
            self.publications.throttle(throttled)
        except Exception as error:
            self.failed(error)

    def close(self, *ending: Any) -> None:
        """As interfaces.Session."""
        self._rates.forget(self)
        super().close(*ending)


def size_of(publish: Publish) -> int:
    """Return the bytes of a message that its client has chosen: topic, payload and properties of its own."""
    size = len(publish.topic) + len(publish.payload)
    properties = publish.properties
    if properties is not NONE:
        size += sum(len(name) + len(value) for name, value in properties.user_properties)
        for each in (properties.correlation_data, properties.content_type, properties.response_topic):
            size += len(each or "")
    return size
