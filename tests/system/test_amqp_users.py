"""AMQP clients of a suite with users: who is let in, what they may do, and changes on open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proton import ConnectionException

from enmasse.aio.client import Client, ClientReceiver
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected, SaslInit, encode_performative
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message as OurMessage
from enmasse.amqp.sasl.layer import ClientMechanism
from enmasse.spark.receiver.receivers import ReceiverError
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.spark.spool.segment import read_spool
from enmasse.testing import Suite, wait_for
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.system.amqp_users import PATIENCE, Plain, Scram, client, proton, send_one
from tests.system.seeing import kill, wait_process
from tests.system.users import allow, apply, deny, entry, with_users

REFUSED = "amqp:unauthorized-access"
TOPIC, QUEUE = "small-persisted-topic", "small-persisted-queue"
KINDS = {"queue": {"flavor": QUEUE}, "topic": {"flavor": TOPIC}, "anycast": {}, "multicast": {}}
OPERATIONS = ("send", "recv")
GRANTS: list[tuple[str, ...]] = [(), ("send",), ("recv",), OPERATIONS]
ADDRESSES = {
    **{
        f"{kind}-{'-'.join(grant) or 'none'}": {"type": kind, **more}
        for kind, more in KINDS.items()
        for grant in GRANTS
    },
    "news": {"type": "topic", "flavor": TOPIC},
    "jobs": {"type": "queue", "flavor": QUEUE},
    "chat": {"type": "anycast"},
}
TABLE = [allow(f"{kind}-{'-'.join(grant)}", operations=grant) for kind in KINDS for grant in GRANTS if grant]
ALICE = entry("pw-a", *TABLE, allow("jobs", "chat", "news/own/${user}/#"), allow("news/open/#", operations=["recv"]),
              deny("news/open/secret"), groups=["staff"])  # fmt: skip
BOB = entry("pw-b", allow("jobs", "news/#"))
ADMIN = entry("pw-admin", allow("#", operations=["send", "recv", "manage"]))
USERS: dict[str, Any] = {"alice": ALICE, "bob": BOB, "admin": ADMIN, "@staff": {"permissions": []}}


@pytest.fixture(scope="module")
def running_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with with_users(tmp_path_factory.mktemp("users"), ADDRESSES, USERS) as found:
        yield found


@pytest.fixture
def suite(running_suite: Suite) -> Iterator[Suite]:
    """The users of USERS are in force; a test may change them."""
    apply(running_suite, USERS)
    yield running_suite
    running_suite.wait_ready()


def port_of(suite: Suite) -> int:
    return 5672 + suite.offset


async def put(suite: Suite, entries: dict[str, Any]) -> None:
    """Put these users in force."""
    await asyncio.to_thread(apply, suite, entries)


async def outcome(suite: Suite, mechanism: ClientMechanism | None) -> str:
    """Return "" for a login, otherwise why it was refused."""
    try:
        async with client(port_of(suite), mechanism):
            return ""
    except AmqpError as error:
        return str(error)


# --- login ------------------------------------------------------------------------------------------------------------


def test_proton_logs_in_by_plain(suite: Suite) -> None:
    connection = proton(suite, "alice", "pw-a")
    send_one(connection, "jobs")
    receiver = connection.create_receiver("jobs")
    receiver.receive(PATIENCE)
    receiver.accept()
    connection.close()
    wrong = ("alice", "wrong"), ("nobody", "pw-a"), ("@staff", "pw-a"), ("anonymous", "anonymous"), (None, None)
    for user, password in wrong:
        with pytest.raises(ConnectionException):
            proton(suite, user, password)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@asyncio_test
async def test_users_log_in_by_scram(suite: Suite, mechanism: str) -> None:
    assert await outcome(suite, Scram("alice", "pw-a", mechanism)) == ""
    for user, password in (("alice", "wrong"), ("nobody", "pw-a"), ("@staff", "pw-a")):
        assert "wrong credentials" in await outcome(suite, Scram(user, password, mechanism))


@asyncio_test
async def test_a_client_that_skips_sasl_is_not_let_in(suite: Suite) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(suite))
    writer.write(b"AMQP\x00\x01\x00\x00")
    assert await reader.read() == b"AMQP\x03\x01\x00\x00"
    writer.close()


@asyncio_test
async def test_anonymous_clients_need_an_entry_with_permissions(suite: Suite) -> None:
    assert "the server offers SCRAM-SHA-512, SCRAM-SHA-256, PLAIN" in await outcome(suite, None)
    await put(suite, {**USERS, "anonymous": {"permissions": [allow("chat")]}})
    async with client(port_of(suite), None) as c:
        await c.sender("chat", timeout=PATIENCE)
        with pytest.raises(AmqpError, match="user anonymous may not send to jobs"):
            await c.sender("jobs", timeout=PATIENCE)
        await put(suite, USERS)
        assert "clients without credentials are not allowed" in await gone(c)


async def gone(c: Client) -> str:
    """Return why a connection was closed."""
    await asyncio.wait_for(asyncio.shield(c._gone), PATIENCE)
    return str(c.error)


# --- rights -----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    kind: str
    operation: str
    grant: tuple[str, ...]
    below: str

    @property
    def address(self) -> str:
        return f"{self.kind}-{'-'.join(self.grant) or 'none'}{self.below}"

    @property
    def allowed(self) -> bool:
        return self.operation in self.grant and not self.below


CASES = [Case(kind, operation, grant, "") for kind in KINDS for operation in OPERATIONS for grant in GRANTS]
CASES += [Case("topic", operation, OPERATIONS, "/below") for operation in OPERATIONS]


@asyncio_test
async def test_each_link_needs_the_permission_of_its_operation(suite: Suite) -> None:
    async with client(port_of(suite), Scram("alice", "pw-a")) as c:
        relay = await c.sender(None, timeout=PATIENCE)
        for case in CASES:
            for spelled in ("", "/", "amqp://host/"):
                try:
                    address = spelled + case.address
                    attach = c.sender if case.operation == "send" else c.receiver
                    link = await attach(address, timeout=PATIENCE)
                    await link.close()
                    found = ""
                except AmqpError as refusal:
                    found = f"{refusal.condition}: {refusal.description}"
                word = "send to" if case.operation == "send" else "receive from"
                wanted = "" if case.allowed else f"{REFUSED}: user alice may not {word} {case.address}"
                if spelled:  # a broker does not know a topic by every spelling
                    assert found.startswith(REFUSED) is not case.allowed, (case, found)
                else:
                    assert found == wanted, case
            if case.operation == "send":
                result = await relay.send(OurMessage(to=case.address, body="x"), timeout=PATIENCE)
                error = result.error if isinstance(result, Rejected) else None
                assert (error is not None and error.condition == REFUSED) is not case.allowed, case


REFUSED_SOURCES = [
    "#",
    "news/#",
    "news/+/alice",
    "news/*",
    "news/open/+",
    "news/open/secret",
    "news::queue",
    "+",
    "news/own/alice::q",
    "$management",
    "_local/$management",
    "$sub/b/x",
    "$subctrl",
    "$lwt",
    "",
]
ALLOWED_SOURCES = ["news/own/alice", "news/own/alice/#", "news/own/alice/+/x", "news/open/a"]


@asyncio_test
async def test_receivers_with_wildcards_queues_of_topics_and_names_of_the_suite_need_permissions(suite: Suite) -> None:
    async with client(port_of(suite), Scram("alice", "pw-a")) as c:
        for address in ALLOWED_SOURCES:
            await (await c.receiver(address, timeout=PATIENCE)).close()
        for address in REFUSED_SOURCES:
            with pytest.raises(AmqpError, match=r"amqp:unauthorized-access|Node not found") as refused:
                await c.receiver(address, timeout=PATIENCE)
            assert address == "" or refused.value.condition == REFUSED, address
    async with client(port_of(suite), Scram("admin", "pw-admin")) as c:
        with pytest.raises(AmqpError, match="may not receive from"):
            await c.receiver("$sub/b/x", timeout=PATIENCE)
        await c.receiver("news/#", timeout=PATIENCE)


async def exchange(sending: Coroutine[Any, Any, Any], receiver: ClientReceiver) -> None:
    """Send a message and receive it."""
    sent = asyncio.ensure_future(sending)
    await (await receiver.receive(PATIENCE)).accept()
    assert await sent is ACCEPTED


@asyncio_test
async def test_replies_to_temporary_addresses_need_no_permission(suite: Suite) -> None:
    """A dynamic source, also of a broker: others may send to it, and none but its client receives from it."""
    alice, bob = client(port_of(suite), Scram("alice", "pw-a")), client(port_of(suite), Scram("bob", "pw-b"))
    async with alice, bob:
        for capabilities in ((), ("temporary-queue",)):
            own = await alice.receiver(None, dynamic=True, capabilities=capabilities, timeout=PATIENCE)
            assert own.address is not None
            relay = await bob.sender(None, timeout=PATIENCE)
            await exchange(relay.send(OurMessage(to=own.address, body="by the relay"), timeout=PATIENCE), own)
            sender = await bob.sender(own.address, timeout=PATIENCE)
            await exchange(sender.send(OurMessage(body="direct"), timeout=PATIENCE), own)
            with pytest.raises(AmqpError, match=REFUSED):
                await bob.receiver(own.address, timeout=PATIENCE)
            await (await alice.receiver(own.address, timeout=PATIENCE)).close()


# --- changes ----------------------------------------------------------------------------------------------------------


@asyncio_test
async def test_a_permission_that_is_taken_away_detaches_its_links_only(suite: Suite) -> None:
    await put(suite, {**USERS, "alice": entry("pw-a", allow("jobs", "chat", "news/#"), groups=["staff"]),
                  "@staff": {"permissions": [allow("queue-none")]}})  # fmt: skip
    alice, bob = client(port_of(suite), Scram("alice", "pw-a")), client(port_of(suite), Scram("bob", "pw-b"))
    async with alice, bob:
        links = [
            await alice.sender("chat", timeout=PATIENCE),
            await alice.receiver("chat", timeout=PATIENCE),
            await alice.sender("news/a", timeout=PATIENCE),
            await alice.receiver("news/#", timeout=PATIENCE),
            await alice.receiver("news", durable_name="kept", timeout=PATIENCE),
            await alice.sender("queue-none", timeout=PATIENCE),
        ]
        jobs = await alice.sender("jobs", timeout=PATIENCE)
        relay = await alice.sender(None, timeout=PATIENCE)
        assert not isinstance(await relay.send(OurMessage(to="news/a", body="x"), timeout=PATIENCE), Rejected)
        others = await bob.receiver("news/#", timeout=PATIENCE)
        await put(suite, {**USERS, "alice": entry("pw-a", allow("jobs"), groups=["staff"])})
        for link in links:
            with pytest.raises(AmqpError, match="user alice may not"):
                await detached(link)
        refused = await relay.send(OurMessage(to="news/a", body="x"), timeout=PATIENCE)
        assert isinstance(refused, Rejected)
        await jobs.send(OurMessage(body="still"), timeout=PATIENCE)
        assert not others.closed
        await put(suite, {**USERS, "alice": entry("pw-a", allow("news/#", "jobs"))})
        await (await alice.receiver("news", durable_name="kept", timeout=PATIENCE)).close()


async def detached(link: Any) -> None:
    """Wait for the end of a link; raises its error."""
    await asyncio.to_thread(wait_for, "the end of a link", lambda: link.closed)
    raise link.error


def test_the_source_of_spark_waits_for_a_permission_that_was_taken_away_and_ends_without_it(
    suite: Suite, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("pw-a")
    options = {"url": suite.url, "address": "jobs", "user": "alice", "passwordfile": str(tmp_path / "password")}
    without = {**USERS, "alice": entry("pw-a", groups=["staff"])}

    def reading(**patience: float) -> AmqpStreamReader:
        reader = AmqpStreamReader({**options, "spool": str(tmp_path / "spool")})
        reader.settings["patience"] = patience
        reader.started().await_address()
        return reader

    def stored() -> list[str]:
        """Return which of the test's messages are stored; earlier tests may have left others."""
        records = list(read_spool(tmp_path / "spool", 0, reader.started().heads()[0]))
        return [text for text in ("before", "meanwhile") for each in records if each.message.endswith(text.encode())]

    reader = reading()
    try:
        bob = proton(suite, "bob", "pw-b")
        send_one(bob, "jobs", "before")
        wait_for("the message before", lambda: stored() == ["before"])
        apply(suite, without)
        (process,) = reader.started().processes
        wait_for("the loss of the address", lambda: process.state == "lost" and REFUSED in process.trouble)
        send_one(bob, "jobs", "meanwhile")
        apply(suite, USERS)
        wait_for("the message that was sent meanwhile", lambda: stored() == ["before", "meanwhile"])
    finally:
        reader.stop()
    reader = reading(gone=1)
    try:
        apply(suite, without)
        reader.started().processes[0].process.wait(PATIENCE)
    except ReceiverError:  # it has ended before
        pass
    with pytest.raises(ReceiverError, match='the user of the option "user"'):
        reader.started()
    reader.stop()


