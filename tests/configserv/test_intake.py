"""A configuration is judged and saved beside the event loop, and published once it is saved."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from enmasse.durable import replace_file
from enmasse.health import Health
from enmasse.model.names import AddressName
from services.configserv import store as stores
from services.configserv.intake import Intake
from services.configserv.service import ConfigService
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


def test_a_disk_that_hangs_stops_neither_the_service_nor_is_anything_published_before_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, writes = threading.Event(), list[bytes]()

    def replace(path: Path, data: bytes) -> None:
        writes.append(data)
        hanging.wait()
        replace_file(path, data)

    @asyncio_test
    async def run() -> None:
        service = ConfigService(stores.ConfigStore(str(tmp_path)), (), Health("127.0.0.1:0"))
        intake = Intake(service.compute, service.save, service.take)
        files = {"addresses.json": json.dumps({"a": {"type": "anycast"}}).encode(), "flavors.json": b"{}"}
        intake.configure({**files, "brokers.json": None})
        await until(lambda: writes)  # the loop has turns while the disk hangs
        assert service.status().addresses == []
        hanging.set()
        await intake.settled()
        assert [address.name for address in service.status().addresses] == [AddressName("a")]
        assert AddressName("a") in stores.ConfigStore(str(tmp_path)).configuration().addresses
        intake.close()
        service.close()

    monkeypatch.setattr(stores, "replace_file", replace)
    run()
