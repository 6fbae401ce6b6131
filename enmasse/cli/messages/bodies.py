"""Bodies of `send` and `publish`: from the command line, numbered, or the lines of stdin."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from enmasse.cli.common import report

READ_AHEAD = 16
"""Pieces of 64 KiB read from stdin and not sent."""


CATCH_UP = 1.0
"""Seconds for which `paced` makes up after its bodies were late."""


async def paced(bodies: AsyncIterator[Any], rate: float | None) -> AsyncIterator[Any]:
    """Yield the bodies, `rate` a second at most; None: without a limit."""
    if rate is None:
        async for body in bodies:
            yield body
        return
    clock = asyncio.get_running_loop().time
    due = clock()
    async for body in bodies:
        await asyncio.sleep(due - clock())
        yield body
        due = max(due + 1 / rate, clock() - CATCH_UP)


async def bodies(body: str | bytes | None, count: int | None) -> AsyncIterator[Any]:
    """Yield `body` `count` times (default: once); without `body`, {"sequence": 1} to `count`; without both, the lines
    of stdin as they arrive."""
    if body is not None:
        for _ in range(1 if count is None else count):
            yield body
    elif count is not None:
        for number in range(1, count + 1):
            yield {"sequence": number}
    else:
        hint("a message a line")
        async for line in _lines():
            yield line


def content(file: str) -> bytes:
    """Return the content of a file, `-` for stdin. Ends the command (wrong usage) if it cannot be read."""
    import click

    if file == "-":
        hint("the body")
    try:
        with click.open_file(file, "rb") as stream:
            return bytes(stream.read())
    except OSError as error:
        raise click.BadParameter(f"{file}: cannot be read: {error.strerror}", param_hint="--file") from None


def hint(what: str) -> None:
    """Tell the user of a terminal what is read from it."""
    if sys.stdin is not None and sys.stdin.isatty():
        report(f"Type {what}. Ctrl-D at the beginning of a line ends the input, Ctrl-C the command.")


async def _lines() -> AsyncIterator[str | bytes]:
    """Lines of stdin as they arrive, without line ends; bytes if they are not UTF-8."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(READ_AHEAD)

    def read() -> None:
        while True:
            room.acquire()
            piece = os.read(0, 65536)
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            if not piece:
                return

    threading.Thread(target=read, daemon=True).start()  # a thread that waits for input must not hold up the end
    rest = b""
    while piece := await pieces.get():
        room.release()
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _text(line)
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str | bytes:
    line = line.removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line
