"""A certificate that is renewed while a server runs: what new connections see."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
from pathlib import Path

import pytest
import uvloop

from enmasse.aio.transport import Hub
from enmasse.network import tls
from enmasse.supervisor.certificate_troubles import DAY, Certificates, ends_soon
from services.router.app import LoopClock, readiness
from services.router.config import RouterSettings, make_router, router_attributes
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import ListenerConfig, SslProfile
from services.router.network.sockets import Sockets
from tests.certificates import Authority
from tests.kit.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def subject(authority: Authority, port: int) -> str:
    """The common name in the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.client_context())
    found = writer.get_extra_info("peercert")["subject"]
    writer.close()
    return str(found[0][0][1])


async def becomes(authority: Authority, port: int, name: str) -> None:
    async def has_become() -> bool:
        return await subject(authority, port) == name

    await until(has_become, f"the certificate of {name}")


def replace(authority: Authority, name: str, cert: Path, key: Path) -> None:
    """Both files by rename, the certificate first."""
    for new, old in zip(authority.issue(name), (cert, key), strict=True):
        new.rename(old)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_new_connections_see_the_renewed_certificate(authority: Authority, factory: object) -> None:
    async def run() -> None:
        cert, key = authority.issue("first")
        context = tls.server(str(cert), str(key)).listening()
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        assert await subject(authority, port) == "first"

        replace(authority, "second", cert, key)
        await becomes(authority, port, "second")

        # The files are not replaced at one moment, and may be wrong for long: what was good stays.
        other, _ = authority.issue("other")
        other.rename(cert)
        for _ in range(2):
            assert await subject(authority, port) == "second"
        key.unlink()
        for _ in range(2):
            assert await subject(authority, port) == "second"

        replace(authority, "third", cert, key)
        await becomes(authority, port, "third")
        server.close()

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]  # a factory of another kind of loop
        runner.run(run())


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_new_connections_are_verified_by_the_renewed_authority(tmp_path: Path, factory: object) -> None:
    """Clients of the authority before are refused from then on; connections that are open stay."""

    async def run() -> None:
        first, second = (Authority(folder) for folder in (tmp_path / "1", tmp_path / "2"))
        cert, key = first.issue("server")
        ca = tmp_path / "ca.crt"
        shutil.copy(first.file, ca)
        context = tls.server(str(cert), str(key), ca=str(ca)).listening()
        server = await asyncio.start_server(_echo, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]

        async def accepted(client: ssl.SSLContext) -> bool:
            client.load_verify_locations(first.file)
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                writer.write(b"x")
                found = await reader.read(1)
            except OSError:
                return False
            writer.close()
            return found == b"x"

        assert await accepted(first.client_context("client"))
        assert not await accepted(first.client_context())
        assert not await accepted(second.client_context("client"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=first.client_context("client"))
        second.file.rename(ca)
        assert not await accepted(first.client_context("client"))
        second.file.write_bytes(ca.read_bytes())
        assert await accepted(second.client_context("client"))
        writer.write(b"y")
        assert await reader.read(1) == b"y"
        writer.close()
        server.close()

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]  # a factory of another kind of loop
        runner.run(run())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_survives_its_authority(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A client that resumes a session presents no certificate, so that nothing would be verified."""
    first, second = (Authority(folder) for folder in (tmp_path / "1", tmp_path / "2"))
    cert, key = first.issue("server")
    ca = tmp_path / "ca.crt"
    shutil.copy(first.file, ca)
    client = first.client_context("client")
    client.maximum_version = version

    def connected(port: int, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        """Whether the server answers, and the session that it has agreed to."""
        try:
            with (
                socket.create_connection(("127.0.0.1", port)) as sock,
                client.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as wrapped,
            ):
                wrapped.sendall(b"x")
                return wrapped.recv(1) == b"x", wrapped.session
        except OSError:
            return False, None

    async def run() -> None:
        context = tls.server(str(cert), str(key), ca=str(ca)).listening()
        server = await asyncio.start_server(_echo, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        answered, session = await asyncio.to_thread(connected, port, None)
        assert answered
        second.file.rename(ca)
        assert not (await asyncio.to_thread(connected, port, session))[0]
        server.close()

    asyncio.run(run())


def test_a_listener_remembers_few_sessions(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of TLS 1.2 without tickets, which any client can begin; those of the last connections can be resumed."""
    monkeypatch.setattr(tls, "MOST_SESSIONS", 5)
    cert, key = authority.issue("server")
    context = tls.server(str(cert), str(key)).listening()
    client = authority.client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.options |= ssl.OP_NO_TICKET

    def connected(session: ssl.SSLSession | None = None) -> tuple[ssl.SSLObject, ssl.SSLObject]:
        a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (client.wrap_bio(a, b, server_hostname="127.0.0.1", session=session), context.wrap_bio(b, a, True))
        for step in ("do_handshake", "do_handshake", "do_handshake", "unwrap", "unwrap"):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    getattr(end, step)()
        return ends

    for _ in range(20):
        theirs, ours = connected()
        assert context.session_stats()["number"] + ours.context.session_stats()["number"] <= 6
    assert not theirs.session_reused and connected(theirs.session)[0].session_reused
    cert.write_text("broken")
    for _ in range(20):
        connected()
    assert capsys.readouterr().err.count("tls.certificate.rejected") == 1, "not one for each connection"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1):
            writer.write(data)