@asyncio_test
async def test_a_removed_user_and_a_changed_password_close_connections(suite: Suite) -> None:
    await put(suite, {**USERS, "temp": entry("one", allow("chat")), "other": entry("one", allow("chat"))})
    temp, other = client(port_of(suite), Scram("temp", "one")), client(port_of(suite), Plain("other", "one"))
    async with temp, other, client(port_of(suite), Scram("bob", "pw-b")) as bob:
        await put(suite, {**USERS, "other": entry("two", allow("chat"))})
        assert "the user temp was removed" in await gone(temp)
        assert "the password of other has changed" in await gone(other)
        assert bob.connection.state == "open"
    assert "wrong credentials" in await outcome(suite, Scram("temp", "one"))
    assert "wrong credentials" in await outcome(suite, Scram("other", "one"))
    assert await outcome(suite, Scram("other", "two")) == ""


@asyncio_test
async def test_a_user_has_as_many_connections_as_its_limit_and_opens_them_as_often(suite: Suite) -> None:
    limits = {"connections": 2, "connects_per_second": 1000}
    await put(suite, {**USERS, "temp": {**entry("pw", allow("chat")), "limits": limits}})
    async with client(port_of(suite), Scram("temp", "pw")):
        async with client(port_of(suite), Plain("temp", "pw")):
            assert "temp has 2 of 2 connections" in await outcome(suite, Plain("temp", "pw"))
            assert await outcome(suite, Plain("bob", "pw-b")) == ""
        await asyncio.to_thread(wait_for, "room", lambda: asyncio.run(outcome(suite, Plain("temp", "pw"))) == "")
    await put(suite, {**USERS, "temp": {**entry("pw", allow("chat")), "limits": {"connects_per_second": 1}}})

    async def refused() -> bool:
        found = [await outcome(suite, Plain("temp", "pw")) for _ in range(3)]
        return "" in found and any("1 times a second" in each for each in found)

    await asyncio.to_thread(wait_for, "a refusal between logins", lambda: asyncio.run(refused()))


