"""Identities, clients, operations, types of addresses and permissions: what a client sees, by the table of matrix/."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from paho.mqtt.client import MQTTv5, MQTTv311
from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container
from proton.utils import BlockingConnection

from enmasse.testing import Suite, running, wait_for
from tests.authserv.published import AUDIENCE, Published
from tests.certificates import Authority
from tests.interop.clients import Broken
from tests.interop.matrix import clients
from tests.interop.matrix.clients import Files, Login, Open, Place, Session, text
from tests.interop.matrix.table import (
    ACCEPTED,
    ANOTHER,
    CERTIFIED,
    CLIENTS,
    EXPIRED,
    FOREIGN,
    IDENTITIES,
    NO_USER,
    NOTHING,
    OLD,
    OPERATIONS,
    REMOVED,
    TOKEN,
    TYPES,
    UNKNOWN,
    WRONG,
    Cell,
    cells,
    page,
)
from tests.kit.waiting import DEADLINE
from tests.system.users import allow, apply, entry, write_users

pytestmark = pytest.mark.timeout(1200)  # where nobody has built the clients before, the first test does

SEND, RECEIVE = OPERATIONS
FLAVORS = {"queue": "small-persisted-queue", "topic": "small-persisted-topic"}
GRANTS = {"in": SEND, "out": RECEIVE, "closed": RECEIVE}
"""Name of an address after its type → what the users may do there."""
ADDRESSES = {
    f"{type}-{name}": {"type": type, **({"flavor": FLAVORS[type]} if type in FLAVORS else {})}
    for type in TYPES
    for name in GRANTS
}
OBSERVED = [address for address in ADDRESSES if not address.endswith("-out")]
RIGHTS = [
    allow(
        *(f"{type}-{name}" for type in TYPES for name, grant in GRANTS.items() if grant == operation), operations=[op]
    )
    for operation, op in ((SEND, "send"), (RECEIVE, "recv"))
]
PASSWORD = "the-right-one"
ALIKE = ("rhea", "jms", "paho-5", "paho-5-websocket", "mosquitto-3")
"""Clients for which another one of their protocol or program stands in `make test`."""


def address_of(cell: Cell) -> str:
    """Return the address of an attempt: one where the user may do the operation, or only the other one."""
    if cell.permitted:
        return f"{cell.type}-{'in' if cell.operation == SEND else 'out'}"
    return f"{cell.type}-{'closed' if cell.operation == SEND else 'in'}"


def users() -> dict[str, Any]:
    """Return the users of all clients: those who may err, each with few failures, and those who are removed."""
    found = {"admin": entry("admin", allow("#")), "user": entry(PASSWORD, *RIGHTS)}
    for client, type in itertools.product(CLIENTS, TYPES):
        found[f"erring-{client}-{type}"] = found["user"]
    return {**found, **{f"leaving-{client}": found["user"] for client in CLIENTS}}


class Certificates:
    """The suite's certificate, and those of clients. `authority`: the file of the authority of both."""

    def __init__(self, folder: Path) -> None:
        good, other = Authority(folder / "good"), Authority(folder / "other")
        self.authority = good.file
        self.own = good.issue("server")
        self.clients = {
            CERTIFIED: files(good, "user"),
            NO_USER: files(good, "nobody"),
            ANOTHER: files(other, "user"),
            EXPIRED: files(good, "expired", names=("user",), hours=(-2, -1)),
        }


def files(authority: Authority, name: str, **more: Any) -> Files:
    certificate, key = authority.issue(name, **more)
    private: Any = load_pem_private_key(key.read_bytes(), None)
    made = load_pem_x509_certificate(certificate.read_bytes())
    store = serialize_key_and_certificates(None, private, made, None, BestAvailableEncryption(b"password"))
    path = certificate.with_suffix(".p12")
    path.write_bytes(store)
    return Files(certificate, key, path)


