"""`enmasse bench`: rate and latency of an address."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, TIMED_OUT, UNREACHABLE, Seconds, TlsFiles, end, port_offset, say, tls_options
from enmasse.cli.completion import addresses

if TYPE_CHECKING:
    from enmasse.cli.contexts.remote import RemoteAddress
    from enmasse.load.amqp import ReceivingEnd, Work

PATIENCE = 10.0
"""Seconds without any message after which the measurement fails."""
PROGRESS_SECONDS = 0.2
LATENCY_SHARE, LATENCY_MOST = 0.1, 1000.0
"""Latency is measured at this share of the rate, at most at LATENCY_MOST messages a second."""
MOST = 64
"""Senders, and receivers."""
PERCENTILES = (50, 90, 99, 99.9)


@click.command(name="bench", short_help="Measure rate and latency of an address.")
@click.argument("address", required=False, shell_complete=addresses)
@click.option("-a", "--address", "url", metavar="URL/ADDRESS", help="An address of another server.")
@click.option("--seconds", type=Seconds(0.1, 3600), default=5.0, show_default=True, metavar="SECONDS",
              help="Duration of each of the two measurements.")  # fmt: skip
@click.option("--size", type=click.IntRange(24, 1 << 20), default=100, show_default=True, help="Bytes in a body.")
@click.option("--non-durable", is_flag=True, help="Send messages that need not be stored on disk.")
@click.option("--protocol", type=click.Choice(["amqp", "mqtt", "http", "stomp", "coap"]), default="amqp",
              show_default=True, help="Protocol of the sender; the receiver's is AMQP.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.1, 10_000_000), metavar="N",
              help="Send N messages a second, once, instead of the two measurements.")  # fmt: skip
@click.option("--producers", type=click.IntRange(1, MOST), default=1, show_default=True, metavar="N",
              help="Senders, each a process.")  # fmt: skip
@click.option("--consumers", type=click.IntRange(1, MOST), default=1, show_default=True, metavar="N",
              help="Receivers, all in one process.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@tls_options
@port_offset
def command(
    address: str | None,
    url: str | None,
    seconds: float,
    size: int,
    non_durable: bool,
    protocol: str,
    rate: float | None,
    producers: int,
    consumers: int,
    as_json: bool,
    tls: TlsFiles,
    offset: int,
) -> None:
    """Measure rate and latency of an ADDRESS: first at full speed, then at a tenth of that rate, but at most 1,000
    messages a second.

    Senders and receivers are separate processes; every message is acknowledged. The address must be empty. Each of
    several receivers of a topic (multicast) receives, and counts, each message.
    """
    from enmasse.cli.commands.messaging.load import DATAGRAM, LoadError, at_door
    from enmasse.cli.contexts.remote import choose

    if protocol == "mqtt" and non_durable:
        raise click.UsageError("--non-durable: messages of MQTT that are acknowledged are durable")
    if protocol == "coap" and size > DATAGRAM:
        raise click.UsageError(f"--size: a datagram of CoAP has {DATAGRAM} bytes of a body at most")
    remote = choose(address, url, offset, tls)
    try:
        source = remote if protocol == "amqp" else at_door(remote, protocol)
        result = _measure(
            remote, source, seconds, size, durable=not non_durable, rate=rate, producers=producers, consumers=consumers
        )
    except LoadError as error:
        end("bench.address.failed", str(error), FAILED if error.foreign else UNREACHABLE)
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print(result)
    if not result["received"] or not result["latency_ms"]:
        end("bench.messages.missing", f"{remote}: no message came through within {PATIENCE:g} s", TIMED_OUT)


class _Receivers:
    """All receivers, as one: those after the first are in threads."""

    def __init__(self, ends: Sequence[ReceivingEnd]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.ends = ends
        self._threads = ThreadPoolExecutor(len(ends))

    @property
    def received(self) -> int:
        """Return how many messages have come since `restart`."""
        return sum(each.received for each in self.ends)

    @property
    def last(self) -> int:
        """Return when the last message came, in nanoseconds."""
        return max(each.last for each in self.ends)

    @property
    def span(self) -> float:
        """Return the seconds from the first message to the last."""
        return max(self.last - min((each.first for each in self.ends if each.first), default=0), 1) / 1e9

    @property
    def waits(self) -> list[int]:
        """Return the nanoseconds from sending to receiving."""
        return [wait for each in self.ends for wait in each.waits]

    def restart(self, *, timing: bool) -> None:
        """Count from zero."""
        for each in self.ends:
            each.restart(timing=timing)

    def take(self, seconds: float) -> bool:
        """Process what comes within `seconds`, or with one receiver what comes first; return whether there was a
        message. Raises AmqpError and Foreign."""
        if len(self.ends) == 1:
            return self.ends[0].take(seconds)
        until = time.monotonic() + seconds

        def taken(end: ReceivingEnd) -> bool:
            found = False
            while (left := until - time.monotonic()) > 0:
                found |= end.take(left)
            return found

        return any(list(self._threads.map(taken, self.ends)))

    def close(self) -> None:
        """End all connections."""
        self._threads.shutdown()
        for each in self.ends:
            each.close()


def _measure(
    remote: RemoteAddress, source: RemoteAddress, seconds: float, size: int, *, durable: bool, rate: float | None,
    producers: int, consumers: int,
) -> dict[str, Any]:  # fmt: skip
    """`source`: the address as the senders use it; `rate`: messages a second, None: as many as come through, then a
    share of that. Raises LoadError."""
    import secrets

    from enmasse.cli.commands.messaging.load import connected
    from enmasse.load.amqp import MARK_SIZE, ReceivingEnd, Work

    work = Work(
        address=remote.address, size=size, mark=secrets.token_bytes(MARK_SIZE), durable=durable, patience=PATIENCE
    )
    ends = [connected(ReceivingEnd, remote, work, f"enmasse-bench-receiver-{n}") for n in range(consumers)]
    receivers = _Receivers([each for each in ends if isinstance(each, ReceivingEnd)])
    receivers.restart(timing=rate is not None)
    for each in receivers.ends:
        each.grant()
    sent = _phase(receivers, source, replace(work, rate=(rate or 0.0) / producers), seconds, "rate", producers)
    received = receivers.received
    reached = received / receivers.span if received > 1 else 0.0
    result = {
        "address": remote.address, "protocol": source.scheme.removesuffix("s"), "size": size, "durable": durable,
        "producers": producers, "consumers": consumers, "sent": sent["sent"], "accepted": sent["accepted"],
        "received": received, "rate": round(reached, 1), "latency_rate": rate or 0.0,
        "latency_ms": percentiles(receivers.waits),
    }  # fmt: skip
    if reached and rate is None:
        receivers.restart(timing=True)
        paced = max(1.0, min(reached * LATENCY_SHARE, LATENCY_MOST))
        _phase(receivers, source, replace(work, rate=paced / producers), seconds, "latency", producers)
        result |= {"latency_rate": round(paced, 1), "latency_ms": percentiles(receivers.waits)}
    receivers.close()
    return result


def _phase(
    receivers: _Receivers, remote: RemoteAddress, work: Work, seconds: float, title: str, producers: int
) -> dict[str, Any]:
    """Run the senders; return the sum of their results when all accepted messages have arrived. Raises LoadError."""
    from enmasse.amqp.codec.errors import AmqpError
    from enmasse.cli.commands.messaging.load import LoadError, load_error
    from enmasse.load.amqp import Foreign

    options = {"remote": asdict(remote), "work": asdict(work) | {"mark": work.mark.hex()}, "seconds": seconds}
    command = (sys.executable, "-P", "-m", "enmasse.cli.commands.messaging.load")
    senders: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(producers):
            sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            senders.append(sender)
            assert sender.stdin is not None
            sender.stdin.write(json.dumps(options).encode())
            sender.stdin.close()
        with _progress(title, seconds) as show:
            while any(sender.poll() is None for sender in senders):
                receivers.take(PROGRESS_SECONDS)
                show(receivers.received)
        outcomes = [_outcome(sender) for sender in senders]
        for outcome in outcomes:
            if "error" in outcome:
                raise LoadError(outcome["error"])
        total = {key: sum(outcome[key] for outcome in outcomes) for key in ("sent", "accepted")}
        ended = time.monotonic()
        while receivers.received < total["accepted"] and time.monotonic() < max(ended, receivers.last / 1e9) + PATIENCE:
            receivers.take(PROGRESS_SECONDS)
        while len(receivers.ends) > 1 and receivers.take(PROGRESS_SECONDS):
            pass  # of a topic each receives all
        return total
    except Foreign:
        reason = "holds other messages, which were left there; use an empty address"
        raise LoadError(f"{remote.address} {reason}", foreign=True) from None
    except (AmqpError, OSError) as error:
        raise load_error(error, remote) from None
    finally:
        for sender in senders:
            if sender.poll() is None:
                sender.kill()
            sender.wait()


def _outcome(sender: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the result of a sender that has ended."""
    assert sender.stdout is not None
    output = sender.stdout.read()
    found: dict[str, Any] = json.loads(output) if output.strip() else {"error": "the sending process failed"}
    return found


