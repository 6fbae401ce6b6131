"""A real Keycloak for tests: one realm with users, groups and clients, which a test can make unreachable.

The distribution is fetched once into the user's cache, as Artemis is, and built there with its database of the realm:
a start with that takes half the time of an import. Each server works on a copy of the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enmasse.engines.artemis.distribution import check_java
from enmasse.engines.maven import Distribution, cache
from enmasse.testing import free_port, wait_for
from tests.kit.processes import end_with_parent
from tests.kit.relay import relay
from tests.kit.waiting import DEADLINE

VERSION = "26.7.3"
KEYCLOAK = Distribution(
    title=f"Keycloak {VERSION}",
    coordinate=f"org.keycloak:keycloak-quarkus-dist:{VERSION}:tar.gz",
    file=f"keycloak-quarkus-dist-{VERSION}.tar.gz",
    folder=f"keycloak-{VERSION}",
    sha256="77657f30b7e90d70f727712ce1c967f430fd6a5e9f458d32d8c6df0635345f47",
)
REALM, AUDIENCE, ADMIN = "test", "messaging", "admin"
PUBLIC, CONFIDENTIAL, SECRET = "suite", "suite-secret", "s3cret/+ x"
"""Clients: without a secret, and with one."""
CALLBACK = "/api/v1/login/callback"
"""Where browsers come back to, at any port of loopback."""
PASSWORDS = {name: f"{name}'s password" for name in ("ada", "grace", "eve", "joan", "off")}
"""User → password. ada is in the group `staff`; `off` is disabled."""
_BUILD = ("--db=dev-file", "--health-enabled=false", "--metrics-enabled=false")
_START_WITHIN = 300.0
"""Seconds for a start on a busy machine; 10 s of a processor with a database, 20 s without one."""
_MAIN = "io.quarkus.bootstrap.runner.QuarkusEntryPoint"
_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxMetaspaceSize=256m",
         "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
         "--add-opens=java.base/java.security=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
         "-Djava.util.logging.manager=org.jboss.logmanager.LogManager")  # fmt: skip
"""As its start script has them, with a smaller heap, and a compiler that is quick instead of good."""


def _mapper(name: str, kind: str, **config: str) -> dict[str, Any]:
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


_MAPPERS = [
    _mapper("audience", "oidc-audience-mapper", **{"included.custom.audience": AUDIENCE, "access.token.claim": "true"}),
    _mapper("groups", "oidc-group-membership-mapper",
            **{"claim.name": "groups", "full.path": "true", "access.token.claim": "true"}),
]  # fmt: skip


def _client(name: str, secret: str | None = None) -> dict[str, Any]:
    found = {
        "clientId": name, "enabled": True, "publicClient": secret is None, "directAccessGrantsEnabled": True,
        "standardFlowEnabled": True, "redirectUris": [f"http://127.0.0.1{CALLBACK}"], "protocolMappers": _MAPPERS,
        "attributes": {"pkce.code.challenge.method": "S256"},
    }  # fmt: skip
    more = {"secret": secret, "clientAuthenticatorType": "client-secret"} if secret is not None else {}
    return {**found, **more}


def _user(name: str, password: str) -> dict[str, Any]:
    return {
        "username": name, "enabled": name != "off", "firstName": name, "lastName": name, "emailVerified": True,
        "email": f"{name}@example.com", "groups": ["/staff"] if name == "ada" else [],
        "credentials": [{"type": "password", "value": password}],
    }  # fmt: skip


_REALM = {
    "realm": REALM, "enabled": True, "sslRequired": "none", "groups": [{"name": "staff"}],
    "clients": [_client(PUBLIC), _client(CONFIDENTIAL, SECRET)],
    "users": [_user(name, password) for name, password in PASSWORDS.items()],
}  # fmt: skip


class Keycloak:
    """A server in `folder`, at `url`. Its realm is the issuer `issuer`."""

    def __init__(self, folder: Path, home: Path, data: Path | None) -> None:
        """`data`: database to begin with; None: it is made from the realm's description."""
        self.port = free_port()
        """Where it is reached, by a relay."""
        self.url = f"http://127.0.0.1:{self.port}"
        self.issuer = f"{self.url}/realms/{REALM}"
        self.log = folder / "keycloak.log"
        self._folder = folder
        self._port = free_port()
        self._relay = contextlib.ExitStack()
        self._imports = data is None
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)
        for name in ("conf", "lib", "providers", "themes"):
            (folder / name).symlink_to(home / name)
        if data is not None:
            shutil.copytree(data, folder / "data")
        else:
            (folder / "data" / "import").mkdir(parents=True)
            (folder / "data" / "import" / f"{REALM}-realm.json").write_text(json.dumps(_REALM))

    def start(self) -> None:
        """Start it; return when it answers."""
        java = [check_java(), *_JAVA, f"-Dkc.home.dir={self._folder}", f"-Djboss.server.config.dir={self._folder}/conf",
                "-cp", f"{self._folder}/lib/quarkus-run.jar", _MAIN]  # fmt: skip
        options = ["--optimized", "--cache=local", "--http-enabled=true", "--hostname-strict=false",
                   "--http-host=127.0.0.1",
                   f"--http-port={self._port}", *(["--import-realm"] if self._imports else [])]  # fmt: skip
        environment = {"KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN, "KC_BOOTSTRAP_ADMIN_PASSWORD": ADMIN, "LANG": "C.UTF-8"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*java, "start", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        self._reach()
        wait_for("Keycloak answers", self._answers, _START_WITHIN)

    def _reach(self) -> None:
        self._relay.enter_context(relay(self.port, self._port))

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Lose and refuse connections as long as the block."""
        self._relay.close()
        try:
            yield
        finally:
            self._reach()

    def kill(self) -> None:
        """SIGKILL; return when it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM; return when it is gone."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        self._relay.close()
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def token(self, user: str) -> str:
        """Return a token, as an application gets it for its user."""
        fields = {"grant_type": "password", "client_id": PUBLIC, "username": user, "password": PASSWORDS[user]}
        return str(self._post(f"{self.issuer}/protocol/openid-connect/token", fields)["access_token"])

    def disable(self, user: str) -> None:
        """Let a user no longer log in."""
        (found,) = self.administrate("GET", f"users?exact=true&username={user}")
        self.administrate("PUT", f"users/{found['id']}", {**found, "enabled": False})

    def rotate_keys(self) -> None:
        """Sign with a new key from now on, and forget the others."""
        kind = "org.keycloak.keys.KeyProvider"
        old = [c for c in self.administrate("GET", f"components?type={kind}") if c["providerId"] == "rsa-generated"]
        config = {"priority": ["1000"], "algorithm": ["RS256"], "keySize": ["2048"]}
        new = {"name": "rotated", "providerId": "rsa-generated", "providerType": kind, "config": config}
        self.administrate("POST", "components", new)
        for each in old:
            self.administrate("DELETE", f"components/{each['id']}")

    def administrate(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the administration of the realm."""
        token = self._post(
            f"{self.url}/realms/master/protocol/openid-connect/token",
            {"grant_type": "password", "client_id": "admin-cli", "username": ADMIN, "password": ADMIN},
        )["access_token"]
        request = urllib.request.Request(
            f"{self.url}/admin/realms/{REALM}/{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _post(self, url: str, fields: dict[str, str]) -> Any:
        with urllib.request.urlopen(url, urllib.parse.urlencode(fields).encode(), timeout=DEADLINE) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log.read_text()
        try:
            self.token("grace")  # the first one takes seconds, more than the suite waits on a busy machine
        except (OSError, http.client.HTTPException):
            return False
        return True


def _prepared() -> tuple[Path, Path]:
    """Return the distribution, built, and the database of the realm. Fetched and made on first use."""
    home = KEYCLOAK.unpacked()
    key = hashlib.sha256(json.dumps([_REALM, _BUILD]).encode()).hexdigest()[:12]
    data = cache() / f"{KEYCLOAK.folder}-data-{key}"
    with KEYCLOAK.alone():
        built = home / "lib" / f".built-{hashlib.sha256(json.dumps(_BUILD).encode()).hexdigest()[:12]}"
        if not built.exists():
            options = "-XX:-UseG1GC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # the script has the other collector
            environment = {"JAVA_OPTS_APPEND": options, "PATH": f"{Path(check_java()).parent}:/usr/bin:/bin"}
            subprocess.run([home / "bin" / "kc.sh", "build", *_BUILD], env=environment, check=True)
            built.touch()
        if not data.exists():
            scratch = cache() / f".{data.name}"
            shutil.rmtree(scratch, ignore_errors=True)
            server = Keycloak(scratch, home, None)
            try:
                server.start()
                server.stop()
                shutil.rmtree(scratch / "data" / "import")
                (scratch / "data").rename(data)
            finally:
                server.kill()
                shutil.rmtree(scratch)
    return home, data


@contextlib.contextmanager
def running_keycloak(folder: Path) -> Iterator[Keycloak]:
    """A server that answers, with a realm of its own; it ends with the block."""
    server = Keycloak(folder, *_prepared())
    try:
        server.start()
        yield server
    finally:
        server.kill()
