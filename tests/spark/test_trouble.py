"""A source whose server or address is not there: it ends with a sentence, or says that it tries again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from proton import Message
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enmasse.aio.transport import Hub, serve
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.link import Link, Sender
from enmasse.amqp.sasl.layer import SaslServer, plain
from enmasse.spark.receiver import receivers
from enmasse.spark.receiver.account import OwnAccount
from enmasse.spark.receiver.outage import Outage, Patience, Phase
from enmasse.spark.receiver.receivers import ReceiverError, ReceiverProcess
from enmasse.spark.receiver.spool_receiver import SpoolIntake
from enmasse.spark.receiver.unsettled import FRESH, LATER, Unsettled
from enmasse.spark.sink import sink as sinking
from enmasse.spark.sink.encoding import Ids
from enmasse.spark.sink.sink import AmqpStreamWriter, Sink, SinkError
from enmasse.spark.source.browse import AmqpReader, BrowseError
from enmasse.spark.source.source import AmqpStreamReader, receiver_settings
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.origin import Origin
from enmasse.spark.spool.segment import SpoolError
from enmasse.spark.spool.spool import MUCH, SpoolWriter
from enmasse.testing import free_port
from tests.amqp.server_kit import Store
from tests.certificates import Authority
from tests.kit.waiting import wait_for as until
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
REFUSED = ConnectionRefusedError(111, "Connect call failed")
GONE = AmqpError(errors.NOT_FOUND, "no such address")
URL = "amqp://me:hidden@host:1"


def outage() -> Outage:
    return Outage(URL, "a", Patience(start=30, gone=60), now=0)


@pytest.mark.parametrize(
    ("phase", "error", "said"),
    [
        (Phase.ATTACH, GONE, "option \"address\": amqp://me@host:1 refuses 'a' .* space.* make the address first"),
        (Phase.ATTACH, AmqpError(errors.UNAUTHORIZED_ACCESS, "no"), 'option "address".*Let the user .* use it'),
        (Phase.ATTACH, AmqpError(errors.NOT_ALLOWED, "no"), 'option "address".*Let the user .* use it'),
        (Phase.CONNECT, AmqpError(errors.UNAUTHORIZED_ACCESS, "no"), "option \"url\": .* refuses the user 'me'"),
        (
            Phase.CONNECT,
            AmqpError(errors.UNAUTHORIZED_ACCESS, "the server offers ANONYMOUS, the client has PLAIN"),
            'option "url": .* has no users .*Leave the user out',
        ),
        (Phase.CONNECT, ssl.SSLCertVerificationError("self-signed"), 'option "url": the certificate .* SSL_CERT_FILE'),
        (Phase.CONNECT, socket.gaierror(-2, "not known"), "option \"url\": the host name 'host' .* does not resolve"),
    ],
)
def test_what_waiting_does_not_help_ends_a_new_query_at_once(phase: Phase, error: Exception, said: str) -> None:
    sentence = outage().failed(phase, error, 1)
    assert sentence is not None
    with pytest.raises(ReceiverError, match=said):
        raise ReceiverError(sentence)
    assert "hidden" not in sentence


def test_a_new_query_waits_so_long_for_its_server() -> None:
    new = outage()
    assert new.failed(Phase.CONNECT, REFUSED, 29) is None
    said = new.failed(Phase.CONNECT, REFUSED, 30)
    assert said is not None and 'option "url": no connection with amqp://me@host:1 in 30 s' in said
    assert "Connect call failed" in said
    said = outage().failed(Phase.CONNECT, ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), 30)
    assert said is not None and "AMQP without TLS is amqp://host:port" in said


def test_a_server_that_was_there_is_waited_for_without_end() -> None:
    old = outage()
    old.attached()
    for now in (10, 1000, 100_000):
        assert old.failed(Phase.CONNECT, REFUSED, now) is None
        assert old.failed(Phase.CONNECT, socket.gaierror(-2, "not known"), now) is None


def test_an_address_that_was_there_is_waited_for_a_while() -> None:
    old = outage()
    old.attached()
    assert old.failed(Phase.ATTACH, GONE, 100) is None
    assert old.failed(Phase.ATTACH, GONE, 159) is None
    assert old.failed(Phase.CONNECT, REFUSED, 159) is None  # the server restarts: the while begins anew
    assert old.failed(Phase.ATTACH, GONE, 170) is None
    said = old.failed(Phase.ATTACH, GONE, 230)
    assert said is not None and "It worked before; this has lasted for 60 s" in said


@contextmanager
def reading(url: str, address: str, folder: Path, **patience: float) -> Iterator[AmqpStreamReader]:
    reader = AmqpStreamReader({"url": url, "address": address, "spool": str(folder / "spool")})
    reader.settings["patience"] = patience
    try:
        yield reader
    finally:
        reader.stop()


def ending(url: str, address: str, folder: Path, **patience: float) -> str:
    """What the source says at the end of its receiver."""
    with reading(url, address, folder, **patience) as reader, pytest.raises(ReceiverError) as caught:
        reader.started().await_address()
    return str(caught.value)


def test_what_is_available_now_of_no_address_is_not_nothing(broker: Broker, tmp_path: Path) -> None:
    with reading(broker.url, "nosuch", tmp_path) as reader, pytest.raises(ReceiverError, match="refuses 'nosuch'"):
        reader.prepareForTriggerAvailableNow()


def test_a_server_that_never_was_there_ends_the_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = ending("amqp://127.0.0.1:1", "a", tmp_path, start=3)  # time for more than one attempt
    assert 'option "url": no connection with amqp://127.0.0.1:1 in 3 s' in said and "Connect call failed" in said
    assert [r.getMessage().partition(" reason=")[0] for r in caplog.records] == [
        "spark.source.interrupted source='a' at amqp://127.0.0.1:1"
    ]


def test_a_host_name_that_does_not_resolve_ends_the_query(tmp_path: Path) -> None:
    assert "the host name 'nohost.invalid'" in ending("amqp://nohost.invalid", "a", tmp_path, start=1)


@contextmanager
def served(
    sasl: Callable[[], SaslServer] | None = None, tls: ssl.SSLContext | None = None, store: Store | None = None
) -> Iterator[int]:
    """A server in a thread; gives its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    store = store or Store()

    async def start() -> Any:
        return await serve(
            Hub(), "127.0.0.1", 0, lambda peer: store.make(peer, **({"sasl": sasl()} if sasl else {})), ssl=tls
        )

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(DEADLINE).port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()


