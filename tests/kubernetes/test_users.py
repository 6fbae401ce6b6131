"""A release with users: clients log in at the routers, and users.json is a Secret."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelet import HEALTH, Running
from tests.kubernetes.release import PATIENCE, Release, installed
from tests.kubernetes.running import config_map, status

patient_test = partial(asyncio_test, seconds=2 * PATIENCE)
"""Turn a coroutine function, with waits that may take PATIENCE each, into a test."""
PASSWORD = "correct horse"
SECRET = "enmasse-users"


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Installed before there is any user."""
    options = ("--set=users.enabled=true", "--set=console.enabled=true")
    with installed(cluster, tmp_path_factory.mktemp("release"), *options) as made:
        made.configure("flavors", {"orders": {"type": "queue", "templateName": "queue-inmemory"}})
        made.configure("addresses", {"orders": {"type": "queue", "flavor": "orders"}, "a": {"type": "anycast"}})
        made.wait_active(2)
        yield made


def enmasse(folder: Path, *arguments: str, password: str = PASSWORD) -> None:
    command = [str(Path(sys.executable).with_name("enmasse")), "user", *arguments, "--config", str(folder)]
    done = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done


def write(release: Release, file: Path, **spaces: Path) -> None:
    """Put users.json, and those of spaces, into the Secret, as the chart's notes say it."""
    place = ("--namespace", release.namespace)
    made = release.cluster.kubectl(
        "create",
        "secret",
        "generic",
        SECRET,
        f"--from-file=users.json={file}",
        *(f"--from-file={space}.users.json={own}" for space, own in spaces.items()),
        "--dry-run=client",
        "-o",
        "yaml",
        *place,
    )
    release.cluster.kubectl("apply", "--server-side", "--force-conflicts", *place, "-f", "-", stdin=made)


async def login(
    release: Release,
    user: str | None = "alice",
    password: str = PASSWORD,
    tls: ssl.SSLContext | None = None,
    at: Running | None = None,
) -> str:
    """Return the condition with which a client is refused, "" if it is let in. `at`: a router that is not one of all
    spaces."""
    host, _, port = (release.router if at is None else f"{at.address}:5672").rpartition(":")
    port = port if tls is None else "5671"
    try:
        async with connect(host=host, port=int(port), ssl=tls, user=user, password=password, timeout=DEADLINE):
            return ""
    except AmqpError as error:
        return error.condition


def known(release: Release, count: int) -> bool:
    """Return whether each of the authentication services, of which a router asks any, knows this number of users.
    Asking by logins would fail often, and after some failures a client has to wait."""
    pods = release.pods("authserv")
    return len(pods) == 2 and all(f"\nenmasse_users {count:.1f}\n" in metrics(pod) for pod in pods)


