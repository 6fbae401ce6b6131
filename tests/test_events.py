"""The catalogue of log events against the calls in the code, and docs/events.md against the catalogue."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from enmasse.logs import events

ROOT = Path(__file__).parents[1]
METHODS = {
    "audit": "info",
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
}
LOGGERS = {"log", "logs", "_log", "_LOG", "logger"}
WITHOUT = {"exc_info"}
"""Parameters that are not fields."""


@dataclass
class Calls:
    """The calls that log one event: places, levels, fields, and whether fields are passed by `**`."""

    places: list[str] = field(default_factory=list)
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    open: bool = False


def is_logger(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "bind") and is_logger(node.func.value)
    return (isinstance(node, ast.Name) and node.id in LOGGERS) or (
        isinstance(node, ast.Attribute) and node.attr in LOGGERS
    )


def calls() -> Iterator[tuple[str, str, str, list[ast.keyword]]]:
    """Yield (place, level, first argument or "", keyword arguments) of every call of a logger."""
    for path in sorted(path for folder in ("enmasse", "services", "spark") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if re.search(r"[lL][oO][gG]s?\.|logger\.", text) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                logger, method = node.func.value, node.func.attr
                if method in METHODS and is_logger(logger):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    keywords = node.keywords + (logger.keywords if isinstance(logger, ast.Call) else [])
                    for id in texts(node.args[0]):
                        yield place, METHODS[method], id, keywords


def texts(argument: ast.expr) -> list[str]:
    """Return the ids that an argument can be; [""] if they cannot be read."""
    if isinstance(argument, ast.IfExp):
        return texts(argument.body) + texts(argument.orelse)
    return [argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else ""]


@cache
def logged() -> dict[str, Calls]:
    found: dict[str, Calls] = defaultdict(Calls)
    for place, level, text, keywords in calls():
        id, _, rest = text.partition(" ")  # spark logs by the library: "id field=%s"
        each = found[id]
        each.places.append(place)
        each.levels.add(level)
        each.fields |= {keyword.arg.rstrip("_") for keyword in keywords if keyword.arg} - WITHOUT
        each.fields |= set(re.findall(r"(\w+)=%", rest))
        each.open |= any(keyword.arg is None for keyword in keywords)
    return found


def test_every_logged_event_is_in_the_catalogue_with_its_level_and_fields() -> None:
    wrong = []
    for id, each in logged().items():
        entry = events.CATALOGUE.get(id)
        if entry is None:
            wrong.append(f"{each.places}: {id!r} is not in enmasse/logs/events.py")
            continue
        if each.levels != {entry.level}:
            wrong.append(f"{each.places}: {id} is logged as {sorted(each.levels)}, the catalogue has {entry.level}")
        if unknown := each.fields - set(entry.fields.split()):
            wrong.append(f"{each.places}: {id} has fields that the catalogue has not: {sorted(unknown)}")
        if not each.open and (unused := set(entry.fields.split()) - each.fields):
            wrong.append(f"{each.places}: no call of {id} has the fields {sorted(unused)}")
    assert not wrong, "\n".join(wrong)


def test_every_event_of_the_catalogue_is_logged() -> None:
    assert sorted(events.CATALOGUE.keys() - logged().keys()) == []


def test_ids_are_dotted_unique_sorted_and_in_a_known_area() -> None:
    ids = [event.id for event in events.EVENTS]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[a-z-]+(\.[a-z-]+){1,2}", id) for id in ids)
    assert {id.split(".")[0] for id in ids} == events.AREAS.keys()
    assert all(event.meaning.endswith(".") and event.action.endswith(".") for event in events.EVENTS)


NAMES = {
    "address", "addresses", "client", "entry", "filter", "filters", "id", "key", "keys", "link", "name", "queue",
    "queues", "target", "to", "topic", "user", "who", "waiting_for",
}  # fmt: skip
"""Fields that may have names of what tenants have."""
OF_NO_TENANT = {
    "audit.peer.refused": "processes and operators",
    "audit.request.refused": "callers that have proved nothing",
    "audit.router.ordered": "entities of a router, by an operator",
    "broker.job.failed": "an error in EnMasse",
    "broker.reply.dropped": "replies of management",
    "configserv.configuration.loaded": "numbers",
    "configserv.force.ordered": "numbers; audit.messages.forced has the names",
    "configserv.report.rejected": "a controller",
    "configserv.role.changed": "controllers",
    "configserv.status.conflicted": "a ConfigMap",
    "console.request.failed": "an error in EnMasse",
    "control.report.refused": "a controller",
    "controller.object.kept": "an object of a broker",
    "identity.peer.refused": "processes and operators",
    "reconcile.changes.refused": "numbers, of a controller",
    "subserv.request.failed": "a node of a service",
    "subserv.unknown-queues.found": "a broker, of all tenants",
    "suite.start.delayed": "a suite, of all tenants",
}


def test_events_that_name_what_a_tenant_has_state_its_space() -> None:
    without = {
        event.id for event in events.EVENTS if NAMES & set(event.fields.split()) and "space" not in event.fields.split()
    }
    assert without == OF_NO_TENANT.keys()


def test_the_page_in_docs_is_made_from_the_catalogue() -> None:
    text = (ROOT / "docs" / "events.md").read_text()
    assert text == events.page(), "run: make event-docs"