@contextlib.contextmanager
def _progress(title: str, seconds: float) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; what is yielded takes the number of messages."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    began, steps, shown = time.monotonic(), max(1, round(seconds / PROGRESS_SECONDS)), 0
    made: Any = click.progressbar(
        length=steps, label=f"{title:8}", file=sys.stderr, item_show_func=lambda n: f"{n or 0:,} messages"
    )
    with made as bar:

        def show(messages: int) -> None:
            nonlocal shown
            now = min(steps, int((time.monotonic() - began) / PROGRESS_SECONDS))
            if now > shown:
                bar.update(now - shown, messages)
                shown = now

        yield show


def percentiles(nanoseconds: list[int]) -> dict[str, float]:
    """Nearest-rank percentiles and the maximum, in milliseconds; empty for an empty list."""
    if not nanoseconds:
        return {}
    ordered = sorted(nanoseconds)
    last = len(ordered) - 1
    found = {f"p{p:g}": ordered[min(last, int(len(ordered) * p / 100))] for p in PERCENTILES}
    return {name: round(value / 1e6, 3) for name, value in (found | {"max": ordered[-1]}).items()}


def _print(result: dict[str, Any]) -> None:
    from enmasse.text import counted

    kind = "durable" if result["durable"] else "non-durable"
    shares = ", ".join(f"{name} {value:.3g} ms" for name, value in result["latency_ms"].items())
    ends = f"{counted(result['producers'], 'producer')}, {counted(result['consumers'], 'consumer')}"
    counts = f"{result['sent']:,} sent, {result['accepted']:,} accepted, {result['received']:,} received"
    rate = f"{result['rate']:,.0f} messages a second"
    say(f"rate     {rate} ({result['protocol']}, {result['size']} bytes, {kind}, acknowledged)")
    say(f"latency  {shares or 'not measured'} (at {result['latency_rate']:,.0f} a second)")
    say(f"counts   {counts} ({ends})")
