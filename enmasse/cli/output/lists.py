"""Lists: the options --match, --sort, --limit and --json of each command that prints one, and what they do."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from enmasse.cli.common import report
from enmasse.text_filter import text_filter

Row = dict[str, Any]


def since(time: Any) -> str:
    """Return how long ago a time was."""
    from enmasse.cli.output.tables import age

    return age(time or "")


class Column(NamedTuple):
    """A column of a list: its title, the field of a row (`rates.in`: one within `rates`) that --sort knows it by, and
    what makes the cell: of the value of the field, or with `of_row` of the row."""

    title: str
    field: str
    cell: Callable[[Any], Any] | None = None
    of_row: bool = False
    matched: bool = False
    """--match looks at it too; without one that has it, at the first column alone."""

    def value(self, row: Row) -> Any:
        """Return the value of the field, None if the row has none."""
        found: Any = row
        for name in self.field.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def sorts(self) -> bool:
        """Return whether --sort knows it by its title too: what people see is the value."""
        return self.cell is None

    def shown(self, row: Row) -> Any:
        """Return what the table has."""
        return self.value(row) if self.cell is None else self.cell(row if self.of_row else self.value(row))


Columns = tuple[Column, ...]


class _Field(click.ParamType[str]):
    """A field of one of the tables, or its title there, with - in front: descending."""

    name = "field"

    def __init__(self, tables: Sequence[Columns], former: dict[str, str]) -> None:
        self.known = list(dict.fromkeys(column.field for table in tables for column in table))
        self._words = {*self.known, *(column.title for table in tables for column in table if column.sorts)}
        self._former = former

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the present word."""
        word = value.removeprefix("-")
        text = value[: len(value) - len(word)] + self._former.get(word, word)
        if text.removeprefix("-") not in self._words:
            self.fail(f"unknown field {value!r}; the fields are {', '.join(self.known)}.", param, ctx)
        return str(text)


@dataclass(frozen=True, slots=True)
class WantedRows:
    """The rows that a list shows. `patterns`: texts with * and ?, of which one has to match; empty: everything."""

    patterns: tuple[str, ...] = ()
    order: str | None = None
    limit: int | None = None
    as_json: bool = False

    @property
    def looks_at_all(self) -> bool:
        """Return whether rows that are not shown have to be known too."""
        return bool(self.patterns or self.order)

    def also(self, patterns: tuple[str, ...]) -> WantedRows:
        """Return a listing with further patterns."""
        return WantedRows(self.patterns + patterns, self.order, self.limit, self.as_json)

    def show(
        self, key: str, rows: Sequence[Any], columns: Columns, none: str = "", unseen: int | None = 0
    ) -> list[Row]:
        """Print the rows that are wanted, as a table or as JSON: the rows at `items` and at `key`, the former word, and
        how many there are in all at `total`. Return those that were printed. `none`: the report if there is no row.
        `unseen`: how many more rows there are that were not fetched; None: their number is unknown."""
        found = [row if isinstance(row, dict) else _fields(row) for row in rows]
        chosen = self._ordered(self._matching(found, columns), columns)
        shown = chosen[: self.limit]
        if self.as_json:
            total = None if unseen is None else len(chosen) + unseen
            click.echo(json.dumps({"items": shown, key: shown, "total": total}))
        else:
            from enmasse.cli.output.tables import print_table

            cells = [[column.shown(row) for column in columns] for row in shown]
            print_table([column.title for column in columns], cells, none if not found else "nothing matches")
        self._report_left_off(len(chosen) - len(shown), len(found), unseen)
        return shown

    def _report_left_off(self, left: int, looked_at: int, unseen: int | None) -> None:
        if self.looks_at_all and unseen != 0:
            report(f"only the first {looked_at} of {'more' if unseen is None else looked_at + unseen} were looked at")
        if unseen is None and not self.looks_at_all:
            report("… and more; --limit shows more of them")
        elif left + (unseen or 0) > 0:
            report(f"… and {left + (unseen or 0)} more; --limit shows more of them")

    def _matching(self, rows: list[Row], columns: Columns) -> list[Row]:
        if not self.patterns:
            return rows
        try:
            takes = [text_filter(pattern) for pattern in self.patterns]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="PATTERN") from None
        looked_at = [column for column in columns if column.matched] or columns[:1]

        def matches(row: Row) -> bool:
            texts = [str(value) for column in looked_at if (value := column.value(row)) is not None]
            return any(take(text) for text in texts for take in takes)

        return [row for row in rows if matches(row)]

    def _ordered(self, rows: list[Row], columns: Columns) -> list[Row]:
        """Return the rows in the order that is wanted: those without a value last, whatever the direction."""
        if self.order is None:
            return rows
        name = self.order.removeprefix("-")
        named = [each for each in columns if each.field == name]
        column = next(iter(named or [each for each in columns if each.title == name and each.sorts]), None)
        if column is None:
            known = ", ".join(dict.fromkeys(each.field for each in columns))
            raise click.BadParameter(f"unknown field {name!r}; the fields here are {known}.", param_hint="--sort")
        with_value = [row for row in rows if column.value(row) not in (None, "", [])]
        without = [row for row in rows if column.value(row) in (None, "", [])]
        with_value.sort(key=lambda row: _key(column.value(row)), reverse=self.order.startswith("-"))
        return with_value + without


def _fields(row: Any) -> Row:
    import msgspec  # what prints rows of JSON does without

    found: Row = msgspec.to_builtins(row)
    return found


def _key(value: Any) -> tuple[bool, Any]:
    """Return what orders values of one field: numbers before texts; of a list how long it is."""
    if isinstance(value, list | dict):
        return False, len(value)
    return (False, value) if isinstance(value, int | float) else (True, str(value))


def list_options(
    *tables: Columns, default: int | None = None, former: dict[str, str] | None = None,
    former_limit: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Add --match, --sort, --limit and --json to a command; the function gets them as `wanted`.

    `tables`: the columns of what it may print; `default`: how many are shown
    without --limit; `former`: former words of --sort, without -; `former_limit`: former names of --limit."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(
            *args: Any, match: tuple[str, ...], sort: str | None, limit: int | None, as_json: bool, **others: Any
        ) -> Any:
            return function(*args, wanted=WantedRows(match, sort, limit, as_json), **others)

        field = _Field(tables, former or {})
        looked_at = dict.fromkeys(c.title for table in tables for c in (
            [each for each in table if each.matched] or table[:1]))  # fmt: skip
        for option in (
            click.option("--json", "as_json", is_flag=True,
                         help='One JSON object on stdout: {"items": [...], "total": N}.'),
            click.option("--limit", *former_limit, type=click.IntRange(1), default=default, show_default=True,
                         metavar="N", help="Show at most N."),
            click.option("--sort", type=field, metavar="FIELD",
                         help=f"Order by FIELD, -FIELD descending: {', '.join(field.known)}."),
            click.option("--match", multiple=True, metavar="PATTERN",
                         help=f"Only those whose {' or '.join(looked_at)} matches PATTERN (with * and ?)."),
        ):  # fmt: skip
            wrapped = option(wrapped)
        return wrapped

    return decorated
