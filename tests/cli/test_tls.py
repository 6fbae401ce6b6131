"""`enmasse up --tls auto`: a real suite, its certificates and those who connect to it."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enmasse.supervisor.plan.suite_ca import ensure, names
from tests.certificates import Authority
from tests.cli.running import Up, enmasse, wait_for
from tests.kit.waiting import DEADLINE

AUTO = ("--tls", "auto")
TLS_PORTS = {"amqps": 5671, "mqtts": 8883, "wss": 8084}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One suite with MQTT for the tests of this module."""
    folder = tmp_path_factory.mktemp("suite")
    assert enmasse("init", folder / "config").returncode == 0
    with Up(folder / "config", folder / "data", fake=False, options=AUTO) as up:
        yield up.until_ready()


def ca(up: Up) -> Path:
    return up.data / "tls" / "ca.crt"


def connected(
    up: Up, port: int, name: str | None = "localhost", change: Callable[[ssl.SSLContext], object] = lambda _: None
) -> ssl.SSLSocket:
    """A connection to a port (without the offset), verified as `name`."""
    context = ssl.create_default_context(cafile=str(ca(up)))
    change(context)
    plain = socket.create_connection(("127.0.0.1", port + up.offset), 60)
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def test_the_ca_is_in_the_first_line_and_in_the_status(suite: Up) -> None:
    assert suite.lines[0] == f"clients verify TLS by the CA in {ca(suite)}"
    shown = ["CA", str(ca(suite))]
    wait_for(lambda: shown in map(str.split, suite.lines), "the lines after the one that the suite is ready")
    assert suite.status()["ca"] == str(ca(suite))
    done = enmasse("status", "--port-offset", suite.offset)
    assert shown in map(str.split, done.stdout.splitlines())


def test_commands_connect_with_the_ca_and_without_it_they_do_not(suite: Up) -> None:
    amqps = f"amqps://localhost:{5671 + suite.offset}/myqueue"
    done = enmasse("send", "-a", amqps, "x")
    assert done.returncode == 4 and "with --ca FILE" in done.stderr
    assert enmasse("send", "-a", amqps, "over TLS", "--ca", ca(suite)).returncode == 0
    done = enmasse("receive", "-a", amqps, "--count", 1, "--timeout", 60, env={"ENMASSE_CA": str(ca(suite))})
    assert done.stdout == "over TLS\n"
    mqtts = f"mqtts://127.0.0.1:{8883 + suite.offset}"
    done = enmasse("publish", "mytopic", "x", "--qos", 1, "--server", mqtts)
    assert done.returncode == 4 and "with --ca FILE" in done.stderr
    assert enmasse("publish", "mytopic", "x", "--qos", 1, "--server", mqtts, "--ca", ca(suite)).returncode == 0


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_ca_file_that_cannot_be_used_is_wrong_usage(content: bytes | None, suite: Up, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    amqps = f"amqps://localhost:{5671 + suite.offset}/myqueue"
    for arguments in (("send", "-a", amqps, "x"), ("publish", "mytopic", "x", "--server", "mqtts://localhost")):
        done = enmasse(*arguments, "--ca", file)
        assert done.returncode == 2 and "--ca" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("port", TLS_PORTS.values(), ids=list(TLS_PORTS))
def test_every_listener_with_tls_has_modern_versions_only(port: int, suite: Up) -> None:
    for version, shown in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):

        def only(context: ssl.SSLContext, version: ssl.TLSVersion = version) -> None:
            context.minimum_version = context.maximum_version = version

        with connected(suite, port, change=only) as connection:
            assert connection.version() == shown
            assert (connection.cipher() or ("",))[0].split("-")[-1].split("_")[-1] in ("SHA256", "SHA384", "POLY1305")

    def old(context: ssl.SSLContext) -> None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1

    with pytest.raises((ssl.SSLError, ConnectionResetError)), pytest.warns(DeprecationWarning):
        connected(suite, port, change=old)


