"""Refusals of clients before they are served, whatever their protocol calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto

Ask = Callable[[bytes], Awaitable[bytes]]
"""Gives a client a challenge, and returns its response."""


class Refusal(Enum):
    """Why a client is not served."""

    CREDENTIALS = auto()
    """User name or password is wrong."""
    METHOD = auto()
    """There is no such way to log in."""
    NOT_ALLOWED = auto()
    BUSY = auto()
    """Too many clients log in."""
    AWAY = auto()
    """A service that has to answer first is not reached."""
    QUOTA = auto()
    """The user, or its address space, has as many connections as it may."""
    RATE = auto()
    """The user has connected too often."""


class ClientRefused(Exception):
    """A client is not served. `text`: why, for people; `noted`: why, for operators, if they may know more."""

    def __init__(self, refusal: Refusal, text: str = "", noted: str = "") -> None:
        super().__init__(text)
        self.refusal = refusal
        self.text = text
        self.noted = noted or text