def test_a_wrong_password_ends_the_query_and_is_not_shown(tmp_path: Path) -> None:
    with served(lambda: SaslServer({"PLAIN": plain({"me": "right"})})) as port:
        said = ending(f"amqp://me:hidden@127.0.0.1:{port}", "a", tmp_path)
        assert f"option \"url\": amqp://me@127.0.0.1:{port} refuses the user 'me'" in said and "hidden" not in said
        assert "refuses a client without a user" in ending(f"amqp://127.0.0.1:{port}", "a", tmp_path)


def test_a_certificate_that_is_not_trusted_ends_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    with served(tls=authority.server_context()) as port:
        said = ending(f"amqps://127.0.0.1:{port}", "a", tmp_path)
        assert "is not trusted" in said and "SSL_CERT_FILE" in said
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))  # what the sentence says helps
        with reading(f"amqps://127.0.0.1:{port}", "a", tmp_path) as reader:
            reader.started().await_address()


def test_a_port_of_amqps_is_named_at_once(tmp_path: Path) -> None:
    with served(tls=Authority(tmp_path).server_context()) as port:
        url, said = f"amqp://127.0.0.1:{port}", f"amqp://127.0.0.1:{port} is a port of AMQPS: write amqps://"
        assert said in ending(url, "a", tmp_path)
        with pytest.raises(BrowseError, match=said):
            next(AmqpReader({"url": url, "address": "a"}).read(InputPartition(None)))
        with pytest.raises(SinkError, match=said):
            asyncio.run(Sink({"url": url, "address": "a"})._sender(Sink({"url": url, "address": "a"}).login.client()))


def test_files_of_password_and_authorities_are_read_for_each_connection(tmp_path: Path) -> None:
    authority, password = Authority(tmp_path), tmp_path / "password"
    password.write_text("wrong-hidden\n")
    with served(lambda: SaslServer({"PLAIN": plain({"me": "right"})}), authority.server_context()) as port:
        options = {
            "url": f"amqps://127.0.0.1:{port}",
            "address": "a",
            "spool": str(tmp_path / "spool"),
            "user": "me",
            "passwordfile": str(password),
            "cafile": str(authority.file),
        }

        def reader() -> AmqpStreamReader:
            return AmqpStreamReader(dict(options))

        said = ended(reader())
        assert "refuses the user 'me'" in said and "hidden" not in said
        password.write_text("right\n")
        with closing(reader()) as good:
            good.started().await_address()
        password.unlink()
        assert 'amqp source: option "passwordFile": ' in (said := ended(reader())) and str(password) in said
        options["cafile"] = str(tmp_path / "none")
        password.write_text("right")
        assert 'amqp source: option "caFile": ' in ended(reader())


