"""A directory for tests: a real slapd (OpenLDAP) with users and groups, on ports of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ldap3

from enmasse.testing import free_port, wait_for
from tests.certificates import Authority

BASE = "dc=example,dc=com"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
ADMIN, READER = f"cn=admin,{BASE}", f"cn=reader,{BASE}"
SECRET = "reader's"
_CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCACertificateFile {ca}
TLSCertificateFile {cert}
TLSCertificateKeyFile {key}
sizelimit 500
database mdb
suffix "{base}"
rootdn "{admin}"
rootpw admin
directory {folder}/db
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{reader}" read by * none
"""


class Slapd:
    """A server whose files are in `folder`. `url` and `tls_url`: where it listens, on loopback."""

    def __init__(self, folder: Path) -> None:
        (folder / "db").mkdir(parents=True)
        self._folder = folder
        self.authority = Authority(folder / "ca")
        cert, key = self.authority.issue("slapd")
        self._program = shutil.which("slapd") or "/usr/sbin/slapd"
        self.port, self.tls_port = free_port(), free_port()
        self.url, self.tls_url = f"ldap://localhost:{self.port}", f"ldaps://localhost:{self.tls_port}"
        text = _CONF.format(
            folder=folder, base=BASE, admin=ADMIN, reader=READER, ca=self.authority.file, cert=cert, key=key
        )
        (folder / "slapd.conf").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self.add(BASE, ["dcObject", "organization"], dc="example", o="example")
        for ou in (PEOPLE, GROUPS):
            self.add(ou, ["organizationalUnit"])
        self.add(READER, ["person"], sn="reader", userPassword=SECRET)

    @property
    def ca(self) -> str:
        """Return the authority of its certificate, in PEM."""
        return self.authority.file.read_text()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        urls = f"{self.url}/ {self.tls_url}/"
        command = [self._program, "-d", "0", "-f", str(self._folder / "slapd.conf"), "-h", urls]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for("slapd answers", self._answers)

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it accept connections and not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self._signal(signal.SIGCONT)

    def user(self, name: str, password: str | None, **more: Any) -> str:
        """Add a user, return the name of its entry."""
        secret = {} if password is None else {"userPassword": password}
        dn = f"uid={ldap3.utils.dn.escape_rdn(name)},{PEOPLE}"
        self.add(dn, ["inetOrgPerson"], cn=name, sn=name, **secret, **more)
        return dn

    def group(self, name: str, members: Sequence[str]) -> None:
        """Add a group with these entries."""
        self.add(f"cn={ldap3.utils.dn.escape_rdn(name)},{GROUPS}", ["groupOfNames"], member=list(members))

    def add(self, dn: str, kinds: list[str], **attributes: Any) -> None:
        """Add an entry."""
        with self._admin() as connection:
            assert connection.add(dn, kinds, attributes), connection.result

    def remove(self, dn: str) -> None:
        """Remove an entry."""
        with self._admin() as connection:
            assert connection.delete(dn), connection.result

    def change(self, dn: str, **attributes: Any) -> None:
        """Give an entry other values of attributes."""
        with self._admin() as connection:
            changes = {name: [(ldap3.MODIFY_REPLACE, [value])] for name, value in attributes.items()}
            assert connection.modify(dn, changes), connection.result

    def _admin(self) -> Any:
        return ldap3.Connection(self._server(), ADMIN, "admin", auto_bind=True)

    def _server(self) -> Any:
        return ldap3.Server("127.0.0.1", self.port, get_info=ldap3.NONE)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None
        try:
            with self._admin():
                return True
        except ldap3.core.exceptions.LDAPException:
            return False

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
