"""A configuration is judged and saved beside the event loop, and published once it is saved."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from enmasse.api.types import Change
from enmasse.control import connect, listen
from enmasse.control.feeds import encode_message
from enmasse.http.health import Health
from enmasse.model.configuration import Applied, apply
from enmasse.model.names import DEFAULT_SPACE, AddressName
from enmasse.storage.durable import replace_file
from services.configserv import app, editing
from services.configserv.drivers import FilesDriver
from services.configserv.loading import Loading
from services.configserv.service import ConfigService
from services.configserv.state import applied
from services.configserv.state import store as stores
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until

LIMIT = DEADLINE


def test_an_order_to_force_is_accepted_once_it_is_saved_and_the_service_goes_on_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, writes = threading.Event(), list[bytes]()

    def replace(path: Path, data: bytes) -> None:
        writes.append(data)
        assert hanging.wait(LIMIT)
        replace_file(path, data)

    @asyncio_test
    async def run() -> None:
        service = ConfigService(stores.ConfigStore(str(tmp_path)), (), Health("127.0.0.1:0"))
        listener = await listen("127.0.0.1", 0, service.accepted, container="configuration-service")
        connection = await connect("127.0.0.1", listener.port, container="test", timeout=LIMIT)
        orders = [
            asyncio.create_task(connection.sender("force").deliver(encode_message("", {"addresses": [name]})))
            for name in ("a", "b")
        ]
        await until(lambda: writes)
        assert service.forced.names == [] and not any(order.done() for order in orders)
        hanging.set()
        assert all([(await order).accepted for order in orders])
        assert stores.ConfigStore(str(tmp_path)).forced() == service.forced.names == ["a", "b"]
        connection.close()
        await listener.close()
        service.close()

    monkeypatch.setattr(stores, "replace_file", replace)
    run()


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
        loading = Loading(service.compute, service.save, service.take)
        files = {"addresses.json": json.dumps({"a": {"type": "anycast"}}).encode(), "flavors.json": b"{}"}
        loading.configure({**files, "brokers.json": None})
        await until(lambda: writes)  # the loop has turns while the disk hangs
        assert service.status().addresses == []
        hanging.set()
        await loading.settled()
        assert [address.name for address in service.status().addresses] == [AddressName("a")]
        assert AddressName("a") in stores.ConfigStore(str(tmp_path)).configuration().addresses
        loading.close()
        service.close()

    monkeypatch.setattr(stores, "replace_file", replace)
    run()


def test_the_model_is_applied_twice_for_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to judge it before a byte is written, and once to have in force what the file says then."""
    applications = list[str]()

    def counted(*given: Any, **named: Any) -> Applied:
        applications.append(sys._getframe(1).f_globals["__name__"])
        return apply(*given, **named)

    monkeypatch.setattr(editing, "apply", counted)
    monkeypatch.setattr(applied, "apply", counted)

    @asyncio_test
    async def run() -> None:
        for file, entries in (("addresses", {"a": {"type": "anycast"}}), ("flavors", {})):
            (tmp_path / f"{file}.json").write_text(json.dumps(entries))
        service = ConfigService(stores.ConfigStore(str(tmp_path / "data")), (), Health("127.0.0.1:0"))
        loading = Loading(service.compute, service.save, service.take)
        driver = FilesDriver(str(tmp_path))
        driver.start(loading.configure)
        await loading.settled()
        change = Change(kind="addresses", set={"b": {"type": "anycast"}}, if_={"b": None})
        applications.clear()
        await app.changed(driver, service, change, DEFAULT_SPACE)
        await until(lambda: "b" in service.applied.state.addresses)
        assert applications == ["services.configserv.editing", "services.configserv.state.applied"]
        driver.close()
        loading.close()
        service.close()

    run()