def test_a_listener_of_the_router(authority: Authority) -> None:
    async def run() -> None:
        cert, key = authority.issue("first")
        settings = RouterSettings(name="r", health="127.0.0.1:0", entities=[])
        clock = LoopClock(asyncio.get_running_loop())
        sockets = Sockets(
            ConnectionMaker(make_router(router_attributes(settings), clock), Hub(asyncio.get_running_loop()))
        )
        sockets.profiles["p"] = SslProfile(name="p", cert_file=str(cert), private_key_file=str(key))
        listener = sockets.new_listener(ListenerConfig(name="l", host="127.0.0.1", port="0", ssl_profile="p"))
        await sockets.open(listener)
        assert listener.port is not None
        assert await subject(authority, listener.port) == "first"
        replace(authority, "second", cert, key)
        await becomes(authority, listener.port, "second")

        assert readiness(sockets, [listener.port], "") == (True, "")
        assert readiness(sockets, [listener.port, 1, 2], "") == (False, "waits for its agent to open 1, 2")
        await sockets.close(listener)
        assert not readiness(sockets, [listener.port or 0], "")[0]

    asyncio.run(run())


def test_trouble_with_a_certificate_is_found(authority: Authority) -> None:
    """As the status of a suite shows it."""
    cert, key = authority.issue("first")  # for an hour
    looks: list[list[str]] = []
    found = Certificates(cert, key, None, lambda: looks.append(found.troubles))

    async def run() -> None:
        watch = asyncio.create_task(found.watch(0.01))
        await until(lambda: asyncio.sleep(0, len(looks) == 1), "the certificate that expires")
        key.write_text("no key")
        await until(lambda: asyncio.sleep(0, len(looks) == 2), "the key that cannot be used")
        watch.cancel()

    asyncio.run(run())
    expires = f"{cert}: expires in 0 days."
    assert [line[: len(expires)] for line in looks[0]] == [expires]
    rejected, *rest = looks[1]
    assert rejected.startswith(f"{cert}, {key}: cannot be used, so the former ones stay in use: ") and rest == looks[0]


def test_the_end_of_a_certificate_is_named_in_days() -> None:
    assert ends_soon("server.crt", 15 * DAY) == ""
    assert ends_soon("server.crt", 13.5 * DAY).startswith("server.crt: expires in 13 days")
    assert ends_soon("server.crt", -1).startswith("server.crt: has expired")
