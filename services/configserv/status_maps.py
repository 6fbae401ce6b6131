"""The status beside each ConfigMap with configuration: `NAME-status`, for people and for `enmasse status --namespace`.

Written at most every INTERVAL seconds and only if it differs; if nothing but numbers of messages and consumers differ,
every COUNTS_INTERVAL. These ConfigMaps do not have the label that configuration has, so writing one changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from enmasse.kubernetes.api_server import CONFIG_MAP, Api, ApiError
from enmasse.kubernetes.config_maps import home
from enmasse.kubernetes.labels import MANAGED_BY, STATUS_KEY, STATUS_OF, status_name
from enmasse.logs import log
from enmasse.model import feeds
from enmasse.model.configuration import ADDRESSES, FLAVORS, SPACES
from enmasse.model.names import DEFAULT_SPACE, AddressName, space_of
from enmasse.model.tenants.spaces import space_file, split_file
from enmasse.process import runner
from services.configserv.drivers.kubernetes import ConfigMap
from services.configserv.drivers.mounted_users import space_of_source
from services.configserv.resources.object_kinds import is_resource

MANAGER = "enmasse-configserv"
INTERVAL, COUNTS_INTERVAL = 1.5, 30.0
MAX_BYTES = 900_000
"""Bytes of a status at most; a ConfigMap may have 1 MiB."""


RESOURCE = "/"
"""In place of a ConfigMap: the address is a custom resource."""


class StatusMaps:
    """Writer of the status of the ConfigMaps that `config_maps` gives. `status` gives the newest, `origins` the
    ConfigMap of each address."""

    def __init__(
        self,
        api: Api,
        labels: dict[str, str],
        *,
        config_maps: Callable[[], list[ConfigMap]],
        status: Callable[[], feeds.Status],
        origins: Callable[[], Mapping[AddressName, str]],
    ) -> None:
        self._api = api
        self._labels = {**labels, MANAGED_BY: MANAGER}
        self._config_maps = config_maps
        self._status = status
        self._origins = origins
        self._homes: dict[AddressName, str] = {}
        """Address → the ConfigMap it was in last: an address that was removed is shown there until it is gone."""
        self._written: dict[str, tuple[str, str, bytes, float]] = {}
        """ConfigMap → its uid, the status that was written, the same without numbers, and the time of writing."""
        self._refused: set[str] = set()
        self._wake = asyncio.Event()
        self._task = runner.spawn(self._run(), "status")

    def changed(self) -> None:
        """Check whether a status has changed."""
        self._wake.set()

    def close(self) -> None:
        """Stop writing."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await runner.woken(self._wake, COUNTS_INTERVAL)
            try:
                await self._write_all()
            except ApiError as error:
                log.get().warning("configserv.status.not-written", reason=str(error))
                self._wake.set()
            await asyncio.sleep(INTERVAL)

    async def _write_all(self) -> None:
        config_maps = self._config_maps()
        if not config_maps:
            return
        self._remember()
        texts = divided(self._status(), config_maps, self._homes)
        now = asyncio.get_running_loop().time()
        forbidden: ApiError | None = None
        there = {each.name for each in config_maps}
        self._written = {name: found for name, found in self._written.items() if name in there}
        for each in config_maps:
            text, shape = texts[each.name]
            before = self._written.get(each.name)
            if before is not None and before[0] == each.uid:
                if before[1] == text or (before[2] == shape and now - before[3] < COUNTS_INTERVAL):
                    continue
            elif not await self._is_ours(status_name(each.name)):
                continue
            try:
                await asyncio.to_thread(self._api.apply, CONFIG_MAP, self._body(each, text), MANAGER, force=True)
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                forbidden = (
                    forbidden or error
                )  # a ConfigMap that the chart's values do not name; the others are written
                continue
            self._written[each.name] = each.uid, text, shape, now
        if forbidden is not None:
            raise forbidden

    def _remember(self) -> None:
        origins = self._origins()
        for name, origin in origins.items():
            self._homes[name] = RESOURCE if is_resource(origin) else home(origin)
        if len(self._homes) > 2 * len(origins) + 1000:
            self._homes = {name: where for name, where in self._homes.items() if name in origins}

    async def _is_ours(self, name: str) -> bool:
        """Return whether a ConfigMap of this name is missing or a status of ours; a foreign one is not changed."""
        found = await asyncio.to_thread(self._api.get, CONFIG_MAP, name)
        if found is None or STATUS_OF in (found["metadata"].get("labels") or {}):
            self._refused.discard(name)
            return True
        if name not in self._refused:
            self._refused.add(name)
            log.get().warning("configserv.status.conflicted", name=name)
        return False

    def _body(self, each: ConfigMap, text: str) -> dict[str, Any]:
        owner = {"apiVersion": "v1", "kind": CONFIG_MAP.name, "name": each.name, "uid": each.uid}
        metadata = {
            "name": status_name(each.name),
            "labels": {**self._labels, STATUS_OF: each.name[:63].rstrip("-.")},
            "ownerReferences": [owner],
        }
        return {"metadata": metadata, "data": {STATUS_KEY: text}}


