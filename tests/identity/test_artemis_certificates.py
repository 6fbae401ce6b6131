"""Artemis with certificates, as in a cluster: processes authenticate by theirs, and have the rights of their roles."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.processes.roles import TABLE, Listener, Role
from tests.artemis import Artemis
from tests.certificates import Authority
from tests.identity.kit import (
    DEADLINE,
    SASL_HEADER,
    assert_allowed_exactly,
    attach_refused,
    manage_broker,
    message_refused,
)
from tests.kit.running import asyncio_test
from tests.kit.waiting import until, wait_for

pytestmark = pytest.mark.slow  # test_artemis_peers.py, and test_process_certificates.py
ROLES = TABLE[Listener.BROKER]
QUEUES = {"orders": "#", "$sub/b0/c1": "$sub/#"}
"""Queue → pattern of the table that covers it."""


class Certified(Artemis):
    """With the certificate in `suite.own`."""

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return shown(self.port) is not None


def shown(port: int) -> bytes | None:
    """Return the certificate that the broker shows; None: it does not answer yet."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), DEADLINE) as plain,
            context(None).wrap_socket(plain) as secure,  # with TLS 1.3 it is seen before ours is missed
        ):
            return secure.getpeercert(binary_form=True)
    except (OSError, ssl.SSLError):
        return None


def context(folder: Path | None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        made.maximum_version = version
    if folder is not None:
        made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return made


class Suite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.other = Authority(folder / "ca"), Authority(folder / "other")
        self.own = self.issue("broker/enmasse-broker", folder="own")

    def issue(self, *names: str, folder: str = "", other: bool = False, hours: tuple[int, int] = (-1, 1)) -> Path:
        authority = self.other if other else self.authority
        place = self.folder / (folder or f"{'-'.join(names).replace('/', '_')}{other}{hours}")
        return authority.issue_folder(place, *names, hours=hours, ca=self.authority.file)


def dial(port: int, folder: Path, version: ssl.TLSVersion | None = None) -> Client:
    return connect(host="127.0.0.1", port=port, ssl=context(folder, version), external=True, timeout=DEADLINE)


async def let_in(port: int, folder: Path, version: ssl.TLSVersion | None = None) -> bool:
    try:
        async with dial(port, folder, version):
            return True
    except (AmqpError, OSError):
        return False


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    found = Certified(tmp_path_factory.mktemp("artemis"), certificates=str(suite.own))
    try:
        found.start()

        @asyncio_test
        async def make() -> None:
            async with dial(found.port, suite.issue("storage_controller/enmasse-storage-controller")) as c:
                for queue in QUEUES:
                    await manage_broker(c, "createAddress", queue, "ANYCAST")
                    await manage_broker(c, "createQueue", queue, queue, "ANYCAST")

        make()
        yield found
    finally:
        found.end()


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_what_a_role_may_do_is_what_the_table_has(broker: Certified, suite: Suite, role: Role) -> None:
    access, folder = ROLES.get(role), suite.issue(f"{role}/enmasse-{role}")
    assert await let_in(broker.port, folder) is (access is not None)
    if access is None:
        return
    async with dial(broker.port, folder) as c:
        await assert_allowed_exactly(c, access, QUEUES)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@asyncio_test
async def test_others_are_refused(broker: Certified, suite: Suite, version: ssl.TLSVersion) -> None:
    assert await let_in(broker.port, suite.issue("router/enmasse-router"), version)
    for folder in (
        suite.issue("router/enmasse-router", other=True),
        suite.issue("router/enmasse-router", hours=(-2, -1)),
        suite.issue("router/"),
        suite.issue("router"),
        suite.issue("a router/enmasse-router"),
        suite.issue("king/enmasse-router"),
        suite.issue("router/enmasse-router", "operator/enmasse-operator"),
        suite.issue("alice,CN=router/enmasse-router"),
    ):
        assert not await let_in(broker.port, folder, version), folder


@asyncio_test
@pytest.mark.slow
async def test_nothing_is_had_without_a_certificate(broker: Certified) -> None:
    with pytest.raises((AmqpError, OSError)):
        async with connect(host="127.0.0.1", port=broker.port, timeout=DEADLINE):
            pass
    with pytest.raises((AmqpError, OSError)):
        async with connect(host="127.0.0.1", port=broker.port, ssl=context(None), timeout=DEADLINE):
            pass


def test_no_mechanism_but_external_is_offered(broker: Certified, suite: Suite) -> None:
    router = context(suite.issue("router/enmasse-router"))
    with (
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as plain,
        router.wrap_socket(plain) as secure,
    ):
        secure.sendall(SASL_HEADER)
        said = b""
        while b"EXTERNAL" not in said:
            more = secure.recv(4096)
            assert more
            said += more
    assert not any(other in said for other in (b"PLAIN", b"ANONYMOUS", b"SCRAM"))


@asyncio_test
async def test_without_sasl_the_role_is_that_of_the_certificate_too(broker: Certified, suite: Suite) -> None:
    """Artemis takes a connection that skips SASL."""
    for role, listed in ((Role.SUBSERV, True), (Role.GATEWAY, False)):
        client = dial(broker.port, suite.issue(f"{role}/enmasse-{role}"))
        client._settings["sasl"] = None
        try:
            async with client as c:
                assert await attach_refused(c, "orders", send=True) and await message_refused(c, "orders")
                assert await attach_refused(c, "$sub/b0/c1", send=True) is not listed
        except AmqpError:
            assert not listed


@asyncio_test
async def test_a_replaced_certificate_is_shown_while_connections_stay(broker: Certified, suite: Suite) -> None:
    """With a key in the form of RFC 5915 (EC PRIVATE KEY), which is what Helm makes."""
    async with dial(broker.port, suite.issue("router/enmasse-router")) as c:
        before = shown(broker.port)
        suite.issue("broker/enmasse-broker", folder="own")
        key = suite.own / "tls.key"
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        text = loaded.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        assert b"EC PRIVATE KEY" in text
        key.write_bytes(text)
        wanted = ssl.PEM_cert_to_DER_cert((suite.own / "tls.crt").read_text())
        wait_for(lambda: shown(broker.port) == wanted, "the new certificate")
        assert before != wanted
        sender = await c.sender("orders", timeout=DEADLINE)
        assert sender is not None
    again = suite.issue("router/enmasse-router")
    await until(lambda: let_in(broker.port, again))  # it opens its port again for each file that has changed
