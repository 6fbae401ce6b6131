"""User and password of commands: from the URL, else from the environment, else of the context."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any, TypeVar

import click

from enmasse.cli.common import COULD_NOT_START, TlsFiles, end, readable_by_others, report
from enmasse.cli.contexts.contexts import Context, url_of
from enmasse.cli.contexts.target_server import TargetServer, parse
from enmasse.cli.same_suite import context_of_option

USER, PASSWORD_FILE = "ENMASSE_USER", "ENMASSE_PASSWORD_FILE"
HOW_TO_LOG_IN = f"Set {USER} and {PASSWORD_FILE}, or write user:password@ in the URL"
MAX_PASSWORD_FILE = 65536

S = TypeVar("S", bound=TargetServer)


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
    if reason := readable_by_others(file):  # no refusal: secrets that Kubernetes mounts have such permissions
        report(f"warning: {reason}")
    try:
        with click.open_file(file, "rb") as stream:
            content = stream.read(MAX_PASSWORD_FILE)
        return str(content.decode().split("\n", 1)[0].removesuffix("\r"))
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not UTF-8") from None


def login_of(context: Context) -> tuple[str | None, str | None]:
    """Return user and password of a context: its own if --context names it, otherwise those of the environment before
    its own; the password is asked for on the terminal if no file has it. Ends the command without one."""
    running = click.get_current_context()
    meta = running.find_root().meta
    key = "enmasse.cli.contexts.user_password"
    if key not in meta:
        has_login = context.user is not None or context.password_file is not None
        is_meant = has_login and context_of_option(running) is not None
        user = context.user if is_meant else os.environ.get(USER) or context.user
        meta[key] = user, _password(context, user)
    found: tuple[str | None, str | None] = meta[key]
    return found


def password_of_file(context: Context, user: str | None) -> str | None:
    """Return the password or token that the file of ENMASSE_PASSWORD_FILE, or that of a context, has now; None without
    a file. Each file is for its own user only. Raises ValueError."""
    file = os.environ.get(PASSWORD_FILE) if user is not None and os.environ.get(USER) in (None, "", user) else None
    if not file and user == context.user:
        file = context.password_file
    if not file:
        return None
    if reason := readable_by_others(file):
        raise ValueError(reason)
    return first_line(file)


def _password(context: Context, user: str | None) -> str | None:
    try:
        if (found := password_of_file(context, user)) is not None:
            return found
    except ValueError as error:
        end("user.password.not-readable", f"{context}: {error}", COULD_NOT_START)
    if user is None:
        return None
    if sys.stdin is None or not sys.stdin.isatty():
        how = f"set {PASSWORD_FILE}"
        if user == context.user:
            how += ", or add the context with --password-file"
        else:
            how += f", or unset {USER}, which wins over the user of the context"
        end("user.password.missing", f"{context}: no password of user {user!r}: {how}", COULD_NOT_START)
    return str(click.prompt(f"Password of {user} ({context.name})", hide_input=True, err=True))


def of_context(context: Context, kind: str, ports: dict[str, int]) -> dict[str, Any]:
    """Return the fields of a `TargetServer` for a listener of a context, `amqp` or `mqtt`, with user and password. Ends
    the command if the context has no such listener."""
    fields, _ = parse(url_of(context, kind), ports)
    user, password = login_of(context)
    return {**fields, "user": user, "password": password, "files": TlsFiles(context.ca)}