def divided(
    status: feeds.Status, config_maps: Sequence[ConfigMap], homes: Mapping[AddressName, str]
) -> dict[str, tuple[str, bytes]]:
    """ConfigMap → its part of the status as text, and what of it decides whether it is written soon. Pure.

    What has no ConfigMap of its own is beside the first one of its address space; beside a ConfigMap of a space there
    is nothing of another one.
    """
    first: dict[str, str] = {}
    for each in config_maps:
        first.setdefault(each.file, each.name)
    general = next((first[file] for file in (ADDRESSES, FLAVORS) if file in first), config_maps[0].name)
    operators = first.get(SPACES, general)
    addresses: dict[str, list[feeds.AddressStatus]] = {each.name: [] for each in config_maps}
    errors: dict[str, list[feeds.ErrorStatus]] = {each.name: [] for each in config_maps}

    def place(where: str, space: str, file: str = "") -> str:
        if where not in addresses:
            where = first.get(file) or first.get(space_file(space, ADDRESSES), "")
        return where or (operators if space != DEFAULT_SPACE else general)

    for address in status.addresses:
        if homes.get(address.name) == RESOURCE:
            continue  # it has a status of its own
        addresses[place(homes.get(address.name, ""), space_of(address.name))].append(address)
    for error in status.errors:
        if is_resource(error.file):
            continue
        errors[place(home(error.file), space_of_source(error.file), error.file)].append(error)
    configs = {
        space: _config_of(space, status.config) for space in {split_file(each.file).space for each in config_maps}
    }
    return {
        each.name: _text(configs[split_file(each.file).space], addresses[each.name], errors[each.name])
        for each in config_maps
    }


def _config_of(space: str, config: Mapping[str, str]) -> dict[str, str]:
    """Return the files that concern a space; the default one's are those of the installation too."""
    return {file: value for file, value in config.items() if split_file(file).space == space}


def _text(
    config: dict[str, str], addresses: list[feeds.AddressStatus], errors: list[feeds.ErrorStatus]
) -> tuple[str, bytes]:
    """Encode a status in MAX_BYTES: leave out the components first, then ready addresses, then further ones."""
    omitted = ""
    body = _encoded(config, addresses, errors, omitted)
    if len(body) > MAX_BYTES:
        omitted = "components"
        addresses = [msgspec.structs.replace(each, components=[]) for each in addresses]
        body = _encoded(config, addresses, errors, omitted)
    if len(body) > MAX_BYTES:
        count = len(addresses)
        addresses = [each for each in addresses if not each.ready]
        omitted = f"components; {count - len(addresses)} addresses that are ready"
        body = _encoded(config, addresses, errors, omitted)
    while len(body) > MAX_BYTES:
        count = len(addresses) + len(errors)
        addresses, errors = addresses[: len(addresses) // 2], errors[: (len(errors) + 1) // 2]
        omitted = f"{omitted}; {count - len(addresses) - len(errors)} more addresses and errors"
        body = _encoded(config, addresses, errors, omitted)
    plain = [msgspec.structs.replace(each, messages=None, consumers=None) for each in addresses]
    return body.decode(), _encoded(config, plain, errors, omitted)


def _encoded(
    config: dict[str, str], addresses: list[feeds.AddressStatus], errors: list[feeds.ErrorStatus], omitted: str
) -> bytes:
    body: dict[str, Any] = {
        "schema": feeds.SCHEMA,
        "ready": all(each.ready for each in addresses),
        "config": config,
        "addresses": addresses,
        "errors": errors,
    }
    if omitted:
        body["omitted"] = omitted
    return msgspec.json.encode(body)
