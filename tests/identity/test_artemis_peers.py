"""Artemis with peers: the suite's processes authenticate by their own secrets, and have the rights of their roles."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.engines.artemis import peers
from enmasse.identity.processes.credentials import Credential, PeerEntry, new_secret
from enmasse.identity.processes.roles import TABLE, Listener, Role
from enmasse.identity.processes.scram import verifier
from tests.artemis import Artemis
from tests.identity.kit import (
    AMQP_HEADER,
    REFUSED,
    Suite,
    answer_to,
    assert_allowed_exactly,
    dial,
    manage_broker,
    name_of,
    refusal,
)
from tests.kit.running import asyncio_test

ROLES = TABLE[Listener.BROKER]
QUEUES = {"orders": "#", "$sub/b0/c1": "$sub/#"}
"""Queue → pattern of the table that covers it."""


def write(suite: Suite) -> None:
    """Write the files of users and roles, as the supervisor does."""
    entries = {name: PeerEntry(role, verifier(secret)) for name, (role, secret) in suite.secrets.items()}
    for name, text in peers.files(entries).items():
        (suite.folder / name).write_text(text)
        os.utime(suite.folder / name, (time.time() + 1, time.time() + 1))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    found = Suite(tmp_path_factory.mktemp('a "quoted" \\ name'))
    write(found)
    return found


@pytest.fixture(scope="module")
def broker(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artemis]:
    found = Artemis(tmp_path_factory.mktemp("artemis"), peers=str(suite.folder))
    found.start()

    @asyncio_test
    async def make() -> None:
        async with dial(found.port, suite.credential(Role.STORAGE_CONTROLLER)) as c:
            for queue in QUEUES:
                await manage_broker(c, "createAddress", queue, "ANYCAST")
                await manage_broker(c, "createQueue", queue, queue, "ANYCAST")

    make()
    yield found
    found.kill()


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_a_role_may_do_exactly_what_the_table_lists(broker: Artemis, suite: Suite, role: Role) -> None:
    access, credential = ROLES.get(role), suite.credential(role)
    assert (await refusal(broker.port, credential) == REFUSED) is (access is None)
    if access is None:
        return
    async with dial(broker.port, credential) as c:
        await assert_allowed_exactly(c, access, QUEUES)


@asyncio_test
async def test_wrong_secrets_unknown_names_and_other_mechanisms_are_refused(broker: Artemis, suite: Suite) -> None:
    router = name_of(Role.ROUTER)
    for credential in (
        Credential(router, Role.ROUTER, suite.credential(Role.OPERATOR).secret),
        Credential("nobody", Role.ROUTER, new_secret()),
        Credential("", Role.ROUTER, new_secret()),
        None,
    ):
        assert await refusal(broker.port, credential) == REFUSED
    assert await refusal(broker.port, None, plain=suite.credential(Role.OPERATOR)) == REFUSED


def test_sasl_cannot_be_skipped(broker: Artemis) -> None:
    assert AMQP_HEADER not in answer_to(broker.port, AMQP_HEADER)


@asyncio_test
async def test_a_new_secret_replaces_the_old_one_at_once(broker: Artemis, suite: Suite) -> None:
    name, old = name_of(Role.SUBSERV), suite.credential(Role.SUBSERV)
    for _ in range(3):
        assert await refusal(broker.port, suite.credential(Role.SUBSERV)) == ""
        suite.secrets[name] = Role.SUBSERV, new_secret()
        write(suite)
        assert await refusal(broker.port, suite.credential(Role.SUBSERV)) == ""
        assert await refusal(broker.port, old) == REFUSED


def test_files_of_the_broker_contain_no_secret(suite: Suite, broker: Artemis) -> None:
    texts = [path.read_text() for folder in (suite.folder, Path(broker.instance.etc)) for path in folder.iterdir()]
    assert not any(secret in text for _, secret in suite.secrets.values() for text in texts)
