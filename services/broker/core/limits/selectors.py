"""Work that one user's selectors may be: their words (`Selector.weight`) over all links that are attached."""

from __future__ import annotations

from collections import Counter
from typing import Final

from enmasse.identity.owned import owner
from enmasse.identity.principal import ANONYMOUS
from services.broker.core.errors import BrokerError

MOST: Final = 1 << 17
"""Words of the selectors of a user. A word takes about 0.2 µs for each message, so that all of them take 26 ms."""


class SelectorWords:
    """Words by user. Of clients without a user each container-id counts by itself."""

    def __init__(self) -> None:
        self._words: Counter[str] = Counter()

    def check(self, container: str, words: int) -> None:
        """Raise BrokerError if these words, with those of the user's other links, are more than MOST."""
        user = _user(container)
        if words and self._words[user] + words > MOST:
            raise BrokerError(
                f"the selectors of {user!r} would take {self._words[user] + words} words to evaluate, the most are "
                f"{MOST}: use fewer or shorter ones, or detach others",
                "amqp:resource-limit-exceeded",
            )

    def add(self, container: str, words: int) -> None:
        """Count the words of a link's selector; -words when it has ended."""
        if words:
            user = _user(container)
            self._words[user] += words
            if self._words[user] <= 0:
                del self._words[user]


def _user(container: str) -> str:
    user = owner(container).user
    return container if user == ANONYMOUS else f"user {user}"
