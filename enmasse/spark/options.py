"""The options of source and sink: which there are, and what is wrong with those given.

Spark passes options in lower case. It adds `checkpointLocation` and `queryName` to the sink's and `path` if load() or
start() has an argument. Names that begin with `__` are its own too.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from enmasse.model import values
from enmasse.spark.errors import QueryError

OFFSET = os.environ.get("ENMASSE_PORT_OFFSET", "")
DEFAULT_URL = f"amqp://127.0.0.1:{5672 + (int(OFFSET) if OFFSET.isdecimal() else 0)}"
"""The suite that other commands speak to."""
MOST_CREDIT = (1 << 31) - 1
"""AMQP's link-credit is an unsigned 32-bit number that is compared as a serial number."""
LOGIN = ("user", "passwordFile", "space", "caFile", "certFile", "keyFile")
"""Options for the user, its address space and the files of a login: see enmasse.spark.server_options."""
KNOWN = {
    "source": (
        "url",
        *LOGIN,
        "address",
        "spool",
        "subscription",
        "container",
        "receivers",
        "credit",
        "spoolLimit",
        "spoolDelay",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "minRowsPerTrigger",
        "maxTriggerDelay",
        "startingOffsets",
        "bodyFormat",
        "schema",
        "flightHost",
        "flightPort",
        "metricsPort",
    ),
    "reader": ("url", *LOGIN, "address", "selector"),
    "sink": ("url", *LOGIN, "address", "sinkId", "writeId", "duplicateId", "onReject", "deadLetterAddress"),
}
KNOWN["table"] = (*KNOWN["reader"], *KNOWN["sink"][len(LOGIN) + 2 :])
"""A table is read and written with the same options."""
PARSE = "parse the column text with from_json"
"""Advice for a read, which has no option for bodies."""
OF_KAFKA = {
    "kafka.bootstrap.servers": "url",
    "subscribe": "address",
    "subscribepattern": "address",
    "topic": "address",
    "kafka.group.id": "subscription",
    "groupidprefix": "subscription",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
    "kafka.sasl.jaas.config": "passwordFile",
    "kafka.ssl.truststore.location": "caFile",
    "kafka.ssl.keystore.location": "certFile",
}
"""Option of Spark's source and sink for Kafka → the one that stands in its place. docs/spark.md has them all."""
OF_SPARK = {"sink": frozenset({"checkpointlocation", "queryname"})}


class OptionError(QueryError, ValueError):
    """An option is missing, unknown, or has a value that cannot be used."""


def checked(given: Mapping[str, Any], end: str) -> dict[str, str]:
    """Return the options of `end` (a key of KNOWN) by their names in lower case.

    Raises OptionError for options that this end does not have, naming the ones that were probably meant.
    """
    options = {str(name).lower(): str(value) for name, value in given.items()}
    if end == "table" and "provider" in options:
        raise OptionError(
            "amqp table: Spark does not give a Python source the OPTIONS of CREATE TABLE when the table is read or "
            "written. Write CREATE TEMPORARY VIEW … USING amqp OPTIONS (…), or call enmasse.spark.register_addresses"
        )
    known = {*lower(KNOWN[end]), *OF_SPARK.get(end, ())}
    unknown = [name for name in options if name not in known and not name.startswith("__")]
    if unknown:
        hints: dict[str, list[str]] = {}
        for name in unknown:
            hints.setdefault(meant(name, end), []).append(f'"{name}"')
        faults = [f"there is no option {', '.join(names)}{hint}" for hint, names in hints.items()]
        raise OptionError(
            f"amqp {end}: " + " And ".join(fault if fault.endswith("?") else f"{fault}." for fault in faults)
        )
    return options


def lower(names: tuple[str, ...]) -> dict[str, str]:
    """Return the names by their form in lower case."""
    return {name.lower(): name for name in names}


