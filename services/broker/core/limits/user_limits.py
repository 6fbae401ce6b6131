"""Work and memory that one user may ask of a broker: words of selectors (`Selector.weight`), levels of filters with
wildcards (enmasse/identity/filter_limits.py), and durable subscriptions."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from enmasse.identity.filter_limits import FilterLimits, account, title
from enmasse.identity.owned import owned, owner
from services.broker.core.errors import BrokerError, too_many_subscriptions, too_many_subscriptions_of_user

MOST: Final = 1 << 17
"""Words of the selectors of a user. A word takes about 0.2 µs for each message, so that all of them take 26 ms."""
MOST_SUBSCRIPTIONS: Final = 5000
"""Durable subscriptions of a user, or what one client may have, if that is more. Each takes 5 KiB of memory, and
4 µs for a message that goes to it. Anonymous clients have as many together."""
_LIMIT = "amqp:resource-limit-exceeded"


class _Subscription(NamedTuple):
    client: str
    words: int
    pattern: str
    durable: bool


class UserLimits:
    """Sums by user. A subscription counts as long as it has its queue, also while its client is away; a link with a
    selector of its own while it is attached. Those found at the start count, and may be more than is allowed."""

    def __init__(self, of_client: int = -1) -> None:
        """`of_client`: durable subscriptions that each client may have; -1: as its user."""
        self._of_client = of_client
        self._durable_of_clients: Counter[str] = Counter()
        self._durable_of_users: Counter[str] = Counter()
        self._words: Counter[str] = Counter()
        self._wildcards = FilterLimits()
        self._subscriptions: dict[int, _Subscription] = {}

    def check(self, client: str, words: int, pattern: str = "", *, durable: bool = False, instead_of: int = 0) -> None:
        """Raise BrokerError if these words, or a subscription to this pattern, would be too much for the user of the
        client, or a `durable` one too much for the client. `instead_of`: id of the queue of a subscription that ends
        first."""
        old = self._subscriptions.get(instead_of)
        if old is not None:
            self._count(old, -1)
        try:
            self._check(client, words, pattern)
            if durable:
                self._check_durable(client)
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

    def _check_durable(self, client: str) -> None:
        count = self._durable_of_clients[client]
        if 0 <= self._of_client <= count:
            raise too_many_subscriptions(client, count)
        count = self._durable_of_users[_user(client)]
        if count >= max(MOST_SUBSCRIPTIONS, self._of_client):
            raise too_many_subscriptions_of_user(owner(client).user, count)

    def add_words(self, client: str, words: int) -> None:
        """Count the words of a link's own selector; -words when it has ended."""
        if words:
            who = account(client)
            self._words[who] += words
            if self._words[who] <= 0:
                del self._words[who]

    def subscribed(self, queue: int, client: str, words: int, pattern: str, *, durable: bool) -> None:
        """Count the subscription of a client that has the queue with this id, in place of what was counted of it."""
        self.ended(queue)
        self._subscriptions[queue] = made = _Subscription(client, words, pattern, durable)
        self._count(made, 1)

    def changed(self, queue: int, words: int) -> None:
        """Count another selector of a subscription; nothing for other queues."""
        if (old := self._subscriptions.get(queue)) is not None:
            self.subscribed(queue, old.client, words, old.pattern, durable=old.durable)

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
        if each.durable:
            for counts, who in (self._durable_of_clients, each.client), (self._durable_of_users, _user(each.client)):
                counts[who] += times
                if not counts[who]:
                    del counts[who]


def _user(client: str) -> str:
    return owned(owner(client).principal, "")
