"""Work for the messages of others that one user may ask of a broker: words of selectors (`Selector.weight`), and levels
of filters with wildcards (enmasse/identity/filter_limits.py)."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from enmasse.identity.filter_limits import FilterLimits, account, title
from services.broker.core.errors import BrokerError

MOST: Final = 1 << 17
"""Words of the selectors of a user. A word takes about 0.2 µs for each message, so that all of them take 26 ms."""
_LIMIT = "amqp:resource-limit-exceeded"


class _Subscription(NamedTuple):
    client: str
    words: int
    pattern: str


class UserLimits:
    """Sums by user. A subscription counts as long as it has its queue, also while its client is away; a link with a
    selector of its own while it is attached. Those found at the start count, and may be more than is allowed."""

    def __init__(self) -> None:
        self._words: Counter[str] = Counter()
        self._wildcards = FilterLimits()
        self._subscriptions: dict[int, _Subscription] = {}

    def check(self, client: str, words: int, pattern: str = "", *, instead_of: int = 0) -> None:
        """Raise BrokerError if these words, or a subscription to this pattern, would be too much for the user of the
        client. `instead_of`: id of the queue of a subscription that ends first."""
        old = self._subscriptions.get(instead_of)
        if old is not None:
            self._count(old, -1)
        try:
            self._check(client, words, pattern)
        finally:
            if old is not None:
                self._count(old, 1)

    def _check(self, client: str, words: int, pattern: str) -> None:
        who = account(client)
        if words and self._words[who] + words > MOST:
            raise BrokerError(
                f"the selectors of {title(client)} would take {self._words[who] + words} words to evaluate, the most "
                f"are {MOST}: use fewer or shorter ones, detach others, or unsubscribe from durable subscriptions",
                _LIMIT,
            )
        if refusal := self._wildcards.room(client).refusal(pattern):
            raise BrokerError(refusal, _LIMIT)

    def add_words(self, client: str, words: int) -> None:
        """Count the words of a link's own selector; -words when it has ended."""
        if words:
            who = account(client)
            self._words[who] += words
            if self._words[who] <= 0:
                del self._words[who]

    def subscribed(self, queue: int, client: str, words: int, pattern: str) -> None:
        """Count the subscription of a client that has the queue with this id, in place of what was counted of it."""
        self.ended(queue)
        self._subscriptions[queue] = made = _Subscription(client, words, pattern)
        self._count(made, 1)

    def changed(self, queue: int, words: int) -> None:
        """Count another selector of a subscription; nothing for other queues."""
        if (old := self._subscriptions.get(queue)) is not None:
            self.subscribed(queue, old.client, words, old.pattern)

    def ended(self, queue: int) -> None:
        """Count a subscription no longer, if the queue was one."""
        if (old := self._subscriptions.pop(queue, None)) is not None:
            self._count(old, -1)

    def _count(self, each: _Subscription, times: int) -> None:
        self.add_words(each.client, times * each.words)
        if times > 0:
            self._wildcards.add(each.client, [each.pattern])
        else:
            self._wildcards.remove(each.client, [each.pattern])