def meant(name: str, end: str) -> str:
    """Return the rest of the sentence about an unknown option: what to write instead."""
    if name == "path":
        call = {"source": "load", "table": "load"}.get(end, "start")
        return f'; write .option("address", …) and .{call}() without a path'
    if end in ("reader", "table") and name in ("bodyformat", "schema"):
        return f": browsing has no {lower(KNOWN['source'])[name]}; {PARSE}"
    if OF_KAFKA.get(name) in KNOWN[end]:
        return f'; did you mean "{OF_KAFKA[name]}"?'
    near = difflib.get_close_matches(name, lower(KNOWN[end]), 1)
    if near:
        return f'; did you mean "{lower(KNOWN[end])[near[0]]}"?'
    known = ", ".join(sorted(KNOWN[end], key=str.lower))
    for other in ("source", "sink", "reader"):
        if name in lower(KNOWN[other]) or name in OF_SPARK.get(other, ()):
            return f", it belongs to the {other}; the {end} knows {known}"
    return f"; it knows {known}"


def required(options: Mapping[str, str], name: str, end: str, instead: str = "") -> str:
    """Return the value of an option. Raises OptionError if it is missing or empty; `instead`: what else would do."""
    value = options.get(name.lower(), "")
    if not value:
        raise OptionError(f'amqp {end}: the option "{name}" is missing: .option("{name}", …){instead}')
    return value


def address_of(options: Mapping[str, str], end: str, name: str = "address", instead: str = "") -> str:
    """Return an option that is an address. Raises OptionError if it is missing, or a URL."""
    address = required(options, name, end, instead)
    if wrong := address_fault(address):
        raise OptionError(f'amqp {end}: option "{name}": {wrong}')
    return address


def address_fault(address: str) -> str:
    """Return what is wrong if an address is written as a URL, whose host and port servers ignore; empty: nothing."""
    if not re.match("amqps?://", address, re.IGNORECASE):
        return ""
    return f'{shown(address)} is a URL, whose host and port say nothing here: write the name alone, the server in "url"'


def folder_fault(folder: str) -> str:
    """Return what is wrong if the name of a local folder is a URL; empty: nothing."""
    found = re.match(r"([a-z][a-z0-9+.-]*):/", folder, re.IGNORECASE)
    if found is None:
        return ""
    return f"{folder!r} is a URL: write the path of a folder on the driver's machine, without {found[1]}:"


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], end: str) -> str:
    """Return the value of an option that has one of these; the first is the default. Raises OptionError."""
    value = options.get(name.lower(), choices[0])
    if value.lower() not in choices:
        raise OptionError(f'amqp {end}: option "{name}" must be {" or ".join(choices)}, not {value!r}')
    return value.lower()


def number(options: Mapping[str, str], name: str, default: int, most: int = (1 << 63) - 1) -> int:
    """Return the value of a source's option that is a number from 1 to `most`. Raises OptionError for anything else."""
    text = options.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
        raise OptionError(f'amqp source: option "{name}" must be a positive number of at most {most}, not {text!r}')
    return int(text)


def size(options: Mapping[str, str], name: str, default: int) -> int:
    """Return a source's option that is a number of bytes, in units too (`512Mi`, `1GB`). Raises OptionError."""
    text = options.get(name.lower(), str(default))
    try:
        return values.size(re.sub("(?<=[A-Za-z])B$", "", text))
    except values.Wrong:
        raise OptionError(
            f'amqp source: option "{name}" must be a positive number of bytes, also as 512Mi or 1GB, not {text[:40]!r}'
        ) from None


def url_of(options: Mapping[str, str], end: str) -> str:
    """Return the option `url`. Raises OptionError if it is not an AMQP URL; the text does not show its password."""
    url = options.get("url", DEFAULT_URL)
    form = (
        "write amqp://host:port or amqps://host:port, with user:password@ before the host if the server asks for a user"
    )
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("amqp", "amqps") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, a bracket without its other
        good = False
    if not good:
        raise OptionError(f'amqp {end}: option "url" is no AMQP URL: {shown(url)!r}; {form}')
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise OptionError(
            f'amqp {end}: option "url": {shown(url)} has more than host and port: write the address into the option '
            '"address"'
        )
    return url


def shown(url: str) -> str:
    """Return a URL as it may be shown: with the user, without the password."""
    scheme, mark, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    if not mark:
        return url.rpartition("@")[2]
    return f"{scheme}://{login.partition(':')[0]}{at}{host}"
