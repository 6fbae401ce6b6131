"""Checks an edit against the model before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

if TYPE_CHECKING:
    from enmasse.model.flavors import Flavor
    from enmasse.model.jsonfile import Problem


def type_of(entry: Any) -> str:
    """Return the type that an entry of addresses.json has, in either notation; empty if it has none."""
    if not isinstance(entry, dict):
        return ""
    if isinstance(entry.get("type"), str):
        return str(entry["type"])
    kinds = {(True, False): "queue", (True, True): "topic", (False, False): "anycast", (False, True): "multicast"}
    return kinds.get((entry.get("store_and_forward"), entry.get("multicast")), "")  # type: ignore[arg-type]  # a pair of any values may be looked up


def in_memory(folder: Path) -> set[str]:
    """Return the flavors of flavors.json that keep messages in memory; none if the file cannot be used."""
    from enmasse.files import read_file
    from enmasse.model.flavors import parse_flavors
    from enmasse.model.jsonfile import Unparsable, parse

    try:
        flavors, _ = parse_flavors(parse("flavors.json", read_file(folder / "flavors.json")))
    except (OSError, Unparsable):
        return set()
    return {name for name, flavor in flavors.items() if flavor.in_memory}


def new_problems(folder: Path, before: str, after: str) -> list[str]:
    """Return one line for each thing wrong with `after` as content of addresses.json that was not wrong with `before`.

    Raises Unparsable if one of the files does not parse, OSError if flavors.json cannot be read.
    """
    from enmasse.files import read_file
    from enmasse.model.flavors import parse_flavors
    from enmasse.model.jsonfile import parse

    path = folder / "flavors.json"
    flavors, _ = parse_flavors(parse(str(path), read_file(path)))
    known = _problems(before, flavors)
    return [str(problem) for problem in _problems(after, flavors) if problem not in known]


def _problems(text: str, flavors: dict[str, Flavor]) -> list[Problem]:
    """Without their lines: those are of no file that is there."""
    from enmasse.model.addresses import parse_addresses
    from enmasse.model.jsonfile import parse

    _, problems = parse_addresses(parse("addresses.json", text.encode()), flavors)
    return [replace(problem, line=None) for problem in problems]
