"""Status of the suite for `enmasse status`: the supervisor's processes merged with configserv's status feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from enmasse.model.names import LocalName, full_name
from enmasse.model.tenants.spaces import split_file
from enmasse.process.process_bounds import ProcessBounds
from enmasse.process.service_table import CONTROL, DOORS

Status = dict[str, Any]


def merge(
    components: list[dict[str, Any]],
    feed: Mapping[str, Any] | None,
    ca: Path | None = None,
    insecure: Iterable[str] = (),
    certificates: Iterable[str] = (),
    listeners: Iterable[dict[str, Any]] = (),
) -> Status:
    """Return the status JSON. `feed`: the newest body of the status feed, None before the first. `ca`: file of the CA
    that the suite has made. `insecure`: words of `error_lines.INSECURE`. `certificates`: sentences about what
    is wrong with them. `listeners`: those of one address space."""
    return {
        **brief(components, feed),
        "components": components,
        "addresses": list(feed.get("addresses", ())) if feed else [],
        "errors": list(feed.get("errors", ())) if feed else [],
        "ca": None if ca is None else str(ca),
        "insecure": list(insecure),
        "certificates": list(certificates),
        "listeners": list(listeners),
    }


def brief(components: list[dict[str, Any]], feed: Mapping[str, Any] | None) -> Status:
    """Return `schema`, `ready`, `settled`, `degraded` and `config` of the status JSON. `feed` may have `unready`: its
    addresses that are not.

    ready = the feed, every component that carries messages, those that leave and redundant ones aside, and every
    address is ready, but for removed ones that wait for their messages. settled = ready, without components that are
    not, `degraded`, and without such addresses. `errors` do not matter: a broken edit keeps the last good version, and
    an entry that never had one is not an address that could be ready.
    """
    wrong = {_full_name(error) for error in feed.get("errors", ())} if feed else set()
    away = [c for c in components if not (c["ready"] or c["leaving"])]
    degraded = [
        f"{c['name']}: {c.get('detail') or 'not ready'}" for c in away if c["redundant"] or c["kind"] in CONTROL
    ]
    waiting = [
        a
        for a in (feed.get("unready", feed.get("addresses", ())) if feed else ())
        if not (a.get("ready") or (a.get("phase") == "Failed" and a.get("name") in wrong))
    ]
    ready = feed is not None and len(degraded) == len(away) and all(a.get("phase") == "Terminating" for a in waiting)
    return {
        "schema": 1,
        "ready": ready,
        "settled": ready and not degraded and not waiting,
        "degraded": degraded,
        "config": dict(feed.get("config", {})) if feed else {},
    }


def _full_name(error: Mapping[str, Any]) -> str:
    """Return the name inside of the entry that an error is about, if it is an address."""
    space = split_file(str(error.get("file"))).space
    return full_name(space, LocalName(str(error.get("entry"))))


def started(components: list[dict[str, Any]], unready: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if the start has finished: everything is ready except problems that waiting cannot solve. `unready`:
    the addresses that are not ready."""
    return (
        bool(components)
        and all(c["ready"] or c["leaving"] for c in components)
        and all(a.get("phase") in ("Failed", "Terminating") for a in unready)
    )


def scale(components: list[dict[str, Any]], service: str, bounds: ProcessBounds) -> tuple[bool, str]:
    """Return whether `service` can have this number of processes now, and why not: (accepted, sentence)."""
    kinds: dict[str, int] = {}
    for component in (each for each in components if not each["leaving"]):
        kinds[component["kind"]] = kinds.get(component["kind"], 0) + 1
    kinds.setdefault("broker", 0)
    if service not in kinds:
        if (part := next((part for part, door in DOORS.items() if door.kind == service), None)) is not None:
            return False, f"the suite has none of these gateways: start it with `enmasse up --with {part}`"
        return False, f"there is no service {service!r}; running are {', '.join(sorted(kinds))}"
    current = kinds[service]
    if service == "broker":
        return False, (
            "brokers are counted by their flavor: change BROKERS in the templateParameters of flavors.json "
            f"(now {current} of all flavors together)"
        )
    if bounds == (current, current):
        return True, f"{service} runs {current} process{'' if current == 1 else 'es'} already"
    if bounds.least == 0:
        return False, f"the suite cannot run without {service}"
    return False, f"{service} is a controller: exactly one of it runs, and it is restarted when it dies"