class Tokens:
    """Tokens of the suite's issuer, and of another one that signs with the same key."""

    def __init__(self) -> None:
        self.issuer, self.other = Published(), Published()

    def login(self, identity: str, user: str) -> Login:
        """Return a login of this user with a token. Refused ones have names of their own: failures are limited."""
        seconds = -3600 if identity == OLD else 3600
        made = (self.other if identity == FOREIGN else self.issuer).token(
            preferred_username=user, exp=int(time.time()) + seconds
        )
        return Login(user, made, token=True)

    def close(self) -> None:
        self.issuer.close()
        self.other.close()


def login_of(client: str, cell: Cell, certificates: Certificates, tokens: Tokens) -> Login:
    if cell.identity in certificates.clients:
        return Login(files=certificates.clients[cell.identity])
    if cell.identity in (TOKEN, OLD, FOREIGN):
        user = "user" if cell.identity == TOKEN else f"{cell.identity}-{client}-{cell.type}"
        return tokens.login(cell.identity, user)
    return {
        WRONG: Login(f"erring-{client}-{cell.type}", "wrong"),
        UNKNOWN: Login("-".join(map(str, ("nobody", client, *cell))), PASSWORD),
        NOTHING: Login(),
        REMOVED: Login(f"leaving-{client}", PASSWORD),
    }.get(cell.identity, Login("user", PASSWORD))


class Observer(MessagingHandler):
    """Receives everything that comes to these addresses."""

    def __init__(self, suite: Suite, addresses: list[str]) -> None:
        super().__init__()
        self._suite, self._addresses = suite, addresses
        self.bodies: dict[str, list[str]] = defaultdict(list)
        self.opened = 0
        self._container = Container(self)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(
            self._suite.url, user="admin", password="admin", allow_insecure_mechs=True, allowed_mechs="PLAIN"
        )
        for address in self._addresses:
            event.container.create_receiver(connection, address)

    def on_link_opened(self, event: Event) -> None:
        self.opened += 1

    def on_message(self, event: Event) -> None:
        self.bodies[event.receiver.source.address].append(text(event.message.body))

    def seen(self, address: str, body: str) -> None:
        wait_for(f"{body} at {address}", lambda: body in self.bodies[address])


class Running:
    """The suite, an administrator's connection, and the observer."""

    def __init__(self, suite: Suite, certificates: Certificates, tokens: Tokens) -> None:
        self.suite, self.certificates, self.tokens = suite, certificates, tokens
        self.observer = Observer(suite, OBSERVED)
        wait_for("the observer's links", lambda: self.observer.opened == len(OBSERVED))

    def send(self, address: str, body: str) -> None:
        """Send as the administrator; where the observer receives, it has the message then."""
        admin = BlockingConnection(
            self.suite.url,
            timeout=DEADLINE,
            user="admin",
            password="admin",
            allow_insecure_mechs=True,
            allowed_mechs="PLAIN",
        )
        sender = admin.create_sender(address, options=AtMostOnce())  # Proton's client settles nothing meanwhile
        admin.wait(lambda: sender.link.credit)
        sender.send(Message(body=body))
        admin.close()
        if address in OBSERVED:
            self.observer.seen(address, body)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    cert, key = map(str, certificates.own)
    tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(certificates.authority))
    tokens = Tokens()
    with (
        contextlib.closing(tokens),
        running(tmp_path_factory.mktemp("matrix"), ADDRESSES, options=tls) as suite,
    ):
        sso = {"issuer": tokens.issuer.url, "audience": AUDIENCE}
        (suite.config / "issuers.json").write_text(json.dumps({"sso": sso}))
        write_users(suite, users())
        suite.up(240)
        suite.wait_ready()
        apply(suite, users())
        yield Running(suite, certificates, tokens)


