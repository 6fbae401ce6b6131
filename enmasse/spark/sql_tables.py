"""Addresses as tables of Spark SQL: `select` browses, `insert` sends."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from enmasse.model.address_types import TYPES, type_of
from enmasse.spark.errors import QueryError
from enmasse.spark.options import DEFAULT_URL, checked


class TableError(QueryError):
    """Addresses cannot be made tables: the text gives the reason and what to do."""


def register_addresses(
    spark: SparkSession, url: str = DEFAULT_URL, addresses: Iterable[str] | str | Path | None = None, **options: str
) -> dict[str, str]:
    """Make a temporary view of each queue and return their names, view → address.

    `addresses`: names, or the path of an `addresses.json` of which the queues are taken; by default that of the quick
    start. A view has the name of its address, with `_` for characters that need quoting; with the option `space` it
    begins with that space and `_`. `options` are further ones of reader and sink. Raises OptionError, TableError.
    """
    checked({"url": url, **options}, "table")
    if addresses is None:
        addresses = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "enmasse" / "addresses.json"
    names = queues_of(Path(addresses)) if isinstance(addresses, str | Path) else list(addresses)
    views: dict[str, str] = {}
    space = options.get("space", "")
    for address in names:
        view = re.sub(r"\W", "_", f"{space}_{address}" if space else address, flags=re.ASCII)
        if view in views:
            raise TableError(f"amqp table: {views[view]!r} and {address!r} would both be {view}: register one of them")
        views[view] = address
    for view, address in views.items():
        given = ", ".join(
            f"{name} {_literal(value)}" for name, value in {"url": url, "address": address, **options}.items()
        )
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{view}` USING amqp OPTIONS ({given})")
    return views


def queues_of(file: Path) -> list[str]:
    """Return the names of the queues in an `addresses.json`. Raises TableError if it cannot be read."""
    try:
        entries = json.loads(file.read_bytes())
        return [name for name, entry in entries.items() if _is_queue(entry)]
    except (OSError, ValueError, AttributeError) as error:
        raise TableError(
            f"amqp table: {file} cannot be read as addresses.json ({error}). Name another file, or a list of addresses"
        ) from None


def _is_queue(entry: dict[str, object]) -> bool:
    type = type_of({"multicast": False, **entry})
    return type is not None and TYPES[type].entity == "queue"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
