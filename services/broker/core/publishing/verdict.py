"""Verdicts on a message that was sent to the broker."""

from __future__ import annotations

from enum import IntEnum


class Verdict(IntEnum):
    """ACCEPT: settle now. WAIT: `Waiting.stored` or `not_stored` will be called. RELEASE: no queue can take it now."""

    ACCEPT = 0
    WAIT = 1
    RELEASE = 2


ACCEPT, WAIT, RELEASE = Verdict.ACCEPT, Verdict.WAIT, Verdict.RELEASE
