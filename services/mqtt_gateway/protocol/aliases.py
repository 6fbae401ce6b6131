"""Topic aliases (v5 3.3.2.3.4), both ways."""

from __future__ import annotations

from enmasse.mqtt import reasons
from enmasse.mqtt.errors import ProtocolError


class AliasesIn:
    """Aliases that the client has set; `most` is the maximum in CONNACK."""

    __slots__ = ("_topics", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._topics: dict[int, str] = {}

    def topic(self, topic: str, alias: int) -> str:
        """Return the topic of a PUBLISH that has an alias. Raises ProtocolError."""
        if not 0 < alias <= self.most:
            raise ProtocolError(
                f"PUBLISH: topic alias {alias}; 1 to {self.most} are possible",
                "v5 MQTT-3.3.2-8, MQTT-3.3.2-9",
                reasons.TOPIC_ALIAS_INVALID,
            )
        if topic:
            self._topics[alias] = topic
            return topic
        found = self._topics.get(alias)
        if found is None:
            raise ProtocolError(f"PUBLISH: no topic was set for topic alias {alias}", "v5 3.3.2.3.4")
        return found


class AliasesOut:
    """Aliases that are set towards the client, at most `most`."""

    __slots__ = ("_missed", "_most", "_numbers")

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}
        self._missed = 0

    def number(self, topic: str) -> tuple[int, bool]:
        """Return the alias of a topic, and whether the client has it already. 0: it gets none."""
        found = self._numbers.get(topic)
        if found is not None:
            return found, True
        if len(self._numbers) >= self._most:
            self._missed += 1
            if self._missed <= 8 * self._most:
                return 0, False
            self._numbers.clear()  # other topics are frequent by now
            self._missed = 0
        self._numbers[topic] = number = len(self._numbers) + 1
        return number, False

    def forget(self, topic: str) -> None:
        """Forget the alias given last: the packet could not be sent."""
        del self._numbers[topic]
