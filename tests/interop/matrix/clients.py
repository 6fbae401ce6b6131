"""Connections of users by clients of several families: what each sees of a login, an operation, and its end."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from paho.mqtt.client import Client as Paho
from paho.mqtt.client import MQTTv5, WebsocketConnectionError
from paho.mqtt.enums import CallbackAPIVersion
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from enmasse.testing import Suite
from tests.interop.clients import JMS_VERSIONS, jms, rhea
from tests.kit.waiting import DEADLINE

PATIENCE = DEADLINE
RECEIVE = "receive"


class Files(NamedTuple):
    """A client's certificate and key, and both as PKCS 12 with the password `password`."""

    certificate: Path
    key: Path
    store: Path


class Login(NamedTuple):
    """What a client presents; None: nothing. `files`: its certificate, over TLS. `token`: the password is a token."""

    user: str | None = None
    password: str = "-"
    files: Files | None = None
    token: bool = False


class Place(NamedTuple):
    """The suite, the file with the authority of its certificate, and the address of the client."""

    suite: Suite
    authority: Path
    source: str

    def port(self, login: Login, plain: int, tls: int) -> int:
        return (plain if login.files is None else tls) + self.suite.offset


class Session(Protocol):
    """A connection, or the attempt. `outcome`: of the operation, or of the login if that was refused."""

    outcome: str

    def take(self) -> str:
        """Return the next message."""
        ...

    def gone(self) -> str:
        """Return why the connection has ended."""
        ...

    def close(self) -> list[str]:
        """Return the messages that have come and were not taken."""
        ...


Open = Callable[[Login, str, str, str], Session]
"""Log in and do an operation: login, operation, address, body of the message."""


# --- Proton -----------------------------------------------------------------------------------------------------------


class Proton:
    """python-qpid-proton, by PLAIN or EXTERNAL."""

    def __init__(self, place: Place, login: Login, operation: str, address: str, body: str) -> None:
        self._connection: BlockingConnection | None = None
        self._receiver: BlockingReceiver | None = None
        try:
            self._connection = BlockingConnection(
                f"{'amqp' if login.files is None else 'amqps'}://127.0.0.1:{place.port(login, 5672, 5671)}",
                timeout=PATIENCE, user=login.user, password=login.password, allow_insecure_mechs=True,
                sasl_enabled=True, allowed_mechs=_mechanism(login), ssl_domain=_domain(place, login),
            )  # fmt: skip
            if operation == RECEIVE:
                self._receiver = self._connection.create_receiver(address, credit=10)
                self.outcome = "attached"
            else:
                self._connection.create_sender(address).send(Message(body=body))
                self.outcome = "accepted"
        except (ConnectionException, LinkDetached, SendException) as refusal:
            self.outcome = _of_proton(refusal)

    def take(self) -> str:
        assert self._receiver is not None
        message = self._receiver.receive(PATIENCE)
        if self._receiver.fetcher.unsettled:  # a broker's
            self._receiver.accept()
        return text(message.body)

    def gone(self) -> str:
        assert self._connection is not None
        try:
            self._connection.wait(lambda: False, timeout=PATIENCE)
        except ConnectionException as refusal:
            return _of_proton(refusal)
        raise AssertionError("the connection has not ended")

    def close(self) -> list[str]:
        left: list[str] = []
        if self._connection is not None:
            with contextlib.suppress(ConnectionException, LinkDetached):
                if self._receiver is not None:
                    left = [text(message.body) for message, _ in self._receiver.fetcher.incoming]
                self._connection.close()
        return left


def _mechanism(login: Login) -> str:
    if login.files is not None:
        return "EXTERNAL"
    return "ANONYMOUS" if login.user is None else "PLAIN"


def _domain(place: Place, login: Login) -> SSLDomain | None:
    if login.files is None:
        return None
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(place.authority))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    domain.set_credentials(str(login.files.certificate), str(login.files.key), None)
    return domain


def _of_proton(refusal: Exception) -> str:
    found = re.search(r"Condition\('([^']*)'", str(refusal))  # of a login it has no attribute
    return f"{type(refusal).__name__} {found and found[1]}"


def text(body: Any) -> str:
    return body if isinstance(body, str) else bytes(body).decode()


# --- programs on clients of other languages ---------------------------------------------------------------------------


