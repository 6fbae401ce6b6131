"""Costs of identity: connections a second, messages of users beside messages without, and the time in which a change of
permissions takes effect.

`python -m benchmarks identity`. qdrouterd: the one on PATH. It has SCRAM from Cyrus SASL, with a password in sasldb,
whose salt is new each time: server and client derive the keys for each connection, ours once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.harness import ROOT, Server, await_port, free_port, line, load, running, side_by_side, summary, tell
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.sasl.layer import PlainClient
from enmasse.identity.processes.credentials import PeerEntry, peers_text
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import verifier
from enmasse.identity.proofs.passwords import hashed
from enmasse.mqtt.reasons import NOT_AUTHORIZED
from enmasse.testing import Suite, wait_for
from enmasse.testing import running as running_suite
from tests.certificates import Authority
from tests.system.amqp_users import client
from tests.system.mqtt_users import Device

NAME, SECRET = "mqtt_gateway-0", "a secret of the benchmark, as long as those of processes are"
SCRAM = ("--mechanism", "SCRAM-SHA-256", "--user", NAME, "--password", SECRET, "--container", NAME)
ROUNDS = 5


def connects(server: Server, port: int, count: int, options: Sequence[str] = ()) -> dict[str, Any]:
    """Connect `count` times; returns the rate and the processor time of the server for a connection."""
    command = [sys.executable, "-m", "enmasse.load.connects", "connect", "--port", str(port), "--count", str(count)]
    process = subprocess.Popen(
        [*command, "--barrier", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    line(process)
    before = server.cpu()
    tell(process)
    found: dict[str, Any] = json.loads(line(process))
    process.wait()
    return {"rate": found["rate"], "server_ms": (server.cpu() - before) / count * 1e3, "client_ms": found["client_ms"]}


def entities(server_port: int, scratch: Path, scram: dict[str, Any]) -> list[list[Any]]:
    """Return three listeners: anonymous, SCRAM on the next port, TLS on the one after that."""
    cert, key = Authority(scratch).issue("router")
    found: list[list[Any]] = [
        ["router", {"mode": "interior", "id": "bench"}],
        ["sslProfile", {"name": "tls", "certFile": str(cert), "privateKeyFile": str(key)}],
    ]
    kinds: list[dict[str, Any]] = [
        {"saslMechanisms": "ANONYMOUS"},
        {"saslMechanisms": "SCRAM-SHA-256", "authenticatePeer": True, **scram},
        {"saslMechanisms": "ANONYMOUS", "sslProfile": "tls", "requireSsl": True},
    ]
    for number, more in enumerate(kinds):
        port = str(server_port + number)
        found.append(["listener", {"name": f"l{number}", "host": "127.0.0.1", "port": port, "role": "normal", **more}])
    return found


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    (scratch / "peers.json").write_text(peers_text({NAME: PeerEntry(Role.GATEWAY, verifier(SECRET))}))
    settings = {
        "name": "bench-router",
        "health": f"127.0.0.1:{port + 3}",
        "peers": str(scratch / "peers.json"),
        "entities": entities(port, scratch, {"access": "services"}),
    }
    (scratch / "router.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.router", "--config", str(scratch / "router.json")]
    with running("embedded router", command, port, scratch=scratch) as server:
        for more in (1, 2, 3):  # else the next free port may be one of them
            await_port(port + more, server.process)
        yield server


@contextlib.contextmanager
def qdrouterd(program: str) -> Iterator[Server]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    (scratch / "qdrouterd.conf").write_text(
        f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {scratch}/sasldb\n"
        "mech_list: ANONYMOUS SCRAM-SHA-256\n"
    )
    subprocess.run(
        [sys.executable, "-c", SET_PASSWORD, str(scratch), NAME, SECRET], check=True, stdout=subprocess.DEVNULL
    )
    found = entities(port, scratch, {})
    found[0][1] |= {"workerThreads": 2, "saslConfigDir": str(scratch), "saslConfigName": "qdrouterd"}
    found.append(["log", {"module": "DEFAULT", "enable": "error+"}])
    (scratch / "qdrouterd.json").write_text(json.dumps(found))
    with running("qdrouterd", [program, "-c", str(scratch / "qdrouterd.json")], port, scratch=scratch) as server:
        for more in (1, 2):
            await_port(port + more, server.process)
        yield server


SET_PASSWORD = """
import ctypes, sys
folder, name, secret = (text.encode() for text in sys.argv[1:])
sasl = ctypes.CDLL("libsasl2.so.2")
connection = ctypes.c_void_p()
assert sasl.sasl_set_path(1, folder) == 0 and sasl.sasl_server_init(None, b"qdrouterd") == 0
assert sasl.sasl_server_new(b"amqp", None, None, None, None, None, 0, ctypes.byref(connection)) == 0
sasl.sasl_setpass.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint], ctypes.c_char_p,
                              ctypes.c_uint, ctypes.c_uint]
