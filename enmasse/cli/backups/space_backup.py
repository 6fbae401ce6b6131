"""The backup of one address space of the running suite: its files, the messages of its queues and durable
subscriptions, and what services keep for its clients."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.cli.backups import space_messages
from enmasse.cli.backups.manifest import copy_file
from enmasse.cli.backups.private_broker import broker_on
from enmasse.cli.backups.process_backups import CopyFailed, alone, copy_broker
from enmasse.cli.backups.space_kept import KEPT, copy_kept, left_out
from enmasse.cli.backups.space_subscriptions import queue_rows, subscriptions
from enmasse.cli.common import report
from enmasse.cli.contexts.http import NotRunning, get_status
from enmasse.cli.contexts.target_server import LOCAL
from enmasse.model.names import AddressName, session_prefix, space_of, split_name
from enmasse.model.tenants.spaces import OWN_FILES, space_file
from enmasse.storage.files import write_json

FORM, FILES, MESSAGES = "space.json", "files", "messages"
"""In a backup: the entry of the space and its queues; its files; a file for each queue."""
COPIES = "copies"


def back_up(space: str, folder: Path, config: Path, data: Path, offset: int) -> None:
    """Copy an address space into a folder. Raises CopyFailed, OSError."""
    entry = entry_of(config, space)
    if entry is None:
        raise CopyFailed(f"there is no address space {space!r} in {config / 'spaces.json'}.")
    try:
        status = get_status(offset)
    except NotRunning as error:
        raise CopyFailed(str(error)) from None
    brokers = _brokers(status, space)
    if any(each["engine"] == "artemis" for each in status["components"] if each["name"] in brokers):
        raise CopyFailed("brokers of Artemis make no copies while they run: make a backup of the stopped suite.")
    for own in OWN_FILES:
        file = config / space_file(space, own)
        if file.exists():
            copy_file(file, folder / FILES / own)
    (folder / MESSAGES).mkdir(mode=0o700)
    queues: list[dict[str, Any]] = []
    with alone(data):
        (folder / COPIES).mkdir(mode=0o700)
        kept = frozenset(copy_kept(space, data, folder / KEPT, folder / COPIES, offset))
        for broker, names in sorted(brokers.items()):
            copy = folder / COPIES / broker
            copy_broker(data / "brokers" / broker, copy, offset)
            try:
                queues += asyncio.run(_messages(copy, space, names, broker, kept, folder / MESSAGES, len(queues)))
            except (AmqpError, TimeoutError) as error:
                raise CopyFailed(f"{broker}: its copy cannot be read: {error}.") from None
            shutil.rmtree(copy)
        shutil.rmtree(folder / COPIES)
    held = {str(split_name(name).local): row["messages"] for name, row in _rows(status, space, "queue").items()}
    copied = {each["address"]: each["messages"] for each in queues}
    if text := left_out(held, copied):
        report(f"warning: {text}")
    write_json(folder / FORM, {"space": space, "entry": entry, "queues": queues})


def entry_of(config: Path, space: str) -> dict[str, Any] | None:
    """Return the entry of an address space in spaces.json, None without one. Raises CopyFailed, OSError."""
    try:
        found = json.loads((config / "spaces.json").read_bytes()).get(space)
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError):
        raise CopyFailed(f"{config / 'spaces.json'}: cannot be parsed; `enmasse config check` says why.") from None
    return found if isinstance(found, dict) else None


def _rows(status: dict[str, Any], space: str, *types: str) -> dict[AddressName, dict[str, Any]]:
    rows = status["addresses"]
    return {AddressName(row["name"]): row for row in rows if row["type"] in types and space_of(row["name"]) == space}


def stored_at(status: dict[str, Any], space: str, *types: str) -> dict[AddressName, str]:
    """Return the addresses of these types of an address space, and the broker that has each."""
    brokers = {each["name"] for each in status["components"] if each["kind"] == "broker"}
    found: dict[AddressName, str] = {}
    for name, row in _rows(status, space, *types).items():
        for each in row["components"]:
            if each in brokers:
                found[name] = each
    return found


def _brokers(status: dict[str, Any], space: str) -> dict[str, list[AddressName]]:
    found: dict[str, list[AddressName]] = {}
    for broker in stored_at(status, space, "topic").values():
        found.setdefault(broker, [])
    for name, broker in stored_at(status, space, "queue").items():
        found.setdefault(broker, []).append(name)
    return found


async def _messages(
    copy: Path, space: str, names: list[AddressName], broker: str, kept: Collection[str], to: Path, first: int
) -> list[dict[str, Any]]:
    """Write the messages of queues, durable subscriptions and what services keep (`kept`) of a broker's copy; return
    what each file has. Raises CopyFailed, AmqpError."""
    queues: list[dict[str, Any]] = []
    with broker_on(copy) as (port, credential):
        async with connect(host=LOCAL, port=port, credential=credential) as client:

            async def take(address: AddressName, queue: AddressName, **more: Any) -> None:
                file = str(first + len(queues))
                count = await space_messages.browse(client, queue, to / file)
                queues.append({"address": split_name(address).local, "file": file, "messages": count, **more})

            for name in names:
                await take(name, name)
            rows = await queue_rows(client)
            for row in subscriptions(rows, space):
                queue = AddressName(f"{row['address']}::{row['name']}")
                await take(AddressName(row["address"]), queue, subscription=row)
            for row in rows:
                id = row["name"].removeprefix(f"{session_prefix(broker)}/")
                if id in kept and id != row["name"]:
                    await take(AddressName(""), AddressName(row["name"]), kept=id, broker=broker)
    return queues
