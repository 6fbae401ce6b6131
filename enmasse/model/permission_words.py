"""Words of permissions: what a user may do on an address (docs/identity.md, "Permissions").

Files, command line, REST, the page of the console and the documentation have them from this table. A new word is an
entry of it, and a question (`Rights.allows`, `Rights.covers`) where the traffic is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Operation = Literal["send", "recv", "view", "manage"]
"""A key of OPERATIONS."""


class Word(NamedTuple):
    """`grants`: what it permits, for the documentation; `refused`: verb of `user NAME may not … ADDRESS`."""

    grants: str
    refused: str


OPERATIONS: Final[Mapping[Operation, Word]] = {
    "send": Word("send messages, publish", "send to"),
    "recv": Word("receive messages, subscribe, browse", "receive from"),
    "view": Word("see it with its counts, subscriptions and clients", "view"),
    "manage": Word("create, change, delete and purge it, disconnect its clients", "manage"),
}


def refusal(user: str, operation: str, address: str) -> str:
    """Return why a user may not do something. `operation`: one of the table, or a verb of its own."""
    word = OPERATIONS.get(operation)  # type: ignore[call-overload]  # other texts have no entry
    return f"user {user} may not {operation if word is None else word.refused} {address}"


def table() -> str:
    """Return OPERATIONS as in docs/identity.md."""
    lines = ["| operation | on an address permits to |", "|---|---|"]
    lines += [f"| `{name}` | {word.grants} |" for name, word in OPERATIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
