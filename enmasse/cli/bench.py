"""`enmasse bench`: rate and latency of an address."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from enmasse.cli.common import FAILED, TIMED_OUT, UNREACHABLE, Seconds, TlsFiles, end, port_offset, tls_options
from enmasse.cli.completion import addresses

if TYPE_CHECKING:
    from enmasse.cli.load import ReceivingEnd
    from enmasse.cli.remote import RemoteAddress

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@tls_options
@port_offset
def command(
    address: str | None,
    url: str | None,
    seconds: float,
    size: int,
    non_durable: bool,
    as_json: bool,
    tls: TlsFiles,
    offset: int,
) -> None:
    """Measure rate and latency of an ADDRESS: first at full speed, then at a tenth of that rate, but at most 1,000
    messages a second.

    Sender and receiver are separate processes; every message is acknowledged. The address must be empty.
    """
    from enmasse.cli.load import LoadError, run
    from enmasse.cli.remote import choose

    remote = choose(address, url, offset, tls)
    try:
        result = run(_measure(remote, seconds, size, not non_durable))
    except LoadError as error:
        end("bench.address.failed", str(error), FAILED if error.foreign else UNREACHABLE)
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print(result)
    if not result["received"] or not result["latency_ms"]:
        end("bench.messages.missing", f"{remote}: no message came through within {PATIENCE:g} s", TIMED_OUT)


async def _measure(remote: RemoteAddress, seconds: float, size: int, durable: bool) -> dict[str, Any]:
    import secrets
    from dataclasses import asdict

    from enmasse.cli.load import ReceivingEnd

    run = secrets.token_bytes(16)
    receiver = ReceivingEnd(remote, run)
    await receiver.connect("enmasse-bench-receiver")
    options = {
        "remote": asdict(remote), "run": run.hex(), "size": size, "durable": durable, "rate": None, "seconds": seconds,
        "patience": PATIENCE,
    }  # fmt: skip
    sent = await _phase(receiver, options, "rate")
    span = max(receiver.last - receiver.first, 1) / 1e9
    rate = receiver.received / span if receiver.received > 1 else 0.0
    result = {
        "address": remote.address, "size": size, "durable": durable, "sent": sent["sent"], "accepted": sent["accepted"],
        "received": receiver.received, "rate": round(rate, 1), "latency_rate": 0.0, "latency_ms": {},
    }  # fmt: skip
    if rate:
        receiver.restart(timing=True)
        paced = max(1.0, min(rate * LATENCY_SHARE, LATENCY_MOST))
        await _phase(receiver, options | {"rate": paced}, "latency")
        result |= {"latency_rate": round(paced, 1), "latency_ms": percentiles(receiver.latencies)}
    receiver.connection.close()
    return result


async def _phase(receiver: ReceivingEnd, options: dict[str, Any], title: str) -> dict[str, Any]:
    """Run one sender; returns its result when all accepted messages have arrived. Raises LoadError."""
    import asyncio

    from enmasse.cli.load import LoadError

    command = (sys.executable, "-P", "-m", "enmasse.cli.load")
    pipe = asyncio.subprocess.PIPE
    sender = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    show = asyncio.create_task(_progress(receiver, title, options["seconds"]))
    try:
        talk = asyncio.ensure_future(sender.communicate(json.dumps(options).encode()))
        waiting: list[asyncio.Future[Any]] = [talk, receiver.failed]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if receiver.failed.done():
            await receiver.failed
        output = (await talk)[0]
        outcome: dict[str, Any] = json.loads(output) if output.strip() else {"error": "the sending process failed"}
        if "error" in outcome:
            raise LoadError(outcome["error"])
        await receiver.until(outcome["accepted"], PATIENCE)
        return outcome
    finally:
        show.cancel()
        await asyncio.gather(show, return_exceptions=True)
        if sender.returncode is None:
            sender.kill()
            await sender.wait()


async def _progress(receiver: ReceivingEnd, title: str, seconds: float) -> None:
    import asyncio

    if not sys.stderr.isatty():
        return
    steps = range(max(1, round(seconds / PROGRESS_SECONDS)))
    with click.progressbar(
        steps, label=f"{title:8}", file=sys.stderr, item_show_func=lambda _: f"{receiver.received:,} messages"
    ) as progress:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            progress.update(1, receiver.received)


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
    rate = f"{result['rate']:,.0f} messages a second ({result['size']} bytes, {kind}, acknowledged)"
    click.echo(f"rate     {rate}")
    click.echo(f"latency  {shares or 'not measured'} (at {result['latency_rate']:,.0f} a second)")
    click.echo(f"counts   {counts}")
