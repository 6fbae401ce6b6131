"""Listeners of one address space (`enmasse up --listen PROTOCOL=HOST:PORT@SPACE`) in the status of the suite."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `enmasse status` does without
    from enmasse.supervisor.plan.services import Options


def rows(options: Options, spaces: Collection[str] | None) -> list[dict[str, Any]]:
    """Return `listeners` of the status JSON. `spaces`: the address spaces that there are; None: not known yet."""
    return [
        {
            "protocol": each.protocol,
            "at": each.at,
            "space": each.space,
            "problem": "" if spaces is None or each.space in spaces else _problem(each.space),
        }
        for each in options.listeners()
        if each.space is not None
    ]


def problems(listeners: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each listener with a problem."""
    return [_sentence(each, each["problem"]) for each in listeners if each["problem"]]


def left_by(space: str, listeners: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each listener of an address space that is removed."""
    return [_sentence(each, _problem(space)) for each in listeners if each["space"] == space]


def _sentence(row: dict[str, Any], problem: str) -> str:
    return f"--listen {row['protocol']}={row['at']}@{row['space']}: {problem}"


def _problem(space: str) -> str:
    return (
        f"there is no address space {space!r}, so no client can log in there. Make it with `enmasse space add "
        f"{space}`, or remove the listener"
    )
