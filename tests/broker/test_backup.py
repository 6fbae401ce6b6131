"""A copy of a broker that runs: what was accepted before it was asked for is in it, and nothing is damaged."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from services.broker.storage.maintenance.backup import NAME
from services.broker.storage.store import Store
from tests.broker.harness import DEADLINE, BrokerProcess, until
from tests.broker.load import Receiver, Sender

ROOT = Path(__file__).parents[2]


def commands() -> str:
    """Those of the section of the docs that are for brokers."""
    _, _, section = (ROOT / "docs" / "operations.md").read_text().partition("## Backup")
    (found,) = (block for block in re.findall(r"```sh\n(.*?)```", section, re.S) if "/brokers/" in block)
    return str(found)


def test_a_backup_under_load_has_all_that_was_accepted_before(tmp_path: Path) -> None:
    """Made by the commands of the docs, from a broker that goes on."""
    data, target = tmp_path / "data", tmp_path / "target"
    broker = BrokerProcess(tmp_path, data_dir=str(data / "brokers" / "b0")).start()
    with broker.manage() as m:
        m.queue("kept")
        m.queue("through")
    kept = Sender(broker.url, "kept", size=1000)
    through, out = Sender(broker.url, "through", size=50_000), Receiver(broker.url, "through")
    segments = (data / "brokers" / "b0").glob
    until(lambda: len(list(segments("*.journal"))) > 1 and len(kept.accepted) > 500, "two segments")
    accepted = set(kept.accepted)
    subprocess.run(
        ["sh", "-euc", commands()],
        env={**os.environ, "DATA": str(data), "TARGET": str(target)},
        check=True,
        timeout=DEADLINE,
    )
    assert not (data / "brokers" / "b0" / NAME).exists()
    so_far = out.count, len(kept.accepted)
    until(lambda: out.count > so_far[0] + 100 and len(kept.accepted) > so_far[1] + 100, "messages to flow on")
    for client in (kept, through, out):
        client.stop()
    broker.stop()
    copy = target / "brokers" / "b0"
    again = BrokerProcess(target, data_dir=str(copy)).start()
    assert not again.health_says().get("detail"), "nothing is damaged"
    with again.manage() as m:
        held = m.count("kept")
        receiver = Receiver(again.url, "kept")
        until(lambda: receiver.count >= held, "everything to be received", moves=lambda: receiver.count)
        receiver.stop()
    assert accepted <= set(receiver.got) and set(receiver.got.values()) == {1}
    assert not (copy / "damaged").exists()
    assert int((copy / "IDS").read_text()) > int((data / "brokers" / "b0" / "IDS").read_text())
    again.stop()


def test_a_backup_stays_as_it_was(tmp_path: Path) -> None:
    """Nothing that happens to the store afterwards changes what its backup holds."""
    store = Store.open(tmp_path / "d", segment_size=2000)
    first, gone = store.new_id(), store.new_id()
    store.define(first, b'{"name": "first"}')
    store.define(gone, b'{"name": "gone"}')
    store.undefine(gone)
    ids = [store.add(b"%d" % i * 50, [first]) for i in range(100)]
    store.remove_many(ids[:30], first)
    store.flush()
    (tmp_path / "d" / NAME).mkdir()
    (tmp_path / "d" / NAME / "1.journal").write_text("of a backup that was broken off by a kill")
    store.tick()
    later = store.new_id()
    store.define(later, b'{"name": "later"}')
    store.flush()
    assert (tmp_path / "d" / NAME / "FORMAT").exists()
    store.remove_many(ids[30:], first)
    store.undefine(first)
    for _ in range(20):
        store.flush()
        store.tick()
    store.close()
    copy = Store.open(tmp_path / "d" / NAME, segment_size=2000)
    assert not copy.recovered.damaged
    assert copy.recovered.definitions.keys() - {later} == {first}
    assert [r.message for r in copy.recovered.references(first)] == ids[30:]
    assert copy.load(ids[40]) == b"40" * 50
    copy.close()
