"""The certificates of `--tls auto`: made, kept, renewed; and files that cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan import suite_ca
from enmasse.supervisor.plan.suite_ca import ensure, keep, names
from tests.kit.waiting import until

HOSTS = ["localhost", "127.0.0.1", "::1", "machine.example"]
FILES = ["ca.crt", "ca.key", "server.crt", "server.key"]


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_first_call_makes_all_and_the_second_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    assert ensure(folder, HOSTS) == ["ca.crt", "server.crt"]
    before = contents(folder)
    assert list(before) == FILES
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in FILES)
    ca, server = certificate(folder / "ca.crt"), certificate(folder / "server.crt")
    server.verify_directly_issued_by(ca)
    for each in (ca, server):
        key = each.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    found = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["localhost", "machine.example"]
    assert [str(each) for each in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ensure(folder, HOSTS) == []
    assert contents(folder) == before


def test_a_certificate_that_expires_soon_is_renewed_with_its_key_and_ca(tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    before, now = contents(tmp_path), datetime.now(UTC)
    assert ensure(tmp_path, HOSTS, now + timedelta(days=59)) == []
    assert ensure(tmp_path, HOSTS, now + timedelta(days=61)) == ["server.crt"]
    after = contents(tmp_path)
    assert [name for name in FILES if before[name] != after[name]] == ["server.crt"]
    certificate(tmp_path / "server.crt").verify_directly_issued_by(certificate(tmp_path / "ca.crt"))


def test_an_old_ca_is_renewed_and_clients_with_the_earlier_certificate_trust_the_new_one(tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    earlier, now = certificate(tmp_path / "ca.crt"), datetime.now(UTC)
    assert ensure(tmp_path, HOSTS, now + timedelta(days=9 * 365 + 10)) == ["ca.crt", "server.crt"]
    renewed = certificate(tmp_path / "ca.crt")
    assert renewed.not_valid_after_utc > earlier.not_valid_after_utc and renewed.subject == earlier.subject
    certificate(tmp_path / "server.crt").verify_directly_issued_by(earlier)


def test_another_name_is_another_certificate_and_one_name_less_is_not(tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    assert ensure(tmp_path, [*HOSTS, "192.0.2.7"]) == ["server.crt"]
    assert ensure(tmp_path, HOSTS) == []


def test_names_are_those_of_loopback_the_machine_and_the_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    assert names(["192.0.2.1", "box", "mq.example"]) == [
        "localhost",
        "127.0.0.1",
        "::1",
        "box",
        "192.0.2.1",
        "mq.example",
    ]
    monkeypatch.setattr(socket, "gethostname", lambda: "bär")  # no name of a certificate
    assert names() == ["localhost", "127.0.0.1", "::1"]
    assert names([], "mq.example") == ["localhost", "127.0.0.1", "::1", "*.mq.example"]


def rsa_key(_: Path) -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def other_key(_: Path) -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def half(path: Path) -> bytes:
    return path.read_bytes()[:60]


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("ca.crt", half, "is not a certificate in PEM"),
        ("ca.key", half, "is not a private key in PEM without a password"),
        ("ca.key", other_key, "is not the key of ca.crt"),
        ("ca.key", rsa_key, "is not a key on an elliptic curve"),
        ("server.key", half, "is not a private key in PEM without a password"),
        ("server.key", lambda _: b"", "is not a private key in PEM without a password"),
    ],
)
def test_a_damaged_file_is_one_line_of_error_and_changes_nothing(
    name: str, damage: Callable[[Path], bytes], said: str, tmp_path: Path
) -> None:
    ensure(tmp_path, HOSTS)
    (tmp_path / name).write_bytes(damage(tmp_path / name))
    before = contents(tmp_path)
    with pytest.raises(StartError) as raised:
        ensure(tmp_path, HOSTS)
    assert raised.value.lines[0].startswith(f"{tmp_path / name} {said}") and len(raised.value.lines) == 1
    assert raised.value.lines[0].endswith("[start.tls.damaged]")
    assert contents(tmp_path) == before


def test_a_lost_key_of_the_ca_is_an_error_and_a_lost_certificate_is_made_again(tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    earlier, key = certificate(tmp_path / "ca.crt"), (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.key").unlink()
    with pytest.raises(StartError, match=r"ca\.key is missing"):
        ensure(tmp_path, HOSTS)
    (tmp_path / "ca.key").write_bytes(key)
    (tmp_path / "ca.crt").unlink()  # as after a start that was killed between the two
    assert ensure(tmp_path, HOSTS) == ["ca.crt"]
    certificate(tmp_path / "server.crt").verify_directly_issued_by(earlier)


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_a_lost_file_of_the_server_is_made_again(name: str, tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    (tmp_path / name).unlink()
    assert ensure(tmp_path, HOSTS) == ["server.crt"]
    key = load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    assert certificate(tmp_path / "server.crt").public_key() == key.public_key()


def test_a_certificate_of_another_ca_or_one_that_is_damaged_is_replaced(tmp_path: Path) -> None:
    ensure(tmp_path / "other", HOSTS)
    ensure(tmp_path, HOSTS)
    (tmp_path / "server.crt").write_bytes((tmp_path / "other" / "server.crt").read_bytes())
    (tmp_path / "server.key").write_bytes((tmp_path / "other" / "server.key").read_bytes())
    assert ensure(tmp_path, HOSTS) == ["server.crt"]
    (tmp_path / "server.crt").write_text("nothing")
    assert ensure(tmp_path, HOSTS) == ["server.crt"]


def test_it_is_renewed_while_the_suite_runs_and_a_failure_is_reported(tmp_path: Path) -> None:
    ensure(tmp_path, HOSTS)
    said: list[str] = []

    async def main() -> None:
        kept = asyncio.create_task(keep(tmp_path, lambda: HOSTS, said.append, 0.01))
        (tmp_path / "server.crt").unlink()
        await until((tmp_path / "server.crt").exists)
        good = (tmp_path / "ca.key").read_bytes()
        (tmp_path / "ca.key").write_bytes(b"")
        await until(lambda: said)
        (tmp_path / "ca.key").write_bytes(good)
        (tmp_path / "server.crt").unlink()
        await until((tmp_path / "server.crt").exists)
        kept.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await kept

    asyncio.run(main())
    assert f"{tmp_path / 'ca.key'} is not a private key" in said[0]


def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fail(*_: object) -> list[str]:
        raise PermissionError(13, "Permission denied", "ca.key")

    monkeypatch.setattr(suite_ca, "ensure", fail)

    async def main() -> None:
        kept = asyncio.create_task(keep(tmp_path, lambda: HOSTS, said.append, 0.01))
        await until(lambda: said)
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)

    asyncio.run(main())
    assert said[0] == "the certificates cannot be renewed: ca.key: Permission denied"
