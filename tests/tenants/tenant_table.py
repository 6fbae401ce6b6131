"""What a client may do in an address space, and by which means in each protocol: the table of docs/spaces.md. Each
entry is a cell of the matrix that test_tenants.py runs in three spaces."""

from __future__ import annotations

from typing import Final

WAYS: Final = ("AMQP", "MQTT", "HTTP", "STOMP", "CoAP", "REST", "command line", "page", "Spark")
"""Columns. AMQP, MQTT and STOMP are tried over WebSocket, too."""
ELSEWHERE: Final = {
    "page": "tests/console/test_space_matrix.py::test_the_page_shows_nothing_of_another_space",
    "Spark": "tests/spark/test_in_spark_spaces.py::test_two_spaces_with_equal_names_in_one_session",
}
"""Columns whose cells are one test each, which needs a browser or a cluster."""
NONE: Final = "\N{EN DASH}"
TABLE: Final[dict[str, tuple[str, ...]]] = {
    "send": (
        "sender",
        "PUBLISH",
        "`POST …/messages`",
        "SEND",
        "`POST /v1/…`",
        "`POST …/messages`",
        "`send`",
        NONE,
        "sink",
    ),
    "relay": ("sender without an address", NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE),
    "receive": ("receiver", "SUBSCRIBE", "`POST …/next`", "SUBSCRIBE", NONE, NONE, "`receive`", NONE, "source"),
    "browse": ("receiver that copies", NONE, NONE, NONE, NONE, "`GET …/messages`", "`receive --browse`", NONE, "table"),
    "subscribe": ("receiver", "SUBSCRIBE", "`GET …/events`", "SUBSCRIBE", "Observe", NONE, NONE, NONE, NONE),
    "retained": (
        "`x-opt-retain-message`",
        "PUBLISH",
        NONE,
        NONE,
        NONE,
        "`GET …/retained`",
        "`retained list`",
        "`#/retained`",
        NONE,
    ),
    "will": ("`$lwt`", "CONNECT", NONE, NONE, NONE, "`GET …/wills`", NONE, "`#/wills`", NONE),
    "durable": (
        "container-id, link",
        "session",
        "`…/events?name=`",
        "`client-id`, name",
        NONE,
        NONE,
        "`receive --durable`",
        NONE,
        NONE,
    ),
    "taken": ("sole connection", "client id", "the same name", "`client-id`, name", NONE, NONE, NONE, NONE, NONE),
    "reply": (
        "dynamic receiver",
        "response topic",
        "`POST …/requests`",
        "`/temp-queue/`",
        "`reply-to`",
        NONE,
        "`request`",
        NONE,
        NONE,
    ),
    "list": ("`$subctrl`", NONE, NONE, NONE, NONE, "`GET …`", "`address list`", "`#/addresses` …", NONE),
    "metrics": (NONE, "`$SYS/#`", NONE, NONE, NONE, "`GET …/overview`", "`connection list`", "`#/`", NONE),
    "events": (NONE, NONE, NONE, NONE, NONE, "`GET …/events`", "`events`", "`#/events`", NONE),
    "errors": (
        "conditions",
        "reason strings",
        "problems",
        "ERROR",
        "payloads",
        "problems",
        "messages",
        "answers",
        "messages",
    ),
}
"""What a client does → by which means, in the order of WAYS."""
WORDS: Final = {
    "durable": "attach a durable subscription again",
    "taken": "take over a client of the same id",
    "reply": "have replies sent to it",
    "list": "list what there is",
    "metrics": "read numbers",
    "events": "read events",
    "errors": "read errors",
}
"""What the documentation says where the name of a row does not say it."""
ROLES: Final = ("anonymous", "user", "administrator", "operator")
OPERATOR: Final = ("AMQP", "REST", "command line")
"""Ways in which the operator acts in a space."""


def has(way: str, thing: str) -> bool:
    return TABLE[thing][WAYS.index(way)] != NONE


def table() -> str:
    """Return TABLE as in the documentation."""
    lines = [f"| | {' | '.join(WAYS)} |", f"|{'---|' * (1 + len(WAYS))}"]
    lines += [f"| {WORDS.get(thing, thing)} | {' | '.join(means)} |" for thing, means in TABLE.items()]
    return "\n".join(lines) + "\n"
