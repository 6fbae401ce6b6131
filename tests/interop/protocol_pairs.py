"""Fields of a message by protocol: the table of docs/http.md, and what a receiver of one protocol gets from a sender of
another one. test_protocol_pairs.py runs each pair."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PROTOCOLS: Final = ("AMQP", "MQTT 3.1.1", "MQTT 5", "HTTP", "STOMP", "CoAP", "Spark")
SENT_ONLY: Final = " (sink)"
"""What a field's name ends with that a protocol sends and does not receive."""
NONE: Final = "\N{EN DASH}"


class PairedField(NamedTuple):
    """A field by the name that each protocol has for it, in the order of PROTOCOLS; NONE: it has no such field."""

    name: str
    names: tuple[str, str, str, str, str, str, str]


FIELDS: Final = (
    PairedField("body", ("`data`", "payload", "payload", "body", "body", "payload", "`body`")),
    PairedField(
        "type",
        (
            "`content-type`",
            NONE,
            "content type",
            "`Content-Type`",
            "`content-type`",
            "Content-Format",
            "`content_type`",
        ),
    ),
    PairedField(
        "property",
        (
            "application property",
            NONE,
            "user property",
            "`Enmasse-Properties`",
            "header",
            "`property.NAME`",
            "`application_properties`",
        ),
    ),
    PairedField(
        "time to live",
        (
            "`ttl` (ms)",
            NONE,
            "message expiry (s)",
            "`Enmasse-TTL` (ms)",
            "`ttl`",
            "`ttl` (ms)",
            f"`ttl` (ms){SENT_ONLY}",
        ),
    ),
    PairedField(
        "reply address",
        ("`reply-to`", NONE, "response topic", "`Enmasse-Reply-To`", "`reply-to`", "`reply-to`", "`reply_to`"),
    ),
    PairedField(
        "correlation",
        (
            "`correlation-id`",
            NONE,
            "correlation data",
            "`Enmasse-Correlation-Id`",
            "`correlation-id`",
            "`correlation-id`",
            "`correlation_id`",
        ),
    ),
    PairedField(
        "outcome: accepted", ("`accepted`", "PUBACK", "PUBACK 0x00", "201", "RECEIPT", "2.01, 2.04", "the batch")
    ),
    PairedField(
        "outcome: no such address",
        ("`amqp:not-found`", "closed", "PUBACK 0x90", "404", "`no such address`", "4.04", "the query ends"),
    ),
)
SENT: Final[dict[str, Any]] = {
    "body": b"21.5",
    "type": "text/plain",
    "property": "C",
    "time to live": 600,
    "reply address": "answers",
    "correlation": "c-17",
}
"""Values of a message; the time to live in seconds, of which less may be left, but not none."""


def passed(sender: str, receiver: str) -> dict[str, Any]:
    """Return the values that a receiver gets from a sender: those for which both protocols have a field."""
    here, there = PROTOCOLS.index(sender), PROTOCOLS.index(receiver)
    return {
        each.name: SENT[each.name]
        for each in FIELDS
        if each.name in SENT
        and NONE not in (each.names[here], each.names[there])
        and not each.names[there].endswith(SENT_ONLY)
    }


def outcomes(protocol: str, name: str) -> list[str]:
    """Return what the outcome of this name may be at a sender."""
    found = next(each for each in FIELDS if each.name == name).names[PROTOCOLS.index(protocol)]
    return found.strip("`").split(", ")


def table() -> str:
    """Return FIELDS as in the documentation."""
    lines = [f"| | {' | '.join(PROTOCOLS)} |", f"|{'---|' * 8}"]
    lines += [f"| {each.name} | {' | '.join(each.names)} |" for each in FIELDS]
    return "\n".join(lines) + "\n"
