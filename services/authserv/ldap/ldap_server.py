"""A server of LDAP, asked by threads: whether a user of this name has this password, and its groups. The server
away, or an invalid answer: LdapError."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import ldap3
from ldap3.core.exceptions import LDAPException
from ldap3.utils.conv import escape_filter_chars

from enmasse.model.issuers import Ldap

CONNECT_SECONDS, ANSWER_SECONDS = 2, 3
"""Seconds for a connection, and for each part of an answer."""
MAX_GROUPS = 1000
_OK, _SIZE_EXCEEDED = 0, 4
_REFUSED = frozenset({19, 32, 48, 49, 53})
"""Results of a bind by which the user is refused (RFC 4511, A.2): constraintViolation and unwillingToPerform are those
of locked and inactive accounts in some servers, inappropriateAuthentication that of one without a password."""
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""Exceptions that ldap3 raises, beside its own, for an invalid answer."""

T = TypeVar("T")


class LdapError(Exception):
    """There is no decision; the message has the reason, and neither name nor password. `away`: the server does not
    answer, so that no other login needs to ask."""

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.away = away


class DirectoryUser(NamedTuple):
    """A user whose password was right."""

    groups: tuple[str, ...]


class LdapServer:
    """The server of an entry. `ca`: in PEM, authorities of its certificate; None: those of the system. Each thread that
    asks has a connection for searches, which stays open."""

    def __init__(self, ldap: Ldap, ca: str | None) -> None:
        self._ldap = ldap
        self._ca = ca
        self._of_thread = threading.local()
        self._open: set[Any] = set()
        self._closed = False

    def probe(self) -> None:
        """Find out whether the server answers, lets us search, and has the entries that are named. Raises LdapError."""

        def look(connection: Any) -> None:
            for key, base in (("users", self._ldap.users), ("groups", self._ldap.groups)):
                if base is not None:
                    connection.search(base, "(objectClass=*)", ldap3.BASE, attributes=[ldap3.NO_ATTRIBUTES])
                    _check(connection, f"{key}: {base}")

        self._searching(look)

    def login(self, user: str, password: str) -> DirectoryUser | None:
        """Return the groups of a user with this password, None if there is no such user or the password is wrong.
        Raises LdapError."""
        if not password:
            return None  # a bind without a password succeeds, as the anonymous user (RFC 4513, 5.1.2)
        dn = self._searching(lambda connection: self._dn(connection, user))
        if not dn or not self._binds(dn, password):
            return None
        return DirectoryUser(self._searching(lambda connection: self._groups(connection, user, dn)))

    def close(self) -> None:
        """End all connections: threads that wait for an answer wait no longer."""
        self._closed = True
        for connection in list(self._open):
            sock = connection.socket
            if sock is not None:
                with _quiet():
                    sock.shutdown(socket.SHUT_RDWR)  # close would leave a thread waiting

    def _dn(self, connection: Any, user: str) -> str:
        """Return the name of the entry of a user; empty if no user has exactly this name."""
        ldap = self._ldap
        named = f"({ldap.user_attribute}={escape_filter_chars(user)})"
        wanted = named if ldap.user_filter is None else f"(&{named}{ldap.user_filter})"
        connection.search(ldap.users, wanted, attributes=[ldap.user_attribute], size_limit=2)
        if connection.result["result"] != _SIZE_EXCEEDED:
            _check(connection, f"users: {ldap.users}")
        entries = _entries(connection)
        if len(entries) > 1:
            raise LdapError(f"several entries have the same {ldap.user_attribute}; use an attribute that is unique")
        return next((dn for dn, names in entries if user in names), "")

    def _groups(self, connection: Any, user: str, dn: str) -> tuple[str, ...]:
        ldap = self._ldap
        if ldap.groups is None:
            return ()
        member = user if ldap.member_attribute.lower() == "memberuid" else dn
        wanted = f"({ldap.member_attribute}={escape_filter_chars(member)})"
        connection.search(ldap.groups, wanted, attributes=[ldap.group_attribute], size_limit=MAX_GROUPS)
        _check(connection, f"groups: {ldap.groups}")
        return tuple(dict.fromkeys(name for _, names in _entries(connection) for name in names))

    def _binds(self, dn: str, password: str) -> bool:
        """Return whether an entry has this password, by a connection of its own."""
        with _translated():
            connection = self._connection(dn, password.encode("utf-8", "surrogatepass"))
            try:
                self._begin(connection)
                connection.bind(read_server_info=False)
                if connection.result["result"] in _REFUSED:
                    return False
                _check(connection, "the bind of a user")
                return True
            finally:
                self._end(connection)

    def _searching(self, search: Callable[[Any], T]) -> T:
        """Return what is found by this thread's connection for searches. The server may have closed it meanwhile: then
        by a new one."""
        kept = getattr(self._of_thread, "connection", None)
        if kept is not None:
            try:
                return self._tried(kept, search)
            except LdapError as error:
                if not error.away:
                    raise
        with _translated():
            ldap = self._ldap
            connection = self._connection(ldap.bind_dn, ldap.bind_password)
            try:
                self._begin(connection)
                connection.bind(read_server_info=False)
                _check(connection, f"the bind of {ldap.bind_dn or 'an anonymous search'}")
            except BaseException:
                self._end(connection)
                raise
        self._of_thread.connection = connection
        return self._tried(connection, search)

    def _tried(self, connection: Any, search: Callable[[Any], T]) -> T:
        """Return what is found by a connection, which is open still, or ended if it does not work."""
        try:
            with _translated():
                return search(connection)
        except LdapError as error:
            if error.away:
                self._of_thread.connection = None
                self._end(connection)
            raise

    def _connection(self, user: str | None, password: str | bytes | None) -> Any:
        """Return a connection, which is not open. Nothing is asked of another server that this one names: it would get
        the password."""
        host, port = self._ldap.server
        is_tls = self._ldap.url.startswith("ldaps:")
        tls = _Verified(host, self._ca) if is_tls or self._ldap.starttls else None
        server = ldap3.Server(
            host, port, is_tls, tls=tls, get_info=ldap3.NONE, connect_timeout=CONNECT_SECONDS,
            mode=ldap3.IP_SYSTEM_DEFAULT,
        )  # fmt: skip
        return ldap3.Connection(
            server, user, password, auto_referrals=False, check_names=False, read_only=True,
            receive_timeout=ANSWER_SECONDS,
        )  # fmt: skip

    def _begin(self, connection: Any) -> None:
        if self._closed:
            raise LdapError("the directory was removed")
        self._open.add(connection)
        connection.open(read_server_info=False)
        if self._ldap.starttls:
            connection.start_tls(read_server_info=False)

    def _end(self, connection: Any) -> None:
        self._open.discard(connection)
        with _quiet():
            connection.unbind()