class Conversation:
    """A program that obeys commands, a line each, and answers each with a line."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._numbers = iter(range(1_000_000))

    def ask(self, *words: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        answer = self._process.stdout.readline()
        assert answer, f"the program has ended at {words}"
        return answer.rstrip("\n")

    def open(self, login: Login, operation: str, address: str, body: str) -> Session:
        return Told(self, str(next(self._numbers)), login, operation, address, body)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Told:
    """A session of such a program."""

    def __init__(self, program: Conversation, id: str, login: Login, *words: str) -> None:
        self._program, self._id = program, id
        files = ("-", "-", "-") if login.files is None else map(str, login.files)
        proof = ("-", login.password) if login.token else (login.password, "-")
        self.outcome = program.ask("open", id, login.user or "-", *proof, *files, *words)

    def take(self) -> str:
        return self._program.ask("take", self._id)

    def gone(self) -> str:
        return self._program.ask("gone", self._id)

    def close(self) -> list[str]:
        found: list[str] = json.loads(self._program.ask("close", self._id))
        return found


# --- paho -------------------------------------------------------------------------------------------------------------


class PahoSession:
    """paho-mqtt. It sends with QoS 1."""

    def __init__(
        self, place: Place, login: Login, operation: str, address: str, body: str, *, version: int, websocket: bool
    ) -> None:  # fmt: skip
        self._events: queue.Queue[str] = queue.Queue()
        self._bodies: queue.Queue[str] = queue.Queue()
        self._client = client = Paho(
            CallbackAPIVersion.VERSION2, protocol=version, transport="websockets" if websocket else "tcp",
            reconnect_on_failure=False,
        )  # fmt: skip
        if login.user is not None:
            client.username_pw_set(login.user, login.password)
        codes = {} if version == MQTTv5 else OF_3
        client.on_connect = lambda c, data, flags, reason, more: self._tell(
            "CONNACK", codes.get(reason.value, reason.value)
        )
        client.on_subscribe = lambda c, data, mid, reasons, more: self._tell("SUBACK", reasons[0].value)
        client.on_publish = lambda c, data, mid, reason, more: self._tell("PUBACK", reason.value)
        client.on_disconnect = lambda c, data, flags, reason, more: (
            self._tell("DISCONNECT", reason.value) if flags.is_disconnect_packet_from_server
            else self._events.put("closed")
        )  # fmt: skip
        client.on_message = lambda c, data, message: self._bodies.put(message.payload.decode())
        if login.files is not None:
            client.tls_set(str(place.authority), str(login.files.certificate), str(login.files.key))
        port = place.port(login, 8083, 8084) if websocket else place.port(login, 1883, 8883)
        try:
            client.connect("127.0.0.1", port, keepalive=300, bind_address=place.source)
        except (OSError, WebsocketConnectionError):  # the handshake
            self.outcome = "closed"
            return
        client.loop_start()
        self.outcome = self._next()
        if self.outcome == "CONNACK 0":
            if operation == RECEIVE:
                client.subscribe(address, 1)
            else:
                client.publish(address, body, 1)
            self.outcome = self._next()

    def _tell(self, packet: str, code: int) -> None:
        self._events.put(told(packet, code))

    def _next(self) -> str:
        return self._events.get(timeout=PATIENCE)

    def take(self) -> str:
        return self._bodies.get(timeout=PATIENCE)

    def gone(self) -> str:
        return self._next()

    def close(self) -> list[str]:
        self._client.disconnect()
        self._client.loop_stop()
        return list(self._bodies.queue)


OF_3 = {0x86: 4, 0x87: 5, 0x88: 3}
"""Codes of MQTT 5 that paho shows for those of CONNACK in 3.1.1."""


# --- mosquitto --------------------------------------------------------------------------------------------------------

LINES = {
    r".*received CONNACK \((?!0\))(\d+)\)": "CONNACK",
    r".*received PUBACK \(Mid: 1, RC:(\d+)\)": "PUBACK",
    r"Subscribed \(mid: 1\): (\d+)": "SUBACK",
    r"Received DISCONNECT \((\d+)\)": "DISCONNECT",
}
"""What the programs print, and the packet that it is about."""
BODY = "body "


class Mosquitto:
    """mosquitto_pub, which sends each line of its input with QoS 1, and mosquitto_sub. A program whose connection is
    closed opens another one, or ends."""

    def __init__(self, place: Place, login: Login, operation: str, address: str, body: str, *, version: str) -> None:
        program = ["mosquitto_sub", "-F", f"{BODY}%p"] if operation == RECEIVE else ["mosquitto_pub", "-l"]
        if operation != RECEIVE and login.files is not None:
            program = ["mosquitto_pub", "-m", body]  # with -l it does not tell that a handshake has failed
        command = ["stdbuf", "-oL", *program, "-h", "127.0.0.1", "-p", str(place.port(login, 1883, 8883))]
        command += ["-A", place.source, "-V", version, "-q", "1", "-d", "-t", address]
        if login.files is not None:
            command += ["--cafile", str(place.authority), "--cert", str(login.files.certificate)]
            command += ["--key", str(login.files.key)]
        if login.user is not None:
            command += ["-u", login.user, "-P", login.password]
        self._bodies: queue.Queue[str] = queue.Queue()
        self._events: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        if operation != RECEIVE and login.files is None:
            self._process.stdin.write(f"{body}\n")
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.outcome = self.gone()

    def _read(self) -> None:
        assert self._process.stdout is not None
        connects = 0
        for line in self._process.stdout:
            if line.startswith(BODY):
                self._bodies.put(line.removeprefix(BODY).rstrip("\n"))
            connects += line.endswith("sending CONNECT\n")
            if connects == 2:
                self._events.put("closed")
            for pattern, packet in LINES.items():
                if found := re.match(pattern, line):
                    self._events.put(told(packet, int(found[1])))
        self._events.put("closed")  # the program has ended

    def take(self) -> str:
        return self._bodies.get(timeout=PATIENCE)

    def gone(self) -> str:
        return self._events.get(timeout=PATIENCE)

    def close(self) -> list[str]:
        self._process.kill()
        self._reading.join()
        self._process.communicate()
        return list(self._bodies.queue)


def told(packet: str, code: int) -> str:
    """Return packet and code; 1 granted is QoS 1, 0x10 of PUBACK is a message without subscribers."""
    return f"{packet} {code}" if code < 6 else f"{packet} {code:#04x}"


@contextlib.contextmanager
def program(command: list[str], place: Place) -> Iterator[Open]:
    """Run a program for sessions."""
    ports = (str(port + place.suite.offset) for port in (5672, 5671))
    conversation = Conversation([*command, "127.0.0.1", *ports, str(place.authority), place.source])
    try:
        yield conversation.open
    finally:
        conversation.end()


def jms_cells() -> list[str]:
    """Return the command of the program on Qpid JMS. Raises Broken."""
    return [*jms(JMS_VERSIONS[-1])[:-1], "enmasse.interop.Cells"]


def rhea_cells() -> list[str]:
    """Return the command of the program on rhea. Raises Broken."""
    node, main = rhea()
    return [node, str(Path(main).with_name("cells.js"))]
