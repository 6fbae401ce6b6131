"""Limits of what clients of an address space send, by the plan of the space: rates, and the size of a message.

Messages are counted here, where it is known whose they are: at the router they come over the connections that the
gateway has for all clients. A client that has sent more than the rate of its space is not read until time has paid for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.identity.allowances import Allowances
from enmasse.identity.space_rates import SpaceRates
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NONE, Publish
from services.mqtt_gateway.amqp.session import MqttSession


class ClientRates:
    """Rates of all spaces that have one, and the sessions of those that wait. `now`: a clock in seconds."""

    def __init__(self, allowances: Allowances, now: Callable[[], float]) -> None:
        self.allowances = allowances
        self._rates = SpaceRates(allowances, now)
        self._waiting: dict[str, dict[MeteredSession, None]] = {}

    def count(self, session: MeteredSession, size: int) -> None:
        """Count a message of this size; its client is not read while its space is in debt."""
        account = self._rates.spaces.get(session.space)
        if account is None:
            return
        account.count(1, size)
        if account.in_debt:
            self._waiting.setdefault(session.space, {})[session] = None
            session.throttle(True)

    def forget(self, session: MeteredSession) -> None:
        """Forget a session that has ended."""
        if (waiting := self._waiting.get(session.space)) is not None:
            waiting.pop(session, None)

    def tick(self) -> None:
        """Let time pay, and read again those that have waited longest, as far as their space is out of debt."""
        self._rates.pass_time()
        for space, waiting in list(self._waiting.items()):
            account = self._rates.spaces.get(space)
            for session in list(waiting):
                if account is not None and account.in_debt:
                    break
                if waiting.pop(session, session) is None:
                    session.throttle(False)
            if not waiting:
                del self._waiting[space]
        self._rates.report()


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


def too_large(size: int, allowances: Allowances, space: str) -> str:
    """Return why a message of this size is refused."""
    most = allowances.limits(space).max_message_size
    return (
        f"the message has {size} bytes, the plan {allowances.plan(space)!r} allows {most}: send a smaller one, or ask "
        "for another plan of the space"
    )