# --- ownership --------------------------------------------------------------------------------------------------------


@asyncio_test
async def test_two_users_with_the_same_container_id_and_link_name_have_two_subscriptions(suite: Suite) -> None:
    await put(suite, {**USERS, "alice": entry("pw-a", allow("news/#"))})
    sole: dict[str, Any] = {"container_id": "same", "desired_capabilities": ("sole-connection-for-container",)}
    alice = client(port_of(suite), Scram("alice", "pw-a"), **sole)
    bob = client(port_of(suite), Scram("bob", "pw-b"), **sole)
    async with alice, bob:
        mine = await alice.receiver("news", durable_name="sub", timeout=PATIENCE)
        theirs = await bob.receiver("news", durable_name="sub", timeout=PATIENCE)
        sender = await bob.sender("news", timeout=PATIENCE)
        await sender.send(OurMessage(body="both", durable=True), timeout=PATIENCE)
        for receiver in (mine, theirs):
            delivery = await receiver.receive()
            assert delivery.message.body == "both"
            await delivery.accept()
        await theirs.close()
        with pytest.raises(AmqpError, match="not-found"):
            await bob.subscription("sub", timeout=PATIENCE)
        assert not mine.closed
    async with client(port_of(suite), Scram("alice", "pw-a"), container_id="same") as again:
        await (await again.subscription("sub", timeout=PATIENCE)).close()
    async with client(port_of(suite), Scram("bob", "pw-b"), container_id="~alice/same") as forged:
        with pytest.raises(AmqpError, match="not-found"):
            await forged.subscription("sub", timeout=PATIENCE)