assert sasl.sasl_setpass(connection, name, secret, len(secret), None, 0, 1) == 0
"""
"""Makes a password in a sasldb as saslpasswd2 does, which is not always installed."""


@contextlib.contextmanager
def authserv(users: int) -> Iterator[Server]:
    """Run the authentication service, and configserv with users u0, u1, … with generated passwords."""
    scratch, at, port = Path(tempfile.mkdtemp()), free_port(), free_port() + 1
    (scratch / "config").mkdir()
    for name in ("addresses.json", "flavors.json"):
        (scratch / "config" / name).write_text("{}")
    entries = {f"u{n}": {"password": hashed(f"password-of-{n}", random=True).password} for n in range(users)}
    found = hashed(SECRET, random=True)
    entries[NAME] = {"scram": msgspec.to_builtins(found.scram)}
    (scratch / "config" / "users.json").write_text(json.dumps(entries))
    (scratch / "peers.json").write_text(peers_text({"authserv": PeerEntry(Role.AUTHSERV, verifier(SECRET))}))
    credential = {"name": "authserv", "role": Role.AUTHSERV, "secret": SECRET}
    (scratch / "credential.json").write_text(json.dumps(credential))
    services = {
        "configserv": {
            "listen": f"127.0.0.1:{at}", "health": f"127.0.0.1:{at + 2}", "config_dir": str(scratch / "config"),
            "data_dir": str(scratch / "data"), "peers": str(scratch / "peers.json"),
        },
        "authserv": {
            "listen": f"127.0.0.1:{port}", "health": f"127.0.0.1:{at + 3}", "configserv": f"127.0.0.1:{at}",
            "credential": str(scratch / "credential.json"),
        },
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, settings in services.items():
            path = scratch / f"{name}.json"
            path.write_text(json.dumps({"name": name, **settings}))
            command = [sys.executable, "-m", f"services.{name}", "--config", str(path)]
            where = int(settings["listen"].rpartition(":")[2])
            server = stack.enter_context(running(name, command, where))
        ready(at + 3)
        yield server
    shutil.rmtree(scratch, ignore_errors=True)


def ready(port: int) -> None:
    """Wait until a service is ready."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the service with health at {port} is not ready")


def alone(title: str, runs: Sequence[dict[str, Any]]) -> None:
    print(f"{title}\n  " + "  ".join(f"{key} {summary([run[key] for run in runs], 2)}" for key in runs[0]), flush=True)