@contextmanager
def closing(reader: AmqpStreamReader) -> Iterator[AmqpStreamReader]:
    try:
        yield reader
    finally:
        reader.stop()


def ended(reader: AmqpStreamReader) -> str:
    """What the source says at the end of its receiver."""
    with closing(reader), pytest.raises(ReceiverError) as caught:
        reader.started().await_address()
    return str(caught.value)


def test_an_address_that_goes_and_comes_back(broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker.queue("comes")
    with reading(broker.url, "comes", tmp_path) as reader:
        reader.started().await_address()
        broker.manage("destroyQueue", "comes", True)
        until(lambda: "spark.source.interrupted source='comes'" in caplog.text, "a warning that it is gone")
        broker.queue("comes")
        broker.send("comes", [Message(id="1", body="x", durable=True)])
        until(lambda: reader.reportLatestOffset()["record"] == 1, "the message")
        until(lambda: "spark.source.resumed source='comes'" in caplog.text, "a warning that it is back")
    assert len(caplog.records) == 2


def test_an_address_that_goes_for_good_ends_the_query(broker: Broker, tmp_path: Path) -> None:
    broker.queue("goes")
    with reading(broker.url, "goes", tmp_path, gone=1) as reader:
        receiver = reader.started()
        receiver.await_address()
        broker.manage("destroyQueue", "goes", True)
        receiver.processes[0].process.wait(DEADLINE)
        with pytest.raises(ReceiverError, match=r"refuses 'goes' .* It worked before; this has lasted for 1 s"):
            reader.reportLatestOffset()


class Removable(Store):
    """As a router: links stay when their address is removed, new ones are refused."""

    there = True

    def on_attach(self, link: Link) -> None:
        if not self.there:
            raise GONE
        super().on_attach(link)
        if isinstance(link, Sender):
            link.available = lambda: 0 if self.there else None


def test_an_address_that_goes_silently_ends_the_query(tmp_path: Path) -> None:
    store = Removable()
    with served(store=store) as port, reading(f"amqp://127.0.0.1:{port}", "a", tmp_path, gone=0) as reader:
        receiver = reader.started()
        until(lambda: receiver.available == 0, "the number of messages that wait")
        store.there = False
        receiver.processes[0].process.wait(DEADLINE)
        with pytest.raises(ReceiverError, match=r"refuses 'a' .* It worked before"):
            reader.reportLatestOffset()


def test_a_write_to_an_address_that_goes_silently_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinking, "CREDIT_SECONDS", 0.01)
    store = Removable()
    store.window = 0
    rows = pa.RecordBatch.from_pylist([{"body": b"x"}])
    with served(store=store) as port, ThreadPoolExecutor(1) as pool:
        sink = Sink({"url": f"amqp://127.0.0.1:{port}", "address": "a"})
        sent = pool.submit(asyncio.run, sink.send(iter([rows]), Ids("a", "query")))
        until(lambda: len(store.detached) > 1, "the sink to see that its address is there")
        store.there = False
        with pytest.raises(SinkError, match="refuses 'a'"):
            sent.result(DEADLINE)


def test_a_full_spool_goes_on_without_a_next_batch(broker: Broker, tmp_path: Path) -> None:
    """Spark commits a batch when it plans the next one: where all was read there is none before more has come."""
    broker.queue("much")
    broker.send("much", [Message(id=str(i), body="x" * 1000, durable=True) for i in range(60)])
    reader = AmqpStreamReader(
        {"url": broker.url, "address": "much", "spool": str(tmp_path / "spool"), "spoollimit": "20000", "credit": "5"}
    )
    try:
        at = reader.initialOffset()
        until(lambda: reader.started().full, "a full spool")
        until(lambda: reader.latestOffset(at, ReadAllAvailable())["record"] >= 10, "what a full spool holds")
        assert reader.started().heads()[0] < 60
        rows: list[Any] = []
        while len(rows) < 60:
            more = partial(reader.latestOffset, at, ReadAllAvailable())
            until(lambda: more() != at, f"more than {len(rows)} messages")
            end = more()
            for part in reader.partitions(at, end):
                rows.extend(row for batch in reader.read(part) for row in batch.to_pylist())
            at = end
    finally:
        reader.stop()
    assert [row["message_id"] for row in rows] == [str(i) for i in range(60)]


