"""What clients see: identity, operation and permission, and the outcome at each client.

`python -m tests.interop.matrix.table > docs/outcomes.md` makes the page; test_matrix.py runs
each row.
"""

from __future__ import annotations

import itertools
from textwrap import wrap
from typing import NamedTuple

TYPES = ("anycast", "multicast", "queue", "topic")
OPERATIONS = ("send", "receive")
FAMILIES = ("Proton", "Qpid JMS", "rhea", "MQTT 3.1.1", "MQTT 5")


class Kind(NamedTuple):
    """A client program. `slow`: each connection costs a process, or much time."""

    family: str
    name: str
    description: str
    slow: bool = False


MOSQUITTO = "mosquitto_pub and mosquitto_sub, MQTT"
CLIENTS = {
    "proton": Kind("Proton", "Proton", "python-qpid-proton, SASL PLAIN"),
    "jms": Kind("Qpid JMS", "Qpid JMS", "Apache Qpid JMS 2.7 (Java), SASL SCRAM-SHA-512", slow=True),
    "rhea": Kind("rhea", "rhea", "rhea (JavaScript), SASL PLAIN", slow=True),
    "paho-3": Kind("MQTT 3.1.1", "paho 3.1.1", "paho-mqtt (Python), MQTT 3.1.1"),
    "paho-5": Kind("MQTT 5", "paho 5", "paho-mqtt (Python), MQTT 5"),
    "paho-5-websocket": Kind("MQTT 5", "paho 5, WebSocket", "paho-mqtt (Python), MQTT 5 over WebSocket"),
    "mosquitto-3": Kind("MQTT 3.1.1", "mosquitto 3.1.1", f"{MOSQUITTO} 3.1.1", slow=True),
    "mosquitto-5": Kind("MQTT 5", "mosquitto 5", f"{MOSQUITTO} 5", slow=True),
}

RIGHT, WRONG, UNKNOWN, NOTHING, REMOVED = "right", "wrong", "unknown", "nothing", "removed"
CERTIFIED, NO_USER, ANOTHER, EXPIRED = "certified", "certified-unknown", "other-authority", "expired-certificate"
TOKEN, OLD, FOREIGN = "token", "expired-token", "foreign-token"
ACCEPTED = (RIGHT, CERTIFIED, TOKEN)
IDENTITIES = {
    RIGHT: "the right password",
    WRONG: "a wrong password",
    UNKNOWN: "a user that does not exist",
    NOTHING: "no credentials (there is no entry `anonymous`)",
    CERTIFIED: "a certificate of the user",
    NO_USER: "a certificate of a user that does not exist",
    ANOTHER: "a certificate of another authority",
    EXPIRED: "an expired certificate",
    TOKEN: "a token of the user",
    OLD: "an expired token",
    FOREIGN: "a token of another issuer",
    REMOVED: "the right password; the user is removed while it is connected",
}


class Cell(NamedTuple):
    """One attempt. `permitted`: the user may do the operation on the address."""

    identity: str
    operation: str
    type: str
    permitted: bool

    @property
    def row(self) -> Row:
        """Return the row with its outcome."""
        if self.identity not in ACCEPTED:
            return ROWS[self.identity]
        return ROWS[f"{self.operation}s{'' if self.permitted else ' without permission'}"]


Row = dict[str, str]
"""Family → outcome; with ` or `: one of several, as it happens."""
UNAUTHORIZED = "amqp:unauthorized-access"


def _row(proton: str, jms: str, rhea: str, mqtt_3: str, mqtt_5: str) -> Row:
    return dict(zip(FAMILIES, (proton, jms, rhea, mqtt_3, mqtt_5), strict=True))


_REFUSED = _row(
    f"ConnectionException {UNAUTHORIZED}", "JMSSecuritySaslException", UNAUTHORIZED, "CONNACK 4", "CONNACK 0x86"
)
_HANDSHAKE = _row(
    "ConnectionException amqp:connection:framing-error", "JMSException or JmsConnectionFailedException",
    "closed", "closed", "closed",
)  # fmt: skip
ROWS: dict[str, Row] = {
    "sends": _row("accepted", "accepted", "accepted", "PUBACK 0", "PUBACK 0"),
    "receives": _row("attached", "attached", "attached", "SUBACK 1", "SUBACK 1"),
    "sends without permission": _row(
        f"LinkDetached {UNAUTHORIZED}", "JMSSecurityException", UNAUTHORIZED, "closed", "PUBACK 0x87"
    ),
    "receives without permission": _row(
        f"LinkDetached {UNAUTHORIZED}", "JMSSecurityException", UNAUTHORIZED, "SUBACK 0x80", "SUBACK 0x87"
    ),
    WRONG: _REFUSED,
    UNKNOWN: _REFUSED,
    NOTHING: {**_REFUSED, "rhea": "SASL layer not enabled", "MQTT 3.1.1": "CONNACK 5", "MQTT 5": "CONNACK 0x87"},
    NO_USER: {**_REFUSED, "MQTT 3.1.1": "CONNACK 5", "MQTT 5": "CONNACK 0x87"},
    ANOTHER: _HANDSHAKE,
    EXPIRED: _HANDSHAKE,
    OLD: _REFUSED,
    FOREIGN: _REFUSED,
    REMOVED: _row(
        f"ConnectionClosed {UNAUTHORIZED}", "JMSSecurityException", UNAUTHORIZED, "closed", "DISCONNECT 0x87"
    ),
}


