"""The service as a process, which follows configserv; and `enmasse user` as the way to edit its users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import symbol

from enmasse.identity.processes.roles import Role
from enmasse.testing import free_port
from tests.authserv.running import ask
from tests.certificates import Authority
from tests.cli.running import enmasse, free_offset
from tests.identity.kit import Service, Suite
from tests.kit.waiting import wait_for

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    (folder / "addresses.json").write_text("{}")
    (folder / "flavors.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def configserv(config: Path, suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with Service(
        "configserv",
        listen=f"127.0.0.1:{port}",
        config_dir=str(config),
        data_dir=str(tmp_path_factory.mktemp("data")),
        peers=str(suite.file),
    ):
        yield port


def user(config: Path, *arguments: str) -> None:
    options = ("--config", config, "--port-offset", free_offset())
    done = enmasse("user", arguments[0], *options, *arguments[1:], input=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr


def test_edits_of_users_take_effect_in_logins(config: Path, configserv: int, suite: Suite) -> None:
    port = free_port()
    with Service(
        "authserv",
        listen=f"127.0.0.1:{port}",
        configserv=f"127.0.0.1:{configserv}",
        credential=str(suite.credential_file(Role.AUTHSERV)),
    ) as authserv:
        assert ask(port, mechanism="ANONYMOUS").opened  # there is no users.json
        user(config, "add", "alice", "--password-file", "-")
        wait_for(lambda: not ask(port, mechanism="ANONYMOUS").opened, "clients need credentials")
        assert ask(port, "alice", PASSWORD).opened
        user(config, "allow", "alice", "send", "own/${user}/#")
        wait_for(lambda: ask(port, "alice", PASSWORD, authz=True).properties[symbol("address-authz")], "a permission")
        user(config, "remove", "alice")
        wait_for(lambda: not ask(port, "alice", PASSWORD).opened, "the user is removed")
        (config / "users.json").unlink()
        assert not ask(port, "alice", PASSWORD).opened
        assert PASSWORD not in json.dumps(authserv.log())


def test_tls(config: Path, configserv: int, suite: Suite, tmp_path: Path) -> None:
    port = free_port()
    cert, key = Authority(tmp_path).issue("authserv")
    with Service(
        "authserv",
        listen=f"127.0.0.1:{port}",
        configserv=f"127.0.0.1:{configserv}",
        credential=str(suite.credential_file(Role.AUTHSERV)),
        cert=str(cert),
        key=str(key),
    ):
        user(config, "add", "bob", "--password-file", "-")
        wait_for(lambda: ask(port, "bob", PASSWORD, scheme="amqps").opened, "a login over TLS")
        assert not ask(port, "bob", PASSWORD).opened