# --- many, and an authentication service that is away -----------------------------------------------------------------


@asyncio_test
async def test_a_hundred_simultaneous_logins_succeed(suite: Suite) -> None:
    """Each has 8 s, in which a busy machine may not check all passwords: such a client is asked to try again."""
    mechanisms = [Scram("alice", "pw-a") if i % 2 else Plain("bob", "pw-b") for i in range(100)]

    async def logs_in(mechanism: ClientMechanism) -> bool:
        found = await outcome(suite, mechanism)
        assert found == "" or "a transient system error" in found
        return found == ""

    await asyncio.gather(*(until(partial(logs_in, each), "a login") for each in mechanisms))


@asyncio_test
async def test_a_flood_of_logins_does_not_stop_other_clients(suite: Suite) -> None:
    """From another host: 300 connections that begin and go no further, while 200 state wrong passwords."""
    port = port_of(suite)

    async def hangs() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(b"AMQP\x03\x01\x00\x00")
        return writer

    async def guesses() -> None:
        init = encode_performative(SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0alice\0wrong"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
        writer.write(b"AMQP\x03\x01\x00\x00" + HEADER(len(init) + 8, 2, 1, 0) + init)
        await reader.read()
        writer.close()

    async with client(port, Scram("bob", "pw-b")) as bob:
        sender = await bob.sender("jobs", timeout=PATIENCE)
        hanging = await asyncio.gather(*(hangs() for _ in range(300)))
        guessing = [asyncio.ensure_future(guesses()) for _ in range(200)]
        for _ in range(5):
            assert await outcome(suite, Plain("alice", "pw-a")) == ""
            await sender.send(OurMessage(body="goes on", durable=True), timeout=PATIENCE)
        for writer in hanging:
            writer.close()
        await asyncio.gather(*guessing)


@asyncio_test
async def test_open_connections_work_while_the_authentication_service_is_away(suite: Suite) -> None:
    async with client(port_of(suite), Scram("bob", "pw-b")) as bob:
        sender = await bob.sender("jobs", timeout=PATIENCE)
        pid = kill(suite, "authserv")
        found = await outcome(suite, Scram("alice", "pw-a"))
        assert "a transient system error" in found or found == ""  # it may be back already
        await sender.send(OurMessage(body="goes on", durable=True), timeout=PATIENCE)
    await asyncio.to_thread(wait_process, suite, "authserv", pid)
    await asyncio.to_thread(wait_for, "a login", lambda: _logs_in(suite))


def _logs_in(suite: Suite) -> bool:
    try:
        proton(suite, "alice", "pw-a").close()
    except ConnectionException:
        return False
    return True