def cells(client: str) -> list[Cell]:
    """Return the attempts of a client: all combinations; of a slow client thinned by the rule of the page."""
    product = itertools.product(OPERATIONS, TYPES, (True, False))
    found = [Cell(identity, *rest) for identity, rest in itertools.product(IDENTITIES, list(product))]
    return [cell for cell in found if not _thinned(client, cell.identity) or _chosen(cell)]


def _thinned(client: str, identity: str) -> bool:
    """Return whether a client tries only a part with this identity: a slow one, which is refused; and all with tokens,
    because failed logins of an address are limited."""
    return identity in (TOKEN, OLD, FOREIGN) or (CLIENTS[client].slow and identity not in ACCEPTED)


def _chosen(cell: Cell) -> bool:
    """Return whether the attempt is in the part: each type once, both operations and both permissions. (A program that
    may not receive leaves, so that nothing would be left to remove.)"""
    number = TYPES.index(cell.type)
    return (cell.operation, cell.permitted) == (OPERATIONS[number % 2], number != 2)


NOT_REACHED = "tries either"
INTRODUCTION = f"""
The outcome of logins and operations at clients of several families, by the identity that they present and what the user
may do ([identity](identity.md)). All types of addresses ({", ".join(TYPES)}) have the same outcomes. A message whose
sender was refused is not delivered, and a client that may not receive gets none.
"""
NOTES = """
Exceptions of Proton are shown with the condition in their text, those of Qpid JMS by their class, errors of rhea by
their condition. MQTT clients send and subscribe with QoS 1; `closed`: the connection is closed without a packet, as
3.1.1 has none for it; if a certificate is not accepted, TLS ends it. rhea does not speak SASL if it has neither user
name nor certificate. With certificates the AMQP clients use SASL EXTERNAL. Qpid JMS presents tokens by XOAUTH2,
other clients as passwords: Proton has neither OAUTHBEARER nor XOAUTH2, and rhea, which has XOAUTH2, answers no refusal
there: an exception ends its program.
"""
ATTEMPTS = f"""
Attempts are all combinations of identity, operation, type and permission. They are thinned for clients of which each
connection takes a process, or much time ({", ".join(kind.name for kind in CLIENTS.values() if kind.slow)}): with an
identity that is refused they try each type once, with both operations and both permissions among them. So do all
clients with tokens.
"""


def _shown(outcome: str) -> str:
    return " or ".join(f"`{each}`" for each in outcome.split(" or "))


def page() -> str:
    """Return the page of the documentation."""
    lines = [
        "# What clients see", *wrap(INTRODUCTION.strip(), 120), "",
        "This page is made from `tests/interop/matrix/table.py` by `python -m tests.interop.matrix.table`;",
        "`tests/interop/test_matrix.py` runs all of it against one suite.", "",
        "| a client presents | and | " + " | ".join(FAMILIES) + " |", "|---|---|" + "---|" * len(FAMILIES),
    ]  # fmt: skip
    for name, row in ROWS.items():
        presents, does = (
            (IDENTITIES[name], "")
            if name in IDENTITIES
            else (f"{IDENTITIES[RIGHT]}, {IDENTITIES[CERTIFIED]}, or {IDENTITIES[TOKEN]}", name)
        )
        lines.append(
            f"| {presents} | {does or NOT_REACHED} | " + " | ".join(_shown(row[family]) for family in FAMILIES) + " |"
        )
    lines += ["", *wrap(NOTES.strip(), 120), "", "| client | is | attempts |", "|---|---|---|"]
    lines += [f"| {kind.name} | {kind.description} | {len(cells(each))} |" for each, kind in CLIENTS.items()]
    return "\n".join([*lines, "", *wrap(ATTEMPTS.strip(), 120)]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
