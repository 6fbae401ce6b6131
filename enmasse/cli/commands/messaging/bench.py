"""`enmasse bench`: rate and latency of an address."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
    as_json: bool,
    tls: TlsFiles,
    offset: int,
) -> None:
    """Measure rate and latency of an ADDRESS: first at full speed, then at a tenth of that rate, but at most 1,000
    messages a second.

    Sender and receiver are separate processes; every message is acknowledged. The address must be empty.
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
        result = _measure(remote, source, seconds, size, not non_durable)
    except LoadError as error:
        end("bench.address.failed", str(error), FAILED if error.foreign else UNREACHABLE)
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print(result)
    if not result["received"] or not result["latency_ms"]:
        end("bench.messages.missing", f"{remote}: no message came through within {PATIENCE:g} s", TIMED_OUT)


def _measure(remote: RemoteAddress, source: RemoteAddress, seconds: float, size: int, durable: bool) -> dict[str, Any]:
    """`source`: the address as the sender uses it. Raises LoadError."""
    import secrets

    from enmasse.cli.commands.messaging.load import connected
    from enmasse.load.amqp import MARK_SIZE, ReceivingEnd, Work

    work = Work(
        address=remote.address, size=size, mark=secrets.token_bytes(MARK_SIZE), durable=durable, patience=PATIENCE
    )
    receiver = connected(ReceivingEnd, remote, work, "enmasse-bench-receiver")
    assert isinstance(receiver, ReceivingEnd)
    receiver.grant()
    sent = _phase(receiver, source, work, seconds, "rate")
    span = max(receiver.last - receiver.first, 1) / 1e9
    rate = receiver.received / span if receiver.received > 1 else 0.0
    result = {
        "address": remote.address, "protocol": source.scheme.removesuffix("s"), "size": size, "durable": durable,
        "sent": sent["sent"], "accepted": sent["accepted"], "received": receiver.received,
        "rate": round(rate, 1), "latency_rate": 0.0, "latency_ms": {},
    }  # fmt: skip
    if rate:
        receiver.restart(timing=True)
        paced = max(1.0, min(rate * LATENCY_SHARE, LATENCY_MOST))
        _phase(receiver, source, replace(work, rate=paced), seconds, "latency")
        result |= {"latency_rate": round(paced, 1), "latency_ms": percentiles(receiver.waits)}
    receiver.close()
    return result


def _phase(receiver: ReceivingEnd, remote: RemoteAddress, work: Work, seconds: float, title: str) -> dict[str, Any]:
    """Run one sender; return its result when all accepted messages have arrived. Raises LoadError."""
    from enmasse.amqp.codec.errors import AmqpError
    from enmasse.cli.commands.messaging.load import LoadError, load_error
    from enmasse.load.amqp import Foreign

    options = {"remote": asdict(remote), "work": asdict(work) | {"mark": work.mark.hex()}, "seconds": seconds}
    command = (sys.executable, "-P", "-m", "enmasse.cli.commands.messaging.load")
    sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert sender.stdin is not None and sender.stdout is not None
    try:
        sender.stdin.write(json.dumps(options).encode())
        sender.stdin.close()
        with _progress(title, seconds) as show:
            while sender.poll() is None:
                receiver.take(PROGRESS_SECONDS)
                show(receiver.received)
        output = sender.stdout.read()
        outcome: dict[str, Any] = json.loads(output) if output.strip() else {"error": "the sending process failed"}
        if "error" in outcome:
            raise LoadError(outcome["error"])
        ended = time.monotonic()
        while receiver.received < outcome["accepted"] and time.monotonic() < max(ended, receiver.last / 1e9) + PATIENCE:
            receiver.take(PROGRESS_SECONDS)
        return outcome
    except Foreign:
        reason = "holds other messages, which were left there; use an empty address"
        raise LoadError(f"{remote.address} {reason}", foreign=True) from None
    except (AmqpError, OSError) as error:
        raise load_error(error, remote) from None
    finally:
        if sender.poll() is None:
            sender.kill()
        sender.wait()


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
    kind = "durable" if result["durable"] else "non-durable"
    shares = ", ".join(f"{name} {value:.3g} ms" for name, value in result["latency_ms"].items())
    counts = f"{result['sent']:,} sent, {result['accepted']:,} accepted, {result['received']:,} received"
    rate = f"{result['rate']:,.0f} messages a second"
    say(f"rate     {rate} ({result['protocol']}, {result['size']} bytes, {kind}, acknowledged)")
    say(f"latency  {shares or 'not measured'} (at {result['latency_rate']:,.0f} a second)")
    say(f"counts   {counts}")