def metrics(pod: Running) -> str:
    with urllib.request.urlopen(f"http://{pod.address}:{HEALTH}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read(), "utf-8")


async def let_in(release: Release, user: str | None = "alice", password: str = PASSWORD, **more: Any) -> bool:
    return await login(release, user, password, **more) == ""


async def refused(release: Release, user: str | None = "alice", password: str = PASSWORD) -> bool:
    return await login(release, user, password) != ""


@patient_test
async def test_users_are_in_a_secret(release: Release, tmp_path: Path) -> None:
    assert await refused(release, None) and await refused(release), "nobody is let in before there is a user"

    enmasse(tmp_path, "add", "alice", "--password-file", "-")
    enmasse(tmp_path, "allow", "alice", "send,recv", "orders")
    await asyncio.to_thread(write, release, tmp_path / "users.json")
    await until(lambda: asyncio.to_thread(known, release, 1), "both authentication services know alice", PATIENCE)
    assert await let_in(release)
    assert await refused(release, None) and await refused(release, "alice", "wrong") and await refused(release, "bob")
    host, _, port = release.router.rpartition(":")
    async with connect(host=host, port=int(port), user="alice", password=PASSWORD, timeout=DEADLINE) as client:
        receiver, sender = await client.receiver("orders"), await client.sender("orders")
        assert await sender.send(Message("hello"), timeout=DEADLINE) is ACCEPTED
        assert (await receiver.receive(DEADLINE)).message.body == "hello"
        with pytest.raises(AmqpError) as denied:
            await client.sender("a", timeout=DEADLINE)
        assert denied.value.condition == "amqp:unauthorized-access"

        # A file that is no JSON changes nothing, for another leader either.
        good = (tmp_path / "users.json").read_text()
        (tmp_path / "users.json").write_text("{")
        await asyncio.to_thread(write, release, tmp_path / "users.json")

        def reported() -> bool:
            errors = status(release.cluster, release.namespace, "enmasse-addresses").get("errors", ())
            return any("users.json" in str(each) for each in errors)

        await until(reported, "the status shows it")
        selector = "--selector=app.kubernetes.io/component=configserv"
        await asyncio.to_thread(release.kubectl, "delete", "pods", selector)  # the client has heartbeats
        await until(lambda: any(pod.ready for pod in release.pods("configserv")), "another configserv leads", PATIENCE)
        await until(reported, "the status shows it again")
        await until(lambda: let_in(release), "alice is let in")
        assert client.error is None

        enmasse_users = json.loads(good)
        del enmasse_users["alice"]
        (tmp_path / "users.json").write_text(json.dumps(enmasse_users))
        await asyncio.to_thread(write, release, tmp_path / "users.json")
        await until(lambda: client.error is not None, "her connection is closed")
    await until(lambda: refused(release), "she is gone")


def test_no_config_map_has_hashes_of_passwords(release: Release, tmp_path: Path) -> None:
    enmasse(tmp_path, "add", "carol", "--password-file", "-")
    write(release, tmp_path / "users.json")

    def saved() -> bool:
        found = release.cluster.get("secret", "enmasse-configserv-state", namespace=release.namespace)
        texts = (base64.b64decode(value) for value in (found.get("data") or {}).values())
        return any(b"carol" in gzip.decompress(text) for text in texts)

    release.wait("configserv has saved her", saved)
    for each in release.cluster.get("configmaps", namespace=release.namespace):
        text = json.dumps(each.get("data", {}))
        text += "".join(gzip.decompress(base64.b64decode(v)).decode() for v in each.get("binaryData", {}).values())
        assert "argon2" not in text and "stored_key" not in text, each["metadata"]["name"]


def test_a_context_works_on_the_console_of_a_cluster(release: Release, tmp_path: Path) -> None:
    """By HTTP, as through `kubectl port-forward`: this chart has no TLS."""
    for user in ("root", "ann"):
        enmasse(tmp_path, "add", user, "--password-file", "-")
    enmasse(tmp_path, "allow", "root", "send,recv,view,manage", "#")
    enmasse(tmp_path, "allow", "ann", "view", "orders")
    write(release, tmp_path / "users.json")
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "ENMASSE_PASSWORD_FILE": str(password)}
    program = str(Path(sys.executable).with_name("enmasse"))

    def run(*words: str, status: int = 0) -> str:
        done = subprocess.run([program, *words], capture_output=True, text=True, env=environment)
        assert done.returncode == status, (words, done, release.kubelet.logs())
        return done.stdout + done.stderr

    url = f"http://{release.pods('console')[-1].address}:8081"
    for user in ("root", "ann"):
        run("context", "add", f"as-{user}", url, "--user", user)
    run("context", "use", "as-root")

    def logged_in() -> bool:
        return subprocess.run([program, "status"], env=environment, capture_output=True).returncode == 0

    release.wait("root may log in", logged_in)
    assert run("address", "add", "made", "--type", "multicast") == "added made to context as-root\n"
    made = json.loads(run("address", "show", "made", "--json"))
    assert made["status"]["type"] == "multicast"
    found = release.cluster.get("configmap", "enmasse-addresses", namespace=release.namespace)
    assert json.loads(found["data"]["addresses.json"])["made"] == {"type": "multicast"}
    assert run("address", "remove", "made") == "removed made from context as-root\n"
    assert {each["name"] for each in json.loads(run("user", "list", "--json"))["users"]} == {"root", "ann"}
    assert "Secret" in run("user", "allow", "ann", "recv", "orders", status=1)
    assert run("config", "check").endswith("0 errors\n")
    assert json.loads(run("connection", "list", "--json")) == {"items": [], "total": 0}
    seen = json.loads(run("address", "list", "--json", "--context", "as-ann"))["addresses"]
    assert [each["name"] for each in seen] == ["orders"]
    assert "[console.permission.denied]" in run(
        "address", "set", "orders", "maxSize=1Mi", "--context", "as-ann", status=1
    )


class Named(ssl.SSLContext):
    """Client's TLS that names a host (SNI), of which the certificate must be."""

    host = ""

    def wrap_bio(self, *arguments: Any, **more: Any) -> ssl.SSLObject:
        return super().wrap_bio(*arguments, **{**more, "server_hostname": self.host})


SPACES = ("one", "two")


@pytest.fixture(scope="module")
def with_spaces(release: Release) -> Release:
    """A running release gets spaces, TLS and a domain."""
    made = config_map("spaces", "spaces", {"spaces.json": {space: {} for space in SPACES}})
    release.cluster.apply(made, namespace=release.namespace)
    release.helm(
        "upgrade", "--reuse-values", "--set=tls.enabled=true", "--set=configuration.spaceDomain=mq.example.com"
    )
    return release


