"""Checks an edit against the model before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from enmasse.model import address_types

if TYPE_CHECKING:
    from enmasse.model.addresses import Address
    from enmasse.model.flavors import Flavor
    from enmasse.model.jsonfile import Problem
    from enmasse.model.names import AddressName
    from enmasse.model.users import User

ADDRESSES, FLAVORS, USERS = "addresses.json", "flavors.json", "users.json"


def type_of(entry: Any) -> str:
    """Return the type that an entry of addresses.json has, in either notation; empty if it has none."""
    if not isinstance(entry, dict):
        return ""
    if isinstance(entry.get("type"), str):
        return str(entry["type"])
    return address_types.type_of(entry) or ""


def in_memory(folder: Path) -> set[str]:
    """Return the flavors of flavors.json that keep messages in memory; none if the file cannot be used."""
    from enmasse.model.jsonfile import Unparsable

    try:
        return {name for name, flavor in _flavors(folder).items() if flavor.in_memory}
    except (OSError, Unparsable):
        return set()


def addresses(folder: Path) -> dict[AddressName, Address]:
    """Return the valid addresses of addresses.json; none if the file cannot be used."""
    from enmasse.model.addresses import parse_addresses
    from enmasse.model.jsonfile import Unparsable, parse
    from enmasse.storage.files import read_file

    try:
        return parse_addresses(parse(ADDRESSES, read_file(folder / ADDRESSES)), _flavors(folder))[0]
    except (OSError, Unparsable):
        return {}


def _flavors(folder: Path) -> dict[str, Flavor]:
    from enmasse.model.flavors import parse_flavors
    from enmasse.model.jsonfile import parse
    from enmasse.storage.files import read_file

    return parse_flavors(parse(FLAVORS, read_file(folder / FLAVORS)))[0]


def new_problems(folder: Path, file: str, before: str, after: str) -> list[Problem]:
    """Return what is wrong, and was not wrong while `file` had the content `before`, once it has `after`: with
    addresses.json and flavors.json if it is one of them, otherwise with users.json.

    Raises Unparsable if a file does not parse, OSError if it cannot be read.
    """
    from enmasse.model.addresses import problems_of
    from enmasse.model.jsonfile import added, parse
    from enmasse.storage.files import read_file

    others = () if file == USERS else (FLAVORS, ADDRESSES)
    texts = {name: read_file(folder / name) for name in others if name != file}

    def problems(text: str) -> list[Problem]:
        if file == USERS:
            return users(text)[1]
        both = {**texts, file: text.encode()}
        return problems_of(parse(str(folder / FLAVORS), both[FLAVORS]), parse(ADDRESSES, both[ADDRESSES]))

    found = problems(after)
    new = added(found, problems(before) if found else ())
    return [replace(problem, line=None) for problem in new]  # lines are of no file that is there


def users(text: str) -> tuple[dict[str, User], list[Problem]]:
    """Return the valid users and groups of a users.json, and what is wrong. Raises Unparsable."""
    from enmasse.model.jsonfile import parse
    from enmasse.model.users import parse_users, unknown_groups

    document = parse(USERS, text.encode())
    good, problems = parse_users(document)
    return good, problems + unknown_groups(document, good)
