"""The selector that a server is given for filters of `read`, on columns that it can compare. PySpark 4.1 and later."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable

from pyspark.sql.datasource import (
    ColumnPath,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

LONGEST = 8000
"""Characters of a selector, at most."""
TEXTS = {"subject": "JMSType", "reply_to": "JMSReplyTo"}
"""Columns with texts that selectors compare (JMS 2.0, 3.8.1; docs/contracts.md). Ids are not among them: a column shows
a number as its text, and a selector tells them apart."""
SIGNS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}
HIGHEST = 9
"""Brokers keep no higher priority apart from this one."""


def selector_of(filters: Iterable[Filter]) -> str:
    """Return a selector that matches all messages whose rows satisfy the filters; empty if no filter can be used."""
    parts: list[str] = []
    for one in filters:
        part = _condition(one)
        if part and len(" AND ".join([*parts, part])) <= LONGEST:
            parts.append(part)
    return " AND ".join(parts)


def _condition(one: Filter) -> str:
    attribute: ColumnPath = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return ""
    name, value = attribute[0], getattr(one, "value", None)
    if name in TEXTS:
        if isinstance(one, EqualTo) and isinstance(value, str):
            return f"{TEXTS[name]} = {_quoted(value)}"
        if isinstance(one, In) and all(isinstance(each, str) for each in one.value):
            return f"{TEXTS[name]} IN ({', '.join(map(_quoted, one.value))})"
    elif name == "priority" and isinstance(value, int) and 0 <= value <= HIGHEST:
        if isinstance(one, EqualTo):
            return f"JMSPriority = {value}" if value < HIGHEST else f"JMSPriority >= {value}"
        if type(one) in SIGNS:
            sign = ">=" if isinstance(one, GreaterThan) and value == HIGHEST else SIGNS[type(one)]
            return f"JMSPriority {sign} {value}"
    elif name == "durable" and isinstance(one, EqualTo) and isinstance(value, bool):
        return f"JMSDeliveryMode = '{'' if value else 'NON_'}PERSISTENT'"
    elif name == "creation_time" and isinstance(value, dt.datetime) and value.tzinfo and type(one) in SIGNS:
        ms = value.timestamp() * 1000
        later = isinstance(one, (GreaterThan, GreaterThanOrEqual))
        # The next whole millisecond outside: a column compares microseconds.
        return f"JMSTimestamp >= {math.floor(ms) - 1}" if later else f"JMSTimestamp <= {math.ceil(ms) + 1}"
    return ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
