"""The documented backup: the stores and their broker are copied while clients are served, and restored."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

from enmasse.stores import Change, SqliteSettings
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.stores.opened import content, opened
from tests.subserv.harness import Gateway, World, world

ROOT = Path(__file__).parents[2]


def commands() -> str:
    """All shell commands of the section, in their order."""
    _, _, section = (ROOT / "docs" / "operations.md").read_text().partition("## Backup")
    section, _, _ = section.partition("\n## ")
    blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
    assert len(blocks) == 2
    return "\n".join(blocks)


async def load(w: World, gateway: Gateway, done: list[str]) -> None:
    """Sessions begin, subscribe and begin QoS 2 exchanges, and retained messages come; `done` has the clients."""
    number = 0
    while True:
        number += 1
        client = f"c{number}"
        await gateway.open(client)
        await gateway.subscribe(client, f"news/{client}")
        await gateway.packets([client, gateway.epochs[client], "in", 7, f"id of {client}"])
        await w.publish_to(f"news/{client}", f"for {client}".encode(), retain=True)
        done.append(client)


@asyncio_test
async def test_the_documented_backup_under_load_restores_every_session_and_retained_message(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    for name in ("subserv", "mqtt_lwt"):
        (data / name).mkdir(parents=True)
    will = [Change("wills", "w1", b"a will")]
    async with opened(SqliteSettings(str(data / "mqtt_lwt" / "store.db"))) as wills:
        await wills.write(will)
        async with world(data, store={"kind": "sqlite", "path": str(data / "subserv" / "store.db")}) as w:
            broker = w.brokers["b1"]
            (data / "brokers").mkdir()
            (data / "brokers" / "b1").symlink_to(broker.settings["data_dir"])
            gateway = await w.gateway()
            done: list[str] = []
            loading = asyncio.ensure_future(load(w, gateway, done))
            await until(lambda: len(done) > 10 or loading.done())
            before = list(done)
            await asyncio.to_thread(
                subprocess.run,
                ["sh", "-euc", commands()],
                env={**os.environ, "DATA": str(data), "TARGET": str(target)},
                check=True,
                timeout=DEADLINE,
            )
            so_far = len(done)
            await until(lambda: len(done) > so_far + 5 or loading.done())
            loading.cancel()
            w.kill()
            broker.kill()
            await wills.close()
            copies = {"subserv": data / "subserv", "brokers/b1": Path(broker.settings["data_dir"])}
            for name, place in {**copies, "mqtt_lwt": data / "mqtt_lwt"}.items():
                shutil.rmtree(place)
                (target / name).rename(place)
            await asyncio.to_thread(broker.start)
            w.launch()
            await w.ready()
            health = w.health()
            assert health["ready"], health
            assert health["counts"]["sessions"] >= len(before) and health["counts"]["retained"] >= len(before)
            gateway = await w.gateway("gw-restored")
            for client in before:
                opened_again = await gateway.open(client)
                assert opened_again["present"]
                assert opened_again["received"] == [[7, f"id of {client}"]]
                (source,) = opened_again["sources"]
                (message,) = await w.take(source["address"], 1)
                assert message.body == f"for {client}".encode()
            fresh = await gateway.open("fresh")
            assert not fresh["present"]
            (source,) = (await gateway.subscribe("fresh", f"news/{before[0]}"))["sources"]
            (message,) = await w.take(source["address"], 1)
            assert message.body == f"for {before[0]}".encode()
    async with opened(SqliteSettings(str(data / "mqtt_lwt" / "store.db"))) as wills:
        assert await content(wills, "wills") == {"w1": b"a will"}
