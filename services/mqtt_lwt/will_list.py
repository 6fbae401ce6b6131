"""The list of wills for operators: what a receiver from `$mqtt/wills` gets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import msgspec

from enmasse.control.jsonmessage import encode
from enmasse.control.link import ControlSender
from enmasse.model.names import LocalName, full_name
from enmasse.model.sessions import WillRow, Wills
from services.mqtt_lwt.wills import State, Will, WillBook

ROWS = 200
"""Wills in a message."""


def offer(link: ControlSender, book: WillBook, now: float) -> None:
    """Send the wills that there are now as credit comes, then detach. `now`: by the book's clock."""
    waiting = messages(list(book), time.time() - now)
    link.on_credit = partial(_send, link, waiting)
    link.accept()
    _send(link, waiting)


def messages(wills: list[Will], wall: float) -> Iterator[bytes]:
    """Yield messages with these wills, at least one. `wall`: seconds since 1970 at time 0 of the book's clock."""
    for start in range(0, max(1, len(wills)), ROWS):
        rows = [_row(will, wall) for will in wills[start : start + ROWS]]
        yield encode("enmasse.wills", msgspec.json.encode(Wills(wills=rows)))


def _send(link: ControlSender, waiting: Iterator[bytes]) -> None:
    while link.credit > 0:
        message = next(waiting, None)
        if message is None:
            link.close()
            return
        link.send(message, settled=True)


def _row(will: Will, wall: float) -> WillRow:
    kind, _, name = will.key.partition(":")
    due = None if will.at is None or will.state is not State.DELAYED else wall + will.at
    return WillRow(
        id=will.id, client=name, mqtt=kind == "client", topic=full_name(will.author.space, LocalName(will.to)),
        qos=will.qos, retain=will.retain,
        delay=int(will.delay), size=will.size,
        state="connected" if will.state is State.HELD else "waiting",
        due=None if due is None else datetime.fromtimestamp(due, UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
