"""The two ends of `enmasse bench`, on the bare engine: a sender (a process of its own) and a receiver.

Bodies are 16 bytes of the run, 8 bytes of the time of sending (ns of the monotonic clock, which processes of a
machine share), filling.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from struct import Struct
from time import perf_counter_ns
from typing import Any

from enmasse.aio.client import user_sasl
from enmasse.aio.transport import Hub, dial
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import ACCEPTED, RELEASED, Source, Target
from enmasse.amqp.sasl import AnonymousClient, ExternalClient, SaslClient
from enmasse.cli.amqp import explain, refusal
from enmasse.cli.common import TlsFiles
from enmasse.cli.opening import opened
from enmasse.cli.remote import RemoteAddress

CREDIT = 1000
STAMP = Struct(">16sQ")
MIN_SIZE = STAMP.size
TICK = 0.001


class LoadError(Exception):
    """Why nothing can be measured; `foreign`: the address holds messages of another sender."""

    def __init__(self, reason: str, *, foreign: bool = False) -> None:
        super().__init__(reason)
        self.foreign = foreign


class _End(Handler):
    """One connection with one link."""

    def __init__(self, remote: RemoteAddress) -> None:
        self.remote = remote
        self.loop = asyncio.get_running_loop()
        self.attached: asyncio.Future[None] = self.loop.create_future()
        self.failed: asyncio.Future[None] = self.loop.create_future()

    async def connect(self, container: str) -> None:
        """Connect, and return when the link is attached. Raises LoadError."""
        remote = self.remote
        if remote.user is None:
            sasl = SaslClient([ExternalClient() if remote.certified else AnonymousClient()], remote.host)
        else:
            sasl = user_sasl(remote.host, remote.user, remote.password or "", tls=remote.tls)
        self.connection = Connection(
            self,
            container_id=container,
            is_client=True,
            hostname=remote.host,
            sasl=sasl,
        )
        try:
            context = remote.context()
            await opened(
                lambda: dial(Hub(), remote.host, remote.port, self.connection, context), remote.port, remote.offset
            )
            async with asyncio.timeout(10):
                await self.attached
        except TimeoutError:
            raise LoadError(f"{remote} does not answer") from None
        except OSError as error:
            raise LoadError(self._explained(error)) from None

    def on_attached(self, link: Link) -> None:
        terminus = link.remote_target if link.is_sender else link.remote_source
        if terminus is not None and not self.attached.done():
            self.attached.set_result(None)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.fail(LoadError(self._explained(error) if error else f"{self.remote}: the link was closed"))

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        error = error or c.transport_error
        self.fail(LoadError(self._explained(error) if error else f"{self.remote}: the connection was closed"))

    def _explained(self, error: AmqpError | OSError) -> str:
        return refusal(error, self.remote) or explain(error, self.remote)

    def fail(self, error: LoadError) -> None:
        """The first failure counts."""
        for future in (self.attached, self.failed):
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved, so that asyncio does not report it


class SendingEnd(_End):
    """Sends `payload` with fresh stamps: `rate` a second, or as fast as credit lets it (None)."""

    def __init__(self, remote: RemoteAddress, run: bytes, size: int, durable: bool, rate: float | None) -> None:
        super().__init__(remote)
        whole = Message(STAMP.pack(run, 0) + bytes(size - MIN_SIZE), durable=durable).encode()
        at = whole.index(run)
        self._head, self._run, self._tail = whole[:at], run, whole[at + MIN_SIZE :]
        self._rate = rate
        self._running = False
        self.sent = self.decided = self.accepted = 0
        self.changed = asyncio.Event()

    def on_open(self, c: Connection) -> None:
        """Attach the sender."""
        self.link = c.begin().attach_sender(None, Source(address=""), Target(address=self.remote.address))

    def on_flow(self, link: Sender) -> None:
        """Send as many messages as there is credit for, unless a rate is set."""
        self.changed.set()
        if link.drain:
            link.drained()
        if self._running and self._rate is None:
            self._send(link.credit)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """Count outcomes."""
        self.decided += len(tokens)
        if state is ACCEPTED:
            self.accepted += len(tokens)
        self.changed.set()

    def _send(self, count: int) -> None:
        send, head, run, tail, pack = self.link.send, self._head, self._run, self._tail, STAMP.pack
        for _ in range(count):
            send(head + pack(run, perf_counter_ns()) + tail)
        self.sent += count

    async def run(self, seconds: float, patience: float) -> dict[str, Any]:
        """Send for `seconds`, then wait for the outcomes, at most `patience` seconds without any. Raises LoadError.

        The time begins with the first credit, for which it waits as long.
        """
        while not self.link.credit and not self.failed.done() and await self._changes_within(patience):
            pass
        start = self.loop.time()
        self._running = True
        while (now := self.loop.time()) < start + seconds and not self.failed.done():
            if self._rate is None:
                self._send(self.link.credit)
            else:
                due = int((now - start) * self._rate) + 1 - self.sent
                self._send(max(0, min(due, self.link.credit)))
            await asyncio.sleep(TICK)
        self._running = False
        took = self.loop.time() - start
        while self.decided < self.sent and not self.failed.done():
            if not await self._changes_within(patience):
                break
        if self.failed.done():
            await self.failed
        self.connection.close()
        return {"sent": self.sent, "accepted": self.accepted, "seconds": took}

    async def _changes_within(self, patience: float) -> bool:
        """Wait for credit or an outcome; False if none arrives in `patience` seconds."""
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), patience)
        except TimeoutError:
            return False
        return True


class ReceivingEnd(_End):
    """Receives, accepts and counts messages of this run. `latencies`: nanoseconds, while `timing`."""

    def __init__(self, remote: RemoteAddress, run: bytes) -> None:
        super().__init__(remote)
        self._run = run
        self.received = 0
        self.first = self.last = 0
        self.timing = False
        self.latencies: list[int] = []

    def on_open(self, c: Connection) -> None:
        """Attach the receiver."""
        link = c.begin().attach_receiver(None, Source(address=self.remote.address), Target(address=""))
        link.credit_window = CREDIT
        link.on_delivery = self._receive_function(link)

    def _receive_function(self, link: Receiver) -> Callable[..., None]:
        run, settle, unpack = self._run, link.session.settle, STAMP.unpack_from

        def accept(
            _: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
        ) -> None:
            at = payload.find(run)
            if at < 0:
                settle(delivery_id, RELEASED)
                link.credit_window = 0
                reason = "holds other messages, which were left there; use an empty address"
                self.fail(LoadError(f"{self.remote.address} {reason}", foreign=True))
                return
            now = perf_counter_ns()
            if not self.received:
                self.first = now
            self.received += 1
            self.last = now
            if self.timing:
                self.latencies.append(now - unpack(payload, at)[1])
            if not settled:
                settle(delivery_id)

        return accept

    def restart(self, *, timing: bool) -> None:
        """Count from zero."""
        self.received, self.timing, self.latencies = 0, timing, []

    async def until(self, count: int, patience: float) -> None:
        """Wait for `count` messages, at most `patience` seconds without any. Raises LoadError."""
        seen, since = -1, self.loop.time()
        while self.received < count:
            if self.failed.done():
                await self.failed
            if self.received != seen:
                seen, since = self.received, self.loop.time()
            elif self.loop.time() - since > patience:
                return
            await asyncio.sleep(0.01)


def main() -> None:
    """The sender as a process: options as JSON on stdin, because they have the password; its result, or {"error": …},
    as JSON on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    options = json.loads(sys.stdin.read())
    remote = options["remote"]

    async def send() -> dict[str, Any]:
        end = SendingEnd(
            RemoteAddress(**{**remote, "files": TlsFiles(*remote["files"])}),
            bytes.fromhex(options["run"]),
            options["size"],
            options["durable"],
            options["rate"],
        )
        try:
            await end.connect("enmasse-bench-sender")
            return await end.run(options["seconds"], options["patience"])
        except LoadError as error:
            return {"error": str(error)}

    print(json.dumps(run(send())))


def run(work: Any) -> Any:
    """Run a coroutine, on uvloop if it is installed."""
    from enmasse.aio.transport import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


if __name__ == "__main__":
    main()
