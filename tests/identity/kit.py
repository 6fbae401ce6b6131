"""Credentials of a suite's processes, services that check them, and what a peer gets there."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import Rejected, encode_performative
from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.amqp.sasl.layer import PlainClient, SaslClient
from enmasse.identity.processes.credentials import Credential, PeerEntry, new_secret, peers_text
from enmasse.identity.processes.roles import Access, Role
from enmasse.identity.processes.scram import verifier
from enmasse.testing import free_port
from tests.kit import waiting
from tests.kit.processes import start_service
from tests.kit.waiting import wait_for

REFUSED = "amqp:unauthorized-access"
EVENT = "identity.peer.refused"
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
DEADLINE = waiting.DEADLINE


class Suite:
    """One process for each role, named `<role>-0`: secrets, and the file of verifiers for listeners."""

    def __init__(self, folder: Path, roles: Iterable[Role] = Role) -> None:
        self.folder = folder
        self.file = folder / "peers.json"
        self._entries: dict[tuple[str, str], PeerEntry] = {}
        self.secrets = {name_of(role): (role, new_secret()) for role in roles}
        self.write()

    def write(self) -> None:
        """Replace the file as the supervisor does."""
        for name, (role, secret) in self.secrets.items():
            if (name, secret) not in self._entries:
                self._entries[name, secret] = PeerEntry(role, verifier(secret))
        entries = {name: self._entries[name, secret] for name, (_, secret) in self.secrets.items()}
        new = self.folder / "peers.new"
        new.write_text(peers_text(entries))
        new.replace(self.file)

    def credential(self, role: Role) -> Credential:
        """Return the credential of the process with this role."""
        name = name_of(role)
        return Credential(name, role, self.secrets[name][1])

    def credential_file(self, role: Role) -> Path:
        """Write the credential of a process, as its setting `credential` names it."""
        path = self.folder / f"{name_of(role)}.json"
        path.write_bytes(msgspec.json.encode(self.credential(role)))
        return path


def name_of(role: Role) -> str:
    return f"{role}-0"


class Service:
    """A service as a process, with these settings beside the common ones. `log()` has its log events."""

    def __init__(self, kind: str, **settings: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._health = free_port()
        folder = Path(self._folder.name)
        config = folder / "settings.json"
        config.write_text(
            json.dumps({"name": "s0", "health": f"127.0.0.1:{self._health}", "log_level": "info", **settings})
        )
        self._log = (folder / "log").open("w+")
        self._process = start_service(kind, config, log=self._log)
        wait_for(self._ready, f"the {kind} is ready")

    def _ready(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/healthz", timeout=DEADLINE) as answer:
                return bool(json.load(answer)["ready"])
        except (OSError, urllib.error.HTTPError):
            return False

    def log(self) -> list[dict[str, Any]]:
        """Return the log events until now."""
        lines = Path(self._log.name).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(DEADLINE) == 0
            assert "Traceback" not in Path(self._log.name).read_text()
        finally:
            self._log.close()
            self._folder.cleanup()


def dial(port: int, credential: Credential, **more: Any) -> Client:
    """Return a connection of a process with this credential."""
    return connect(host="127.0.0.1", port=port, credential=credential, timeout=DEADLINE, **more)


async def refusal(port: int, credential: Credential | None, *, plain: Credential | None = None, **more: Any) -> str:
    """Return the condition that a connection ends with before it can be used; "" if it can be used. Without a
    credential the client is anonymous; with `plain` it authenticates by PLAIN."""
    client = connect(host="127.0.0.1", port=port, **more) if credential is None else dial(port, credential, **more)
    if plain is not None:
        client._settings["sasl"] = SaslClient([PlainClient(plain.name, plain.secret)])
    return await end_of(client)


async def end_of(client: Client) -> str:
    """Open a connection. Return the condition that it ends with before it can be used; "" if it can be used."""
    try:
        async with client as c:
            with contextlib.suppress(AmqpError):  # of the link, unless the connection has ended
                await c.receiver(None, dynamic=True, timeout=DEADLINE)
            return "" if c.error is None else c.error.condition
    except AmqpError as error:
        return error.condition


async def attach_refused(c: Client, address: str, *, send: bool) -> bool:
    """Return whether the peer may not attach there; another error than that is none of its rights."""
    try:
        link = await (c.sender(address, timeout=DEADLINE) if send else c.receiver(address, credit=0, timeout=DEADLINE))
    except AmqpError as error:
        return error.condition == REFUSED
    await link.close()
    return False


async def condition_after(c: Client, address: str, body: bytes) -> str:
    """Return the condition with which the peer ends the connection after a settled message with this body."""
    sender = await c.sender(address, timeout=DEADLINE)
    await sender.send(body, settled=True, timeout=DEADLINE)
    with pytest.raises(AmqpError) as error:
        await sender.send(body, timeout=DEADLINE)
    return error.value.condition


async def message_refused(c: Client, address: str) -> bool:
    """Return whether a message by way of the anonymous terminus is refused for lack of rights."""
    relay = await c.sender(None, timeout=DEADLINE)
    outcome = await relay.send(Message(to=address, body="forged"), timeout=DEADLINE)
    await relay.close()
    return isinstance(outcome, Rejected) and outcome.error is not None and outcome.error.condition == REFUSED


def offered(port: int) -> list[str]:
    """Return the mechanisms that a listener offers."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as s:
        s.sendall(SASL_HEADER)
        s.settimeout(DEADLINE)
        data = b""
        while len(data) < 12 or len(data) < 8 + struct.unpack(">I", data[8:12])[0]:
            more = s.recv(4096)
            assert more, "the listener has closed the connection"
            data += more
    return [name for name in ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS", "EXTERNAL") if name.encode() in data]


def answer_to(port: int, *sent: bytes) -> bytes:
    """Return everything that a listener answers to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as s:
        s.settimeout(DEADLINE)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for data in sent:
                s.sendall(data)
        answer = b""
        try:
            while more := s.recv(4096):
                answer += more
        except ConnectionResetError:
            pass
    return answer


def frame(performative: Any, kind: int) -> bytes:
    """Return a frame of this kind (0: AMQP, 1: SASL) on channel 0."""
    body = encode_performative(performative)
    return HEADER(len(body) + 8, 2, kind, 0) + body


class Overhearing:
    """A relay to a port, for one connection: `sent` is what the client has sent, in pieces."""

    def __init__(self, port: int) -> None:
        self.sent: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(port,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _run(self, port: int) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", port), DEADLINE) as server:
            back = threading.Thread(target=self._pass_on, args=(server, client, []))
            back.start()
            self._pass_on(client, server, self.sent)
            back.join()

    @staticmethod
    def _pass_on(source: socket.socket, to: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):  # the other end has gone
            while data := source.recv(65536):
                kept.append(data)
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


def refused_events(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(line) for line in log if line.get("event") == EVENT]


def refusals_logged(service: Service, suite: Suite, *expected: tuple[str, str, str]) -> None:
    """Wait until each refusal (name, role, part of the reason) is logged with its address; the log has no secret."""
    for each in expected:
        name, role, reason = each
        found = wait_for(
            lambda: [
                event
                for event in refused_events(service.log())
                if (event["name"], event["role"]) == (name, role) and reason in event["reason"]
            ],
            str(each),
        )
        assert found[-1]["peer"].startswith("127.0.0.1:") and found[-1]["level"] == "warning"
    log = str(service.log())
    assert not [secret for _, secret in suite.secrets.values() if secret in log]


async def query(c: Client, kind: str, *names: str) -> list[Any]:
    """Return these attributes of a router's entities."""
    properties = {"operation": "QUERY", "entityType": f"org.apache.qpid.dispatch.{kind}"}
    body = AmqpValue({"attributeNames": list(names)})
    reply: Any = await c.request(Message(application_properties=properties, body=body), "$management")
    assert reply.application_properties["statusCode"] == 200, reply
    return [list(row) for row in reply.body["results"]]


async def manage_broker(c: Client, operation: str, *parameters: Any) -> Any:
    """Return the result of an operation of the broker."""
    properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
    reply = await c.request(
        Message(application_properties=properties, body=json.dumps(parameters)), "activemq.management"
    )
    assert reply.application_properties is not None and reply.application_properties["_AMQ_OperationSucceeded"], reply
    return json.loads(str(reply.body))[0] if reply.body else None


async def assert_allowed_exactly(c: Client, access: Access, queues: Mapping[str, str]) -> None:
    """Assert that the peer of a broker may do what `access` lists, and nothing else. `queues`: each with the pattern of
    the table that covers it."""
    for queue, pattern in queues.items():
        assert await attach_refused(c, queue, send=True) is (pattern not in access.send), queue
        assert await message_refused(c, queue) is (pattern not in access.send), queue
        assert await attach_refused(c, queue, send=False) is (pattern not in access.recv), queue
    if access.manage:
        assert await manage_broker(c, "getQueueNames")
    else:
        with pytest.raises(AmqpError):
            await manage_broker(c, "getQueueNames")
    await c.receiver(None, dynamic=True, timeout=DEADLINE)