def test_a_spool_that_was_emptied_under_its_checkpoint_is_reported(broker: Broker, tmp_path: Path) -> None:
    """Else the first messages of the new spool would be taken for read."""
    broker.queue("emptied")
    said = "the checkpoint has read 7 records of it, but it holds only 0"
    with reading(broker.url, "emptied", tmp_path) as reader, pytest.raises(SpoolError, match=said):
        reader.latestOffset({"record": 7}, ReadAllAvailable())


def test_a_spool_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = r'option "spool": .*file/spool.*Choose a folder'
    with reading("amqp://127.0.0.1:1", "a", tmp_path / "file") as reader, pytest.raises(ReceiverError, match=said):
        reader.started()


@pytest.mark.parametrize("size", [0, 2 * MUCH])
def test_a_spool_that_cannot_be_written_is_named_and_accepts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    class Arrived:
        id, payload, settled = 0, bytes(size), False

        @property
        def receiver(self) -> object:
            raise AssertionError("accepted")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = SpoolWriter(tmp_path)
    intake: Any = SpoolIntake(spool, OwnAccount(Unsettled(tmp_path, [0], 1)))
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match=f"the spool cannot be written, No space left on device: .*{tmp_path.name}"):
        asyncio.run(intake.take([Arrived()]))


class Late:
    """A message that waits for the account's decision; notes its outcome."""

    settled, link = False, Mock()

    def __init__(self, id: int, outcomes: dict[int, tuple[int, object]], spool: SpoolWriter) -> None:
        self.id, self.payload, self.receiver = id, b"%d" % id, self
        self._outcomes, self._spool = outcomes, spool

    def accept_all(self, deliveries: list[Late]) -> None:
        for delivery in deliveries:
            self._outcomes[delivery.id] = self._spool.count, ACCEPTED


@pytest.mark.parametrize("disk", ["slow", "full"])
def test_what_is_decided_while_a_group_is_stored_is_stored_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """The first of four is decided at once, the others while it is synced; none is lost, none accepted unstored."""
    spool, outcomes, syncs, decided = SpoolWriter(tmp_path), dict[int, tuple[int, object]](), [0], threading.Event()

    class Deciding(OwnAccount):
        async def claim(self, claims: Sequence[tuple[int, bytes]]) -> list[int]:
            return [LATER for _ in claims]

        def stored(self, records: Sequence[tuple[int, int]], count: int) -> None:
            assert count == spool.count

    async def arrive() -> None:
        loop, account = asyncio.get_running_loop(), Deciding(Unsettled(tmp_path, [0], 1))
        intake: Any = SpoolIntake(spool, account)

        def decide(*ids: int) -> None:
            for each in ids:
                account.decided(each, FRESH)
            if len(ids) > 1:
                decided.set()

        def sync(file: int) -> None:
            syncs[0] += 1
            if syncs[0] == 1:
                loop.call_soon_threadsafe(decide, 1, 2, 3)
                assert decided.wait(DEADLINE)
            elif disk == "full":
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(spooling, "MUCH", 1)  # each sync in a thread
        await intake.take([Late(n, outcomes, spool) for n in range(4)])
        monkeypatch.setattr(os, "fdatasync", sync)
        decide(0)
        while intake.busy:
            await asyncio.sleep(0)

    asyncio.run(arrive())
    kept = 4 if disk == "slow" else 1
    assert spool.count == kept and sorted(outcomes) == list(range(kept)) and syncs == [2]
    assert all(stored > n and state is ACCEPTED for n, (stored, state) in outcomes.items())
    assert Late.link.detach.called == (disk == "full")


def test_what_is_decided_when_its_link_is_lost_is_not_stored(tmp_path: Path) -> None:
    """A group that is being stored lets it wait until then."""
    spool, outcomes = SpoolWriter(tmp_path), dict[int, tuple[int, object]]()

    class Deciding(OwnAccount):
        async def claim(self, claims: Sequence[tuple[int, bytes]]) -> list[int]:
            return [LATER for _ in claims]

    async def arrive() -> None:
        account = Deciding(Unsettled(tmp_path, [0], 1))
        intake: Any = SpoolIntake(spool, account)
        await intake.take([Late(0, outcomes, spool)])
        async with intake._writing:
            account.decided(0, FRESH)
            await asyncio.sleep(0)
            lost = asyncio.create_task(intake.lost())
            await asyncio.sleep(0)
        await lost
        await intake._storing_late
        assert intake._failure is None and not intake.busy

    asyncio.run(arrive())
    assert not outcomes and not spool.count