@pytest.mark.parametrize(
    "cipher", ["AES256-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA256"]
)
def test_ciphers_without_forward_secrecy_or_authenticated_encryption_are_refused(cipher: str, suite: Up) -> None:
    def weak(context: ssl.SSLContext) -> None:
        context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    for port in TLS_PORTS.values():
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            connected(suite, port, change=weak)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("port", TLS_PORTS.values(), ids=list(TLS_PORTS))
def test_a_client_cannot_renegotiate(port: int, suite: Up) -> None:
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{port + suite.offset}",
        "-tls1_2",
        "-CAfile",
        str(ca(suite)),
    ]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=DEADLINE)
    assert "Verify return code: 0" in done.stdout and "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stderr


@pytest.mark.parametrize("port", TLS_PORTS.values(), ids=list(TLS_PORTS))
def test_a_client_without_sni_or_with_an_unknown_name_gets_the_same_certificate(port: int, suite: Up) -> None:
    def unverified(context: ssl.SSLContext) -> None:
        context.check_hostname = False

    expected = served(suite, port)
    for name in (None, "elsewhere.example"):
        with connected(suite, port, name, unverified) as connection:
            assert connection.getpeercert(binary_form=True) == expected


@pytest.mark.parametrize("port", TLS_PORTS.values(), ids=list(TLS_PORTS))
def test_names_and_authorities_are_verified(port: int, suite: Up, tmp_path: Path) -> None:
    for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        connected(suite, port, name).close()
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connected(suite, port, "elsewhere.example")
    with (
        socket.create_connection(("127.0.0.1", port + suite.offset), 60) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        Authority(tmp_path).client_context().wrap_socket(plain, server_hostname="localhost")


def test_a_renewed_certificate_is_served_and_open_connections_stay(suite: Up) -> None:
    with connected(suite, 8883) as client:
        client.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
        assert client.recv(4) == b"\x20\x02\x00\x00"
        before = {port: served(suite, port) for port in TLS_PORTS.values()}
        assert ensure(suite.data / "tls", names(["192.0.2.7"])) == ["server.crt"]
        wait_for(lambda: all(served(suite, port) != before[port] for port in before), "the renewed certificate")
        client.sendall(b"\xc0\x00")
        assert client.recv(2) == b"\xd0\x00"


def served(up: Up, port: int) -> bytes | None:
    with connected(up, port) as connection:
        return connection.getpeercert(binary_form=True)


def test_a_restart_keeps_the_ca_and_makes_the_folder_private(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    options = (*AUTO, "--without", "mqtt")
    with Up(tmp_path / "config", tmp_path / "data", fake=False, options=options) as up:
        up.until_ready()
        authority = ca(up).read_bytes()
        assert up.end() == 0
    for path in (up.data, up.data / "tls", *(up.data / "tls").iterdir()):
        os.chmod(path, 0o777)
    with Up(tmp_path / "config", tmp_path / "data", fake=False, options=options) as up:
        up.until_ready()
        assert ca(up).read_bytes() == authority
        for path in (up.data, up.data / "tls", *(up.data / "tls").iterdir()):
            assert path.stat().st_mode & 0o077 == 0, path
        connected(up, 5671).close()
        done = enmasse("up", "--config", up.config, "--data", up.data, "--port-offset", up.offset, *AUTO)
        assert done.returncode == 2 and "[start.data.in-use]" in done.stderr  # a second start changes nothing
        assert ca(up).read_bytes() == authority
        assert up.end() == 0
    (up.data / "tls" / "server.key").write_bytes(b"")
    done = enmasse("up", "--config", up.config, "--data", up.data, "--port-offset", up.offset, *options)
    assert done.returncode == 2 and done.stderr.endswith("[start.tls.damaged]\n") and done.stderr.count("\n") == 1


def test_a_certificate_of_ones_own_and_auto_exclude_each_other(tmp_path: Path) -> None:
    done = enmasse("up", "--config", tmp_path, "--data", tmp_path, *AUTO, "--tls-cert", tmp_path / "a.crt")
    assert done.returncode == 2 and "--tls auto makes its own certificate" in done.stderr