def connections(rounds: int, count: int) -> None:
    """Connections a second of the routers."""
    kinds: dict[str, tuple[int, Sequence[str], int]] = {
        "anonymous": (0, (), count),
        "SCRAM-SHA-256 of a process": (1, SCRAM, count // 2),
        "TLS, anonymous": (2, ("--tls",), count // 5),
    }
    program = shutil.which("qdrouterd")
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(embedded())
        theirs = stack.enter_context(qdrouterd(program)) if program else None
        for kind, (offset, options, number) in kinds.items():
            title = f"router, open and close, {kind}"
            if theirs is None:
                alone(title, [connects(ours, ours.port + offset, number, options) for _ in range(rounds)])
                continue
            connects(theirs, theirs.port + offset, 10, (*options, "--at-once", "1"))  # what it makes once
            side_by_side(
                title,
                rounds,
                lambda: connects(ours, ours.port + offset, number, options),
                lambda: connects(theirs, theirs.port + offset, number, options),
                "rate",
                1.0,
                (ours.name, theirs.name),
            )
    if program is None:
        print("qdrouterd is not on PATH: not compared with it")


def logins(rounds: int, count: int) -> None:
    """Logins a second at the authentication service."""
    first: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    scram: list[dict[str, Any]] = []
    plain = ("--mechanism", "PLAIN", "--user", "u{}", "--password", "password-of-{}", "--users", str(count))
    for _ in range(rounds):
        with authserv(count) as server:
            first.append(connects(server, server.port, count, plain))
            again.append(connects(server, server.port, count, plain))
            scram.append(connects(server, server.port, count, SCRAM))
    alone("authserv, PLAIN with a generated password, first login", first)
    alone("authserv, PLAIN, remembered", again)
    alone("authserv, SCRAM-SHA-256", scram)


# --- suites with users ------------------------------------------------------------------------------------------------

ADDRESS = "bench"
ADDRESSES = {ADDRESS: {"type": "anycast"}, "topic": {"type": "topic", "flavor": "small-persisted-topic"}}
ALLOWED = {"allow": ["send", "recv"], "addresses": [ADDRESS, "topic/#"]}


class RouterOf(Server):
    """The router of a suite."""

    def __init__(self, name: str, suite: Suite) -> None:
        assert suite.process is not None
        super().__init__(name, 5672 + suite.offset, suite.process)
        self._router = psutil.Process(suite.component("router")["pid"])

    def cpu(self) -> float:
        times = self._router.cpu_times()
        return float(times.user + times.system)


@cache
def _proof() -> dict[str, Any]:
    found = hashed("secret", random=True)
    return {"password": found.password, "scram": msgspec.to_builtins(found.scram)}


def users(count: int, *permissions: dict[str, Any]) -> dict[str, Any]:
    """Return alice with these permissions, and other users. Their password is the same in each call, hash included."""
    proof = _proof()  # else it would be a change of all passwords
    own = {"allow": ["send", "recv"], "addresses": ["devices/${user}/#"]}
    return {"alice": {**proof, "permissions": list(permissions)}} | {
        f"u{n}": {**proof, "permissions": [own]} for n in range(count)
    }


def put(suite: Suite, entries: dict[str, Any]) -> float:
    """Replace users.json, and return the time at which it was in its place."""
    new = suite.config / "users.new"
    new.write_text(json.dumps(entries))
    new.chmod(0o600)
    new.rename(suite.config / "users.json")
    return time.monotonic()


@contextlib.contextmanager
def suite_with(entries: dict[str, Any] | None, *options: str) -> Iterator[Suite]:
    """Run a suite; None: without users.json."""
    with tempfile.TemporaryDirectory() as folder, running_suite(Path(folder), ADDRESSES, options=options) as suite:
        if entries is not None:
            put(suite, entries)
        suite.up()
        suite.wait_ready()
        yield suite


def messages(rounds: int, count: int) -> None:
    """Messages a second through the router, of a user with permissions, and without users."""
    login = ("--user", "alice", "--password", "secret")
    with suite_with(users(1000, ALLOWED), *NO_MQTT) as one, suite_with(None, *NO_MQTT) as other:
        ours, theirs = RouterOf("with users", one), RouterOf("without users", other)
        side_by_side(
            "router of a suite, 1 pair, 100 bytes, acknowledged, credit 1000: with users and permissions, and without",
            rounds,
            lambda: load(ours, [ADDRESS], ["--size", "100", *login], count),
            lambda: load(theirs, [ADDRESS], ["--size", "100"], count),
            "rate",
            0.97,
            (ours.name, theirs.name),
        )


NO_MQTT = ("--without", "mqtt")


def _until_detached(suite: Suite, entries: dict[str, Any]) -> float:
    """Return the seconds from the edit until a link is detached."""

    async def detached() -> float:
        async with client(5672 + suite.offset, PlainClient("alice", "secret")) as c:
            link = await c.sender(ADDRESS, timeout=60)
            before = put(suite, entries)
            while not link.closed:
                await asyncio.sleep(0.001)
            return time.monotonic() - before

    return asyncio.run(detached())


def _until_disconnected(suite: Suite, entries: dict[str, Any]) -> float:
    """Return the seconds from the edit until DISCONNECT."""
    with Device(suite.mqtt_port, "bench", "alice", "secret") as device:
        device.connected()
        if device.subscribe("topic/#") != [1]:
            raise RuntimeError("the subscription was refused")
        before = put(suite, entries)
        if device.until_closed() != NOT_AUTHORIZED:
            raise RuntimeError(f"DISCONNECT has the reason {device.reason}")
        return time.monotonic() - before


def changes(rounds: int) -> None:
    """Time from an edit of users.json to its effect on an open connection."""
    for count in (10, 5000):
        allowed, denied = users(count, ALLOWED), users(count)
        with suite_with(allowed) as suite:
            seconds: dict[str, list[float]] = {"AMQP, until detach": [], "MQTT 5, until DISCONNECT": []}
            for _ in range(rounds):
                for name, measured in zip(seconds, (_until_detached, _until_disconnected), strict=True):
                    seconds[name].append(measured(suite, denied))
                    put(suite, allowed)
                    wait_for("alice has her permissions again", partial(_is_permitted, suite))
        for name, found in seconds.items():
            print(
                f"a permission is taken away, {count} users: {name}: {summary([each * 1e3 for each in found])} ms",
                flush=True,
            )


def _is_permitted(suite: Suite) -> bool:
    async def attach() -> bool:
        async with client(5672 + suite.offset, PlainClient("alice", "secret")) as c:
            try:
                await c.sender(ADDRESS, timeout=60)
            except AmqpError:
                return False
            return True

    with Device(suite.mqtt_port, "probe", "alice", "secret") as device, contextlib.suppress(ConnectionError):
        device.connected()
        return device.subscribe("topic/#") == [1] and asyncio.run(attach())
    return False  # the gateway did not know the change yet, and has closed the connection


def main(rounds: int = ROUNDS, count: int = 1000) -> None:
    connections(rounds, count)
    logins(rounds, count)
    messages(rounds, 400 * count)
    changes(4 * rounds)


if __name__ == "__main__":
    main()
