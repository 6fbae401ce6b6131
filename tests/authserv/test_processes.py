"""Logins of the suite's processes at listeners of Qpid Dispatch, asked by python-qpid-proton and by our engine."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.transport import Hub, serve
from enmasse.amqp.codec.types import Array, Symbol
from enmasse.identity.processes.credentials import Credential, Peers
from enmasse.identity.processes.roles import GATEWAYS, TABLE, Listener, Peer, Role, access, may_receive, may_send
from enmasse.identity.processes.scram import ScramClient
from services.authserv.app import AuthService, AuthservSettings
from services.authserv.processes import ProcessLogin
from tests.authserv.running import Answer, ask, ask_engine
from tests.identity.kit import Suite
from tests.kit.running import asyncio_test

LISTENERS = (Listener.OPERATORS, Listener.SERVICES, Listener.MESH)
AUTHZ = Symbol("address-authz")


class Answering:
    """The ports of the service for each listener."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite

    async def __aenter__(self) -> dict[Listener, int]:
        loop = asyncio.get_running_loop()
        settings = AuthservSettings(name="a", health="127.0.0.1:0", listen="127.0.0.1:0", configserv="127.0.0.1:1")
        self._service = AuthService(settings, loop, Peers(self._suite.file))
        self._servers = {
            listener: await serve(Hub(loop), "127.0.0.1", 0, partial(self._service.process, listener))
            for listener in LISTENERS
        }
        return {listener: server.port for listener, server in self._servers.items()}

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        await self._service.logins.close()


async def login(port: int, own: Credential) -> Answer:
    return await asyncio.to_thread(ask_engine, port, ScramClient(own.name, own.secret))


def allows(authz: Any, operation: str, address: str) -> bool:
    """Return whether Dispatch would (src/policy.c: a `*` at the end stands for any text)."""
    return any(
        operation in operations.values and (address.startswith(key[:-1]) if key.endswith("*") else address == key)
        for key, operations in authz.items()
    )


@asyncio_test
async def test_a_role_that_the_listener_lists_gets_its_name_and_no_other_role_anything(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    async with Answering(suite) as ports:
        for listener, port in ports.items():
            for role in Role:
                answer = await login(port, suite.credential(role))
                assert answer.opened is (role in TABLE[listener]), (listener, role)
                if answer.opened:
                    assert answer.properties["authenticated-identity"]["sub"] == f"{role}-0"
                    assert answer.properties["groups"] == [role]


@asyncio_test
async def test_addresses_are_those_of_the_table_except_for_what_begins_with_a_dollar(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    names = ("orders", "orders/a", "$sub", "$sub/b/x", "$subctrl", "$mqtt/control", "$lwt", "$management", "x")
    async with Answering(suite) as ports:
        for listener in (Listener.OPERATORS, Listener.SERVICES):
            for role in TABLE[listener]:
                own = suite.credential(role)
                stated = (await login(ports[listener], own)).properties
                table = access(listener, Peer(own.name, role))
                assert table is not None
                # Without the property everything is allowed, also to close connections and to make link routes.
                is_everything = role in (Role.CONSOLE, Role.OPERATOR, *GATEWAYS)
                assert (AUTHZ in stated) is not is_everything, role
                authz = stated.get(AUTHZ, {"*": Array(str, ["send", "recv"])})
                for name in names:
                    sends, receives = "#" in table.send, "#" in table.recv
                    assert allows(authz, "send", name) is (sends or may_send(table, name)), (role, name)
                    assert allows(authz, "recv", name) is (receives or may_receive(table, name)), (role, name)
        # So routers meet.
        assert AUTHZ not in (await login(ports[Listener.MESH], suite.credential(Role.ROUTER))).properties


@asyncio_test
async def test_plain_is_for_operators_only(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    async with Answering(suite) as ports:
        for listener, port in ports.items():
            for role in (Role.OPERATOR, Role.GATEWAY, Role.ROUTER):
                own = suite.credential(role)
                answer = await asyncio.to_thread(ask, port, own.name, own.secret, authz=True)
                assert answer.opened is (listener is Listener.OPERATORS and role is Role.OPERATOR), (listener, role)


@asyncio_test
async def test_a_process_that_is_withdrawn_before_its_open_may_do_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router lets it in after the outcome, whatever its open is answered with."""
    suite = Suite(tmp_path)
    own = suite.credential(Role.GATEWAY)
    opened = ProcessLogin.on_open

    def withdrawn_first(self: ProcessLogin, c: Any) -> None:
        suite.secrets.pop(own.name)
        suite.write()
        opened(self, c)

    async with Answering(suite) as ports:
        monkeypatch.setattr(ProcessLogin, "on_open", withdrawn_first)
        answer = await login(ports[Listener.SERVICES], own)
        assert answer.properties[AUTHZ] == {}
        assert "authenticated-identity" not in answer.properties