def test_a_host_below_the_domain_means_its_space(with_spaces: Release, tmp_path: Path) -> None:
    """Of equal users only the one of the host is let in."""
    release = with_spaces
    for space in SPACES:
        (tmp_path / space).mkdir()
        enmasse(tmp_path / space, "add", "alice", "--password-file", "-", password=f"that of {space}")
    enmasse(tmp_path, "add", "alice", "--password-file", "-", password="that of default")
    write(release, tmp_path / "users.json", **{space: tmp_path / space / "users.json" for space in SPACES})
    secret = release.cluster.get("secret", "enmasse-tls", namespace=release.namespace)
    context = Named(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())

    @patient_test
    async def logins() -> None:
        for host, space in (
            ("one.mq.example.com", "one"),
            ("two.mq.example.com", "two"),
            ("enmasse-router", "default"),
        ):
            context.host = host
            password = f"that of {space}"
            await until(partial(let_in, release, password=password, tls=context), f"it is {space}", PATIENCE)
            for other in ("one", "two", "default"):
                assert await let_in(release, password=f"that of {other}", tls=context) is (other == space), host

    logins()


def test_routers_of_a_spaces_own_come_and_go(with_spaces: Release, tmp_path: Path) -> None:
    """The spaces have equal users. Whoever connects to them is in the space; what is sent there is at all routers."""
    release = with_spaces
    spaces = (*SPACES, "default")
    for space in spaces:
        (tmp_path / space).mkdir()
        enmasse(tmp_path / space, "add", "carol", "--password-file", "-", password=f"that of {space}")
        enmasse(tmp_path / space, "allow", "carol", "send,recv", "a")
    files = {space: tmp_path / space / "users.json" for space in spaces}
    write(release, files.pop("default"), **files)
    addresses = config_map("one-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}}}, "one")
    release.cluster.apply(addresses, namespace=release.namespace)
    before = release.pods("router")[0].uid
    values = ("--reuse-values", "--set=tls.enabled=true")
    release.helm("upgrade", *values, '--set-json=router.spaces={"one": {"replicas": 2}}')
    own = release.pods("router-one")
    assert [pod.name for pod in own] == ["enmasse-router-one-0", "enmasse-router-one-1"]
    assert release.pods("router")[0].uid == before, "those of all stay as they are"
    assert all("enmasse-router-one-identity" in pod.secrets for pod in own), "a certificate of their own"
    secret = release.cluster.get("secret", "enmasse-tls", namespace=release.namespace)
    context = Named(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())

    @patient_test
    async def use() -> None:
        for pod in own:
            await until(partial(let_in, release, "carol", "that of one", at=pod), "it knows its users", PATIENCE)
        first, last = own
        assert not await let_in(release, "carol", "that of default", at=first)
        assert not await let_in(release, "carol@two", "that of two", at=last)
        context.host = "enmasse-router-one"
        assert await let_in(release, "carol", "that of one", tls=context, at=first)
        context.host = "two.mq.example.com"
        assert not await let_in(release, "carol", "that of two", tls=context, at=last)
        host, _, port = release.router.rpartition(":")

        there: dict[str, Any] = {"password": "that of one", "timeout": DEADLINE}
        async with (
            connect(host=host, port=int(port), user="carol@one", **there) as reading,
            connect(host=first.address, port=5672, user="carol", **there) as sending,
        ):

            async def attached() -> bool:
                try:
                    await (await reading.receiver("a", credit=0, timeout=DEADLINE)).close()
                    await (await sending.sender("a", timeout=DEADLINE)).close()
                except AmqpError:
                    return False
                return True

            await until(attached, "the address is at both routers", PATIENCE)
            receiver, sender = await reading.receiver("a"), await sending.sender("a")
            outcome = asyncio.create_task(sender.send(Message("mine"), timeout=DEADLINE))
            delivery = await receiver.receive(DEADLINE)
            assert delivery.message.body == "mine"
            await delivery.accept()
            assert await outcome is ACCEPTED

    use()
    release.helm("upgrade", *values, "--set=router.spaces.one.replicas=0")
    release.wait("its routers are gone", lambda: not release.pods("router-one"))
    for kind in ("statefulsets", "services", "networkpolicies", "poddisruptionbudgets", "secrets", "serviceaccounts"):
        left = release.cluster.get(kind, namespace=release.namespace)
        assert not [each for each in left if "router-one" in each["metadata"]["name"]], kind

    @patient_test
    async def is_served() -> None:
        assert await let_in(release, "carol@one", "that of one")

    is_served()
