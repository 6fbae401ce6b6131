"""User and password of the commands that send and receive: from the URL, or from the environment."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

import click

from enmasse.cli.common import COULD_NOT_START, end
from enmasse.cli.server import Server

USER, PASSWORD_FILE = "ENMASSE_USER", "ENMASSE_PASSWORD_FILE"
HOW_TO_LOG_IN = f"Set {USER} and {PASSWORD_FILE}, or write user:password@ in the URL"
MAX_PASSWORD_FILE = 65536

S = TypeVar("S", bound=Server)


def logged_in(server: S) -> S:
    """Return the server with user and password: those of its URL, otherwise those of the environment.

    Ends the command if the password is missing or cannot be read.
    """
    user, password = server.user or os.environ.get(USER) or None, server.password
    if user is None:
        return server
    if password is None:
        password = _from_file(user)
    if "\0" in user + password:
        end("user.password.unsuitable", "the password cannot be used: it holds a NUL", COULD_NOT_START)
    return replace(server, user=user, password=password)


def _from_file(user: str) -> str:
    file = os.environ.get(PASSWORD_FILE)
    if not file:
        text = f"no password of user {user!r}: set {PASSWORD_FILE}, or write user:password@ in the URL"
        end("user.password.missing", text, COULD_NOT_START)
    try:
        if file == "-":
            raise ValueError("'-' is not possible here: stdin has messages")
        return first_line(file)
    except ValueError as error:
        end("user.password.not-readable", f"{PASSWORD_FILE}: {error}", COULD_NOT_START)


def first_line(file: str) -> str:
    """Return the first line of a file, `-` for stdin. Raises ValueError, without anything that was read."""
    try:
        with click.open_file(file, "rb") as stream:
            content = stream.read(MAX_PASSWORD_FILE)
        return str(content.decode().split("\n", 1)[0].removesuffix("\r"))
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not UTF-8") from None
