"""`send`, `receive`, `bench`, `publish` and `subscribe` with users: at servers of our engine with real verifiers, at
the authentication service itself, and at a mosquitto with a password file. No output shows a password."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.amqp.codec.errors import UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link
from enmasse.amqp.sasl.layer import TEMPORARY, SaslServer, anonymous, plain
from enmasse.identity.processes.scram import scram
from enmasse.testing import free_port
from tests.amqp.server_kit import Store, start
from tests.authserv.running import Running, user
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.running import enmasse, free_offset
from tests.kit.hashes import hashes
from tests.kit.mosquitto import run_mosquitto
from tests.kit.running import Listening, server

SECRET = "s3cret/of@alice"
IN_URL = "alice:s3cret%2Fof%40alice"
ALICE = {"alice": SECRET}
VERIFIERS = hashes(SECRET).scram
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def mechanisms(*names: str) -> dict[str, Any]:
    """Return mechanisms of a server that knows alice."""
    made: dict[str, Any] = {"PLAIN": plain(ALICE), "ANONYMOUS": anonymous}
    for name in SCRAMS:
        made[name] = scram(lambda user, name=name: VERIFIERS[name] if user == "alice" else None, name)  # type: ignore[misc]  # mypy has no type for it
    made["unavailable"] = plain(lambda exchange, user, password: exchange.fail(TEMPORARY))
    return {name.replace("unavailable", "PLAIN"): made[name] for name in names}


class Peer(Store):
    """A server with users. `users`: who has opened, with the mechanism; `deny`: attaches are refused."""

    def __init__(self, *names: str, deny: bool = False) -> None:
        super().__init__()
        self.names = names
        self.deny = deny
        self.users: list[tuple[str | None, str | None]] = []
        self.tries = 0
        self.at_open: Callable[[Connection], None] = lambda c: None

    def make(self, peer: Any, **fields: Any) -> Connection:
        self.tries += 1
        sasl = SaslServer(mechanisms(*self.names))
        connection = super().make(peer, sasl=sasl)
        connection.context = sasl
        return connection

    def on_open(self, c: Connection) -> None:
        self.users.append((c.user, c.context.mechanism))
        self.at_open(c)

    def on_attach(self, link: Link) -> None:
        if self.deny:
            raise AmqpError(UNAUTHORIZED_ACCESS, "alice may not send to q")
        super().on_attach(link)


@contextmanager
def serving(peer: Peer, port: int = 0) -> Iterator[int]:
    """The port of this server, which is in a thread."""

    async def serve(listening: Listening) -> None:
        from enmasse.aio.transport import Hub
        from enmasse.aio.transport import serve as serve_amqp

        opened = await (serve_amqp(Hub(), "127.0.0.1", port, peer.make) if port else start(peer))
        await listening(opened.port)
        opened.close()

    with server(serve) as found:
        yield found


def told(*arguments: str | int, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Return status and stderr; no output has the password, in any form."""
    done = enmasse(*arguments, env=env)
    for part in ("s3cret", "of@alice", "of%40alice", "Traceback"):
        assert part not in done.stdout + done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of alice."""
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\nnot this\n")
    file.chmod(0o600)
    return {"ENMASSE_USER": "alice", "ENMASSE_PASSWORD_FILE": str(file)}


# --- AMQP -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "used"),
    [
        (("ANONYMOUS", "PLAIN", *SCRAMS), "SCRAM-SHA-512"),
        (("ANONYMOUS", "PLAIN", "SCRAM-SHA-256"), "SCRAM-SHA-256"),
        (("ANONYMOUS", "PLAIN"), "PLAIN"),
    ],
)
def test_the_best_mechanism_that_is_offered(offered: tuple[str, ...], used: str) -> None:
    peer = Peer(*offered)
    with serving(peer) as port:
        assert told("send", "-a", f"{IN_URL}@127.0.0.1:{port}/q", "hello") == (0, "")
        assert told("receive", "-a", f"amqp://{IN_URL}@localhost:{port}/q", "-m", "1") == (0, "")
    assert peer.users == [("alice", used)] * 2


def test_user_and_password_of_the_environment(variables: dict[str, str]) -> None:
    peer = Peer(*SCRAMS)
    offset = free_offset()
    with serving(peer, 5672 + offset):
        assert told("send", "q", "hello", "--port-offset", offset, env=variables) == (0, "")
        assert told("receive", "q", "-m", "1", "--port-offset", offset, env=variables) == (0, "")
        file = {"ENMASSE_PASSWORD_FILE": variables["ENMASSE_PASSWORD_FILE"]}
        assert told("send", "-a", f"alice@127.0.0.1:{5672 + offset}/q", "hello", env=file) == (0, "")
        others = variables | {"ENMASSE_USER": "bob"}
        assert told("send", "-a", f"{IN_URL}@127.0.0.1:{5672 + offset}/q", "hello", env=others) == (0, "")
    assert {user for user, _ in peer.users} == {"alice"}


def test_bench_shows_no_process_the_password(variables: dict[str, str]) -> None:
    peer = Peer(*SCRAMS)
    seen: dict[str, list[bytes]] = {}

    def look(c: Connection) -> None:
        assert c.remote_open is not None
        texts = []
        for process in Path("/proc").glob("[0-9]*"):
            for file in ("cmdline", "environ"):
                try:
                    texts.append((process / file).read_bytes())
                except OSError:
                    continue
        seen[str(c.remote_open.container_id)] = [text for text in texts if b"s3cret" in text]

    peer.at_open = look
    with serving(peer) as port:
        arguments = ("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", "0.2")
        status, errors = told(*arguments, env=variables)
    assert (status, errors) == (0, "")
    assert seen == {"enmasse-bench-receiver-0": [], "enmasse-bench-sender": []}


REFUSALS = [
    (SCRAMS, "alice:wrong", "server.login.refused"),
    (SCRAMS, "nobody:wrong", "server.login.refused"),
    (("PLAIN",), "alice:wrong", "server.login.refused"),
    (SCRAMS, "alice:wrong%07", "server.login.refused"),
    (("ANONYMOUS",), IN_URL, "server.login.unsuitable"),
    (("unavailable",), IN_URL, "server.login.unavailable"),
]


@pytest.mark.parametrize("command", ["send", "receive", "bench"])
@pytest.mark.parametrize(("offered", "login", "id"), REFUSALS)
def test_refused_logins(command: str, offered: tuple[str, ...], login: str, id: str) -> None:
    peer = Peer(*offered)
    with serving(peer) as port:
        body = ["hello"] if command == "send" else []
        status, errors = told(command, "-a", f"{login}@127.0.0.1:{port}/q", *body)
    assert (status, errors.rstrip().endswith(f"[{id}]")) == (4, True), errors
    assert ("you have to wait" in errors) == (id == "server.login.refused")
    assert peer.users == [] and peer.tries == 1
    assert "wrong%07" not in errors and "wrong\a" not in errors


def test_plain_is_not_used_where_others_can_read_it() -> None:
    peer = Peer("PLAIN")
    with serving(peer) as port:  # 0.0.0.0: this machine, by an address that is not one of loopback
        status, errors = told("send", "-a", f"{IN_URL}@0.0.0.0:{port}/q", "hello")
        assert status == 4 and "with TLS or on loopback only [server.login.unsuitable]" in errors
        assert peer.users == []
    peer = Peer("PLAIN", *SCRAMS)
    with serving(peer) as port:
        assert told("send", "-a", f"{IN_URL}@0.0.0.0:{port}/q", "hello") == (0, "")
    assert peer.users == [("alice", "SCRAM-SHA-512")]


def test_a_server_that_wants_a_user() -> None:
    with serving(Peer(*SCRAMS)) as port:
        status, errors = told("send", "-a", f"127.0.0.1:{port}/q", "hello")
    assert status == 4 and "ENMASSE_USER" in errors and "[server.login.missing]" in errors


@pytest.mark.parametrize("command", ["send", "receive", "bench"])
def test_what_the_user_may_not_do(command: str) -> None:
    with serving(Peer(*SCRAMS, deny=True)) as port:
        status, errors = told(command, "-a", f"{IN_URL}@127.0.0.1:{port}/q", *["hello"] * (command == "send"))
    assert status == 4 and "may not send to q" in errors and "[server.operation.denied]" in errors


def test_the_authentication_service_itself() -> None:
    with Running() as service:
        url = f"@127.0.0.1:{service.port}/q"
        status, errors = told("send", "-a", IN_URL + url, "hello")  # it has no users yet
        assert status == 4 and "[server.login.unavailable]" in errors
        service.users({"alice": user(SECRET)})
        status, errors = told("send", "-a", "alice:wrong" + url, "hello")
        assert status == 4 and "authentication by SCRAM-SHA-512 failed" in errors and "[server.login.refused]" in errors
        status, errors = told("send", "-a", IN_URL + url, "hello")  # it lets in, and closes
        assert status == 4 and "[server.connection.failed]" in errors


# --- what is wrong before a connection --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "-a", "http://alice:s3cret@h/q", "x"),
        ("send", "-a", "alice:s3cret://@h:1:2/q", "x"),
        ("send", "-a", "alice:s3cret?x#y@h:none/q", "x"),
        ("send", "-a", "alice:s3cret@h", "x"),
        ("send", "-a", "alice:s3cret%00@h/q", "x"),
        ("send", "amqp://alice:s3cret@h/q", "x"),
        ("receive", "amqps://alice:s3cret@h/q"),
        ("bench", "amqp://alice:s3cret@h/q"),
        ("publish", "mqtt://alice:s3cret@h/q", "x"),
        ("publish", "t", "x", "--server", "alice:s3cret@h/path"),
        ("publish", "t", "x", "--server", "alice:s3cret@h:x"),
        ("subscribe", "mqtts://alice:s3cret@h/q"),
    ],
)
def test_wrong_usage_shows_no_password(arguments: tuple[str, ...]) -> None:
    status, errors = told(*arguments)
    assert status == 2, errors


def test_a_secret_that_other_users_can_read_is_warned_of(variables: dict[str, str], tmp_path: Path) -> None:
    password, key = Path(variables["ENMASSE_PASSWORD_FILE"]), tmp_path / "key.pem"
    key.write_text("no key")
    command = ("send", "-a", f"amqps://127.0.0.1:{free_port()}/q", "x", "--cert", str(key), "--key", str(key))
    for mode in (0o640, 0o600):
        password.chmod(mode)
        key.chmod(mode)
        errors = told(*command, env=variables)[1]
        for file, content in ((password, "a password"), (key, "a private key")):
            warning = f"warning: {file} has {content}, and other users can read it: `chmod 600 {file}`"
            assert (warning in errors) == (mode == 0o640), errors


def test_a_password_that_cannot_be_read(tmp_path: Path) -> None:
    binary, missing = tmp_path / "binary", tmp_path / "missing"
    binary.write_bytes(b"s3cret\xff\n")
    (tmp_path / "nul").write_bytes(b"s3cret\0\n")
    for file, id in (
        (None, "user.password.missing"), (missing, "user.password.not-readable"), ("-", "user.password.not-readable"),
        (binary, "user.password.not-readable"), (tmp_path / "nul", "user.password.unsuitable"),
    ):  # fmt: skip
        env = {"ENMASSE_USER": "alice"} | ({} if file is None else {"ENMASSE_PASSWORD_FILE": str(file)})
        for command in (("send", "q", "x"), ("subscribe", "t")):
            status, errors = told(*command, env=env)
            assert (status, errors.rstrip().endswith(f"[{id}]")) == (2, True), errors


# --- MQTT -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto that knows alice, who may publish to `mine/#` only."""
    folder = tmp_path_factory.mktemp("mosquitto")
    subprocess.run(["mosquitto_passwd", "-b", "-c", folder / "users", "alice", SECRET], check=True, capture_output=True)
    (folder / "acl").write_text("user alice\ntopic readwrite mine/#\n")
    settings = "allow_anonymous false", f"password_file {folder}/users", f"acl_file {folder}/acl", "user root"
    with run_mosquitto(folder, *settings) as port:
        yield port


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_mosquitto(mosquitto: int, version: str, variables: dict[str, str]) -> None:
    place = f"127.0.0.1:{mosquitto}"
    options = ("--mqtt", version, "--server")
    assert told("publish", "mine/a", "kept", "-r", *options, f"mqtt://{IN_URL}@{place}") == (0, "")
    assert told("subscribe", "mine/a", "-m", "1", *options, place, env=variables) == (0, "")
    for login, id in (("alice:wrong@", "refused"), ("bob:wrong@", "refused"), ("", "missing")):
        for command in (("publish", "mine/a", "x"), ("subscribe", "mine/a")):
            status, errors = told(*command, *options, login + place)
            assert status == 4 and errors.rstrip().endswith(f"[server.login.{id}]"), errors


def test_mosquitto_denies_a_topic(mosquitto: int) -> None:
    status, errors = told("publish", "other", "x", "--server", f"{IN_URL}@127.0.0.1:{mosquitto}")
    assert status == 1 and "[server.operation.denied]" in errors


@pytest.mark.parametrize(("version", "codes"), [("5", (0x86, 0x87, 0x88)), ("3.1.1", (4, 5, 3))])
def test_codes_of_connack(version: str, codes: tuple[int, int, int]) -> None:
    for code, id in zip(codes, ("refused", "refused", "unavailable"), strict=True):
        with mqtt_peer(Broker(connack=code)) as port:
            status, errors = told("publish", "t", "x", "--server", f"{IN_URL}@127.0.0.1:{port}", "--mqtt", version)
        assert status == 4 and errors.rstrip().endswith(f"[server.login.{id}]"), errors


def test_a_filter_that_is_denied() -> None:
    with mqtt_peer(Broker(reason=0x87)) as port:
        status, errors = told("subscribe", "t", "--server", f"{IN_URL}@127.0.0.1:{port}")
    assert status == 4 and "[server.operation.denied]" in errors