class _Verified(ldap3.Tls):  # type: ignore[misc]  # ldap3 has no types
    """TLS with the server of this name, whose certificate is verified by Python's own ssl: names and addresses too."""

    def __init__(self, host: str, ca: str | None) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._host = host
        self._context = ssl.create_default_context(cadata=ca)

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=self._host, do_handshake_on_connect=do_handshake
        )


def _entries(connection: Any) -> list[tuple[str, list[str]]]:
    """Return names of the entries that were found, and the values of the attribute that was asked for. References to
    other servers are left out, and values for other languages and the like (`cn;lang-fr`)."""
    return [
        (each["dn"], [
            value.decode(errors="replace")
            for name, values in each["raw_attributes"].items() if ";" not in name
            for value in values
        ])
        for each in connection.response or ()
        if each["type"] == "searchResEntry"
    ]  # fmt: skip


def _check(connection: Any, what: str) -> None:
    """Raise LdapError if the last operation has failed."""
    result = connection.result
    if result["result"] != _OK:
        detail = f", {result['message']}" if result.get("message") else ""
        raise LdapError(f"{what}: {result['description']}{detail}"[:300])


@contextmanager
def _translated() -> Iterator[None]:
    """Let errors of ldap3 be LdapError."""
    try:
        yield
    except (LDAPException, OSError) as error:
        raise LdapError(f"does not answer: {str(error) or type(error).__name__}"[:300], away=True) from None
    except _MALFORMED as error:
        raise LdapError(f"an answer cannot be read: {type(error).__name__}", away=True) from None


@contextmanager
def _quiet() -> Iterator[None]:
    try:
        yield
    except (LDAPException, OSError, *_MALFORMED):
        pass