def test_a_receiver_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a query ends, however slow the machine is; what was not accepted by then comes again."""
    monkeypatch.setattr(receivers, "STOP_SECONDS", 0.1)
    with reading(f"amqp://127.0.0.1:{free_port()}", "a", tmp_path) as reader:
        process = reader.started().processes[0].process
        process.send_signal(signal.SIGSTOP)
    assert process.returncode == -signal.SIGKILL


def sent(url: str, address: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"body": "x"}])
    AmqpStreamWriter(Sink({"url": url, "address": address})).write(iter([rows]))


def test_a_sink_without_its_server_or_address_is_an_error(broker: Broker) -> None:
    with pytest.raises(SinkError, match=r'amqp sink: option "url": no connection with amqp://127.0.0.1:1 \('):
        sent("amqp://127.0.0.1:1", "a")
    with pytest.raises(SinkError, match=r"amqp sink: option \"address\": .* refuses 'nosuch'"):
        sent(broker.url, "nosuch")


NOISE = """
import os, sys
if sys.argv[0] == "-m" and "enmasse.spark.receiver.spool_receiver" in sys.orig_argv:
    os.write(1, b'a library greets \\xff\\n{"no": "event"}\\n[]\\n{"event": 7}\\n')
"""


def test_lines_of_others_do_not_end_what_reads_a_receivers_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    url = f"amqp://127.0.0.1:{free_port()}"  # nobody listens: it tries for a while
    receiver = ReceiverProcess(receiver_settings({"url": url, "address": "a", "spool": str(tmp_path / "spool")}))
    try:
        assert receiver.opened.wait(DEADLINE) and receiver.events.is_alive()
    finally:
        receiver.stop()
    ignored = [record for record in caplog.records if "spark.receiver.line-ignored" in record.getMessage()]
    assert len(ignored) == 4


def test_what_libraries_print_is_not_among_a_receivers_events() -> None:
    program = (
        "import os; from enmasse.spark.receiver import spool_receiver; spool_receiver.separate(); print('a library'); "
        "os.write(1, b'and another'); spool_receiver.report('opened')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"event": "opened"}
    assert "a library" in done.stderr and "and another" in done.stderr


def test_a_spool_is_not_read_as_that_of_another_address(broker: Broker, tmp_path: Path) -> None:
    for name in ("origin-a", "origin-b", "origin-typo"):
        broker.queue(name)
    with reading(broker.url, "origin-typo", tmp_path) as reader:
        reader.started().await_address()
    broker.send("origin-a", [Message(body="first")])
    with reading(broker.url, "origin-a", tmp_path) as reader:  # of a spool without records it does not matter
        reader.prepareForTriggerAvailableNow()
        until(lambda: reader.started().heads() == [1], "the message")
    said = "the spool has messages of 'origin-a', and the query is to read 'origin-b'"
    with reading(broker.url, "origin-b", tmp_path) as reader, pytest.raises(ReceiverError, match=said):
        reader.started()
    (tmp_path / "spool" / "origin").unlink()  # of an earlier version
    with reading(broker.url, "origin-a", tmp_path) as reader:
        reader.prepareForTriggerAvailableNow()
    with reading(broker.url, "origin-b", tmp_path) as reader, pytest.raises(ReceiverError, match=said):
        reader.started()


def test_a_spool_is_of_an_address_space_too() -> None:
    Origin("a", "one").check(Origin("a", "one").encoded(), "/s")
    with pytest.raises(SpoolError, match="in the address space 'one', and the query is to read 'a'"):
        Origin("a").check(Origin("a", "one").encoded(), "/s")


def test_a_subscription_of_a_queue_is_named_at_once(broker: Broker, tmp_path: Path) -> None:
    broker.queue("no-topic")
    reader = AmqpStreamReader(
        {"url": broker.url, "address": "no-topic", "spool": str(tmp_path / "spool"), "subscription": "s"}
    )
    try:
        with pytest.raises(ReceiverError, match=r"option .subscription.: .no-topic. is no topic .* Leave"):
            reader.started().await_address()
    finally:
        reader.stop()
