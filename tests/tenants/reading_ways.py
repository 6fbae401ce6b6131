"""Clients of the REST API, and commands, in address spaces. Each has a method for each cell of its column."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.console.client import Client
from tests.kit.processes import COMMAND, run
from tests.tenants.tenant_suite import PASSWORD, Get, Reply, Tenants, Who

LISTS = ("addresses", "users", "connections", "links", "subscriptions", "sessions", "flavors")
OF_OPERATORS = ("spaces", "plans")
"""Lists that have all spaces for operators; others see their own."""


class RestWay:
    def __init__(self, tenants: Tenants, web: bool) -> None:
        assert not web
        self.tenants = tenants
        self._clients: dict[Who, Client] = {}

    async def close(self) -> None:
        for each in self._clients.values():
            each.__exit__()

    def client(self, who: Who) -> Client:
        if who not in self._clients:
            suite = self.tenants.suite
            client = self._clients[who] = Client(suite)
            if who.role == "operator":
                client.headers["Authorization"] = suite.operator_headers["Authorization"]
            elif who.login is not None:
                assert client.log_in(who.login, PASSWORD).status == 200
            elif who.space != "default":
                client.headers["Host"] = who.space
        return self._clients[who]

    async def ask(self, who: Who, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        within = f"spaces/{who.space}/" if who.role == "operator" and who.space != "default" else ""
        answer = await asyncio.to_thread(self.client(who), method, within + path, body)
        return answer.status, answer.body

    async def send(self, who: Who, name: str, text: str) -> None:
        status, body = await self.ask(who, "POST", f"addresses/{name}/messages", {"body": text})
        assert status == 204, body

    async def browse(self, who: Who, name: str) -> list[str]:
        status, body = await self.ask(who, "GET", f"addresses/{name}/messages")
        assert status == 200, body
        return [str(each.get("body", each)) for each in body["items"]]

    async def _texts(self, who: Who, *paths: str) -> str:
        return json.dumps([await self.ask(who, "GET", path) for path in paths])

    async def read_retained(self, who: Who) -> str:
        return await self._texts(who, "retained")

    async def read_will(self, who: Who) -> str:
        return await self._texts(who, "wills")

    async def read_list(self, who: Who) -> str:
        return await self._texts(who, *LISTS, *(() if who.oversees else OF_OPERATORS))

    async def read_metrics(self, who: Who) -> str:
        return await self._texts(who, "overview", *(() if who.oversees else ("spaces", "me")))

    async def read_events(self, who: Who) -> str:
        return await self._texts(who, "events")

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        for kind in ("addresses", "users", "subscriptions", "retained", "wills", "sessions"):
            for name in (f"!!{other}%2Fjobs", f"%21%21{other}%2Falice", f"{other}-own"):
                for method in ("GET", "DELETE"):
                    found.append(str(await self.ask(who, method, f"{kind}/{name}")))
        if not who.oversees:
            for path in ("addresses", "users", "events", "connections", "addresses/jobs", "addresses/jobs/messages"):
                found.append(str(await self.ask(who, "GET", f"spaces/{other}/{path}")))
            found.append(str(await self.ask(who, "GET", f"spaces/{other}")))
            found.append(str(await self.ask(who, "POST", f"spaces/{other}/addresses/jobs/messages", {"body": "x"})))
        return found


class CommandWay:
    def __init__(self, tenants: Tenants, web: bool) -> None:
        assert not web
        self.tenants = tenants
        self._file: Path = tenants.suite.folder / "password"
        self._file.write_text(PASSWORD)
        self._file.chmod(0o600)

    async def close(self) -> None:
        self._file.unlink()

    async def run(self, who: Who, *arguments: str, fails: bool = False) -> str:
        return await asyncio.to_thread(self._run, who, *arguments, fails=fails)

    def _process(self, login: dict[str, str], *arguments: str) -> CompletedProcess[str]:
        return run(COMMAND, *arguments, "--port-offset", str(self.tenants.suite.offset), environment=login)

    def _run(self, who: Who, *arguments: str, fails: bool = False, space: str = "") -> str:
        login = {"ENMASSE_USER": who.name, "ENMASSE_PASSWORD_FILE": str(self._file)} if who.name else {}
        wanted = space or who.space
        within = () if wanted == "default" else ("--space", wanted)
        done = self._process(login, *arguments, *within)
        assert fails or done.returncode == 0, (arguments, done)
        return f"{done.stdout}{done.stderr}" if fails else done.stdout

    async def send(self, who: Who, name: str, text: str) -> None:
        await self.run(who, "send", name, text)

    @contextlib.asynccontextmanager
    async def receive(self, who: Who, name: str) -> AsyncIterator[Get]:
        async def get() -> str:
            return (await self.run(who, "receive", name, "--count", "1", "--timeout", "200")).strip()

        yield get

    async def browse(self, who: Who, name: str) -> list[str]:
        return (await self.run(who, "receive", name, "--browse")).splitlines()

    async def begin(self, who: Who, topic: str) -> None:
        await self.run(who, *self._durable(topic), "--count", "0", "--timeout", "1", fails=True)

    @staticmethod
    def _durable(topic: str) -> tuple[str, ...]:
        return ("receive", topic, "--durable", "link", "--container", "kept")

    @contextlib.asynccontextmanager
    async def again(self, who: Who, topic: str) -> AsyncIterator[Get]:
        async def get() -> str:
            return (await self.run(who, *self._durable(topic), "--count", "1", "--timeout", "200")).strip()

        yield get

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        async with self.tenants.service(who.space) as replying:
            asking = asyncio.create_task(self.run(who, "request", "direct", "?", "--timeout", "200"))

            async def get() -> str:
                return (await asking).strip()

            yield await replying(get)

    async def read_retained(self, who: Who) -> str:
        return await self.run(who, "retained", "list", "--json")

    async def read_list(self, who: Who) -> str:
        return await self.run(who, "address", "list", "--json") + await self.run(who, "user", "list", "--json")

    async def read_metrics(self, who: Who) -> str:
        if who.role == "operator" and who.space != "default":  # whose list has all spaces
            return await self.run(who._replace(space="default"), "space", "show", who.space, "--json")
        if who.role == "operator":
            return await self.run(who, "address", "show", "jobs", "--json")
        return await self.run(who, "connection", "list", "--json")

    async def read_events(self, who: Who) -> str:
        return await self.run(who, "events", "--json")

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        name = f"!!{other}/jobs"
        for command in (("send", name, "x"), ("address", "show", name)):
            found.append(await self.run(who, *command, fails=True))
        if not who.oversees and who.space != "default":  # else the name gets the space
            found.append(await asyncio.to_thread(self._elsewhere, who, other, "send", "jobs", "x"))
        return found

    def _elsewhere(self, who: Who, other: str, *command: str) -> str:
        """Log in as a user of the own space, and state another one."""
        login = {"ENMASSE_USER": str(who.login), "ENMASSE_PASSWORD_FILE": str(self._file)}
        done = self._process(login, *command, "--space", other)
        assert done.returncode != 0, done
        return done.stdout + done.stderr
