"""The server and the user of a source or a sink, from its options: url, user, passwordFile, space, caFile, certFile,
keyFile.

Files are read when a connection is made, on the machine that makes it, so that a password or a certificate can be
replaced while a query runs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import CONNECTION_FORCED, NOT_IMPLEMENTED, AmqpError
from enmasse.model.names import space_error
from enmasse.spark.errors import QueryError
from enmasse.spark.options import LOGIN, OptionError, shown, url_of

NO_AMQP = (CONNECTION_FORCED, NOT_IMPLEMENTED)
"""A server with TLS closes a connection without, or sends an alert of TLS."""
PROBE_SECONDS = 5.0
"""Time for a server to begin with TLS."""


class FileError(QueryError):
    """A file that an option names cannot be used: the text names the option, the file and the reason.

    `wrong` is the text without the end ("amqp source: ") at its beginning.
    """

    def __init__(self, end: str, wrong: str) -> None:
        super().__init__(f"amqp {end}: {wrong}")
        self.wrong = wrong


@dataclass(frozen=True)
class ServerLogin:
    """Server and user of a connection. `end` is "source" or "sink", for the text of errors.

    Plain strings, so that the settings can be given to another process (`dataclasses.asdict`).
    """

    end: str
    url: str = field(repr=False)
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    space: str = ""
    """The address space; empty: that which the name of the user says."""

    @classmethod
    def of(cls, end: str, url: str, given: Mapping[str, str]) -> ServerLogin:
        """Return the login of a URL and the options of LOGIN."""
        user, password_file, space, ca_file, cert_file, key_file = (given[name] for name in LOGIN)
        return cls(end, url, user, password_file, ca_file, cert_file, key_file, space)

    @property
    def server(self) -> str:
        """Return the URL as it may be shown: without a password."""
        return shown(self.url)

    def client(self, **settings: Any) -> Client:
        """Return a client that is not open yet; `settings` are further ones of `enmasse.aio.client.connect`.

        Raises FileError.
        """
        return connect(
            self.url,
            user=self.user or None,
            space=self.space or None,
            password=self._password() if self.password_file else None,
            ssl=self._tls() if self.ca_file or self.cert_file else None,
            external=bool(self.cert_file) and not self.user and urlsplit(self.url).username is None,
            **settings,
        )

    async def port_fault(self, error: BaseException) -> str:
        """Return what is wrong if the URL is one without TLS and a connection failed because its port has TLS, which
        an attempt shows; empty: something else. No certificate is judged, nothing is sent."""
        parts = urlsplit(self.url)
        if parts.scheme != "amqp" or not isinstance(error, AmqpError) or error.condition not in NO_AMQP:
            return ""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, made = await asyncio.open_connection(parts.hostname, parts.port or 5672, ssl=context)
        except (OSError, TimeoutError):
            return ""
        made.transport.abort()
        return f'option "url": {self.server} is a port of AMQPS: write amqps://'

    def file_faults(self) -> Iterator[str]:
        """Yield what is wrong with each file that cannot be used, before a connection needs it."""
        for file, read, login in (
            (self.password_file, ServerLogin._password, self),
            (self.ca_file, ServerLogin._tls, replace(self, cert_file="")),
            (self.cert_file, ServerLogin._tls, replace(self, ca_file="")),
        ):
            if file:
                try:
                    read(login)
                except FileError as error:
                    yield error.wrong

    def _password(self) -> str:
        try:
            return Path(self.password_file).read_text().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong("passwordFile", self.password_file, error) from None

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise self._wrong("caFile", self.ca_file, error) from None
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file or None, str)  # never asks for a password
            except (OSError, ValueError) as error:
                raise self._wrong("certFile", self.cert_file, error) from None
        return context

    def _wrong(self, option: str, file: str, error: Exception) -> FileError:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        form = {
            "passwordFile": "Write the password into it, as UTF-8",
            "caFile": "It must have the certificates of authorities in PEM",
            "certFile": f"{self.key_file or self.cert_file} must have its key; both in PEM, the key without a password",
        }
        return FileError(self.end, f'option "{option}": {file} cannot be used ({reason}). {form[option]}')


def login_of(options: Mapping[str, str], end: str) -> ServerLogin:
    """Return the login of the options of `end` ("source" or "sink"), by their names in lower case.

    Raises OptionError for options that contradict each other, with all that is wrong.
    """
    url = url_of(options, end)
    given = {name: options.get(name.lower(), "") for name in LOGIN}
    if faults := [*login_faults(url, given)]:
        raise OptionError(f"amqp {end}: " + "; ".join(faults))
    return ServerLogin.of(end, url, given)


def login_faults(url: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with options of LOGIN for a URL that is one."""
    parts = urlsplit(url)
    if given["user"] and parts.username is not None:
        yield f'the option "user" and the user in {shown(url)} contradict each other: leave one of them out'
    if bool(given["user"]) != bool(given["passwordFile"]):
        there, missing = ("user", "passwordFile") if given["user"] else ("passwordFile", "user")
        yield f'the option "{there}" needs the option "{missing}"'
    if given["keyFile"] and not given["certFile"]:
        yield 'the option "keyFile" needs the option "certFile"'
    for name in ("caFile", "certFile"):
        if given[name] and parts.scheme != "amqps":
            yield f'the option "{name}" needs TLS: write amqps://… instead of {shown(url)}'
    if given["space"]:
        if fault := space_error(given["space"]):
            yield f'option "space": {given["space"]!r}: {fault}'
        elif not given["user"] and parts.username is None and not given["certFile"]:
            yield 'the option "space" needs a user of that address space: give the options "user" and "passwordFile"'


def space_of(login: ServerLogin) -> str:
    """Return the address space that a login states, by its option or by the end of the name of the user; empty: none.
    There need not be a space of this name."""
    user = login.user or unquote(urlsplit(login.url).username or "")
    name, _, suffix = user.rpartition("@")
    return login.space or (suffix if name and space_error(suffix) is None else "")
