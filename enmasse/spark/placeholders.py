"""Placeholders in the texts of a command: `{device}` and `{value}` stand for those of a reading."""

from __future__ import annotations

import re
from typing import Final

from enmasse.text import did_you_mean

IN_ADDRESS: Final = ("device",)
IN_BODY: Final = ("device", "value")

_PLACEHOLDER = re.compile(r"\{\s*([^\W\d][\w.-]*)\s*(?:[:!][^\s{}\"]*)?\}")
"""A word in braces, maybe with a format as in Python. JSON has no such thing: its names are in quotes."""


def fault(text: str, known: tuple[str, ...]) -> str:
    """Return what is wrong with the placeholders of a text; empty: nothing. Others than the known ones would be sent
    as they stand."""
    for found in _PLACEHOLDER.finditer(text):
        name = found[1]
        if found[0] not in [f"{{{each}}}" for each in known]:
            there = " and ".join(f"{{{each}}}" for each in known) or "none"
            return f"{found[0]} is no placeholder, there is {there}.{did_you_mean(name, known)}"
    return ""