@contextlib.contextmanager
def opening(client: str, running: Running) -> Iterator[Open]:
    """Make a client. Each but Proton has a source address of its own: failed logins count for an address."""
    source = f"127.0.0.{10 + list(CLIENTS).index(client)}"
    place = Place(running.suite, running.certificates.authority, source)
    try:
        if client == "jms":
            with clients.program(clients.jms_cells(), place) as found:
                yield found
        elif client == "rhea":
            with clients.program(clients.rhea_cells(), place) as found:
                yield found
        elif client == "proton":
            yield partial(clients.Proton, place)
        elif client.startswith("paho"):
            version = MQTTv311 if client == "paho-3" else MQTTv5
            yield partial(clients.PahoSession, place, version=version, websocket=client.endswith("websocket"))
        else:
            yield partial(clients.Mosquitto, place, version="mqttv311" if client == "mosquitto-3" else "mqttv5")
    except Broken as error:
        pytest.fail(str(error), pytrace=False)


class Attempts:
    """All attempts of a client. `outcomes`: what it saw. `delivered`: bodies of messages that had to be refused, and
    came."""

    def __init__(self, place: Running, client: str, open: Open) -> None:
        self._place, self._client, self._open = place, client, open
        self.outcomes: dict[Cell, str] = {}
        self.delivered: list[str] = []
        for cell in cells(client):
            if cell.identity != REMOVED:
                self._attempt(cell)
        self._removed()
        self._nothing_refused_is_delivered()

    def _body(self, *words: Any) -> str:
        return "/".join(map(str, (self._client, *words)))

    def _begin(self, cell: Cell) -> Session:
        return self._open(
            login_of(self._client, cell, self._place.certificates, self._place.tokens),
            cell.operation,
            address_of(cell),
            self._body(*cell),
        )

    def _attempt(self, cell: Cell) -> None:
        session = self._begin(cell)
        self.outcomes[cell] = session.outcome
        if cell.operation == RECEIVE:
            probe = self._body("probe", *cell)
            if session.outcome in ("attached", "SUBACK 1"):
                self._place.send(address_of(cell), probe)
                if (found := session.take()) != probe:
                    self.outcomes[cell] += f", but {found} came"
            elif not cell.permitted:
                self._place.send(address_of(cell), probe)  # the observer gets it
        self.delivered += session.close()

    def _removed(self) -> None:
        """All attempts are connected; then their user is removed."""
        sessions = {cell: self._begin(cell) for cell in cells(self._client) if cell.identity == REMOVED}
        everybody = users()
        del everybody[f"leaving-{self._client}"]
        apply(self._place.suite, everybody)
        for cell, session in sessions.items():
            before = cell._replace(identity="right").row[CLIENTS[self._client].family]
            self.outcomes[cell] = f"{session.outcome} before"
            if session.outcome == before:
                self.outcomes[cell] = before if before == "closed" else session.gone()
            self.delivered += session.close()

    def _nothing_refused_is_delivered(self) -> None:
        for address in OBSERVED:
            self._place.send(address, self._body("last"))
        refused = {
            self._body(*cell)
            for cell in self.outcomes
            if not cell.permitted or cell.identity not in (*ACCEPTED, REMOVED)
        }
        self.delivered += [
            body for bodies in self._place.observer.bodies.values() for body in bodies if body in refused
        ]


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=[pytest.mark.slow] if each in ALIKE else []) for each in CLIENTS],
)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def attempts(place: Running, client: str) -> Attempts:
    with opening(client, place) as open:
        return Attempts(place, client, open)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_what_a_client_sees(client: str, attempts: Attempts, identity: str) -> None:
    wrong = []
    for cell in cells(client):
        found, expected = attempts.outcomes[cell], cell.row[CLIENTS[client].family]
        if cell.identity == identity and found not in expected.split(" or "):
            wrong.append(f"{'/'.join(map(str, cell))}: {found}, expected {expected}")
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def test_nothing_that_is_refused_is_delivered(attempts: Attempts) -> None:
    assert attempts.delivered == []


def test_the_page_in_docs_is_made_from_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text()
    assert text == page(), "run: python -m tests.interop.matrix.table > docs/outcomes.md"
