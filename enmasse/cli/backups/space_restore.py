"""An address space of the running suite from the backup of one.

The space has no users until everything else is there: so no client finds a part of it. A mark in its folder says that
it is being restored; a command that finds it begins again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.cli.backups import space_messages, space_subscriptions
from enmasse.cli.backups.space_backup import FILES, FORM, MESSAGES, entry_of, stored_at
from enmasse.cli.backups.space_kept import KEPT, read_kept
from enmasse.cli.backups.space_kept_restore import KeptRestore, Queues
from enmasse.cli.common import end, report
from enmasse.cli.contexts.console import API, LocalConsole, path
from enmasse.cli.contexts.http import get_status, operator_credential
from enmasse.identity.processes.credentials import Credential
from enmasse.model.names import AddressName, LocalName, full_name, split_name
from enmasse.model.sessions import Kept
from enmasse.model.tenants.spaces import FOLDER, space_file
from enmasse.storage.files import write_json, write_text

MARK = ".restoring"
LOGINS = ("issuers.json", "users.json")
"""Files that let clients in, the last ones to be written."""
READY_SECONDS, KNOWN_SECONDS, POLL_SECONDS = 300.0, 60.0, 0.1
SAY_SECONDS: Final = 5.0
"""Seconds between two lines about what is waited for."""
SHOWN: Final = 3
"""Addresses in such a line."""


class RestoreFailed(Exception):
    """The space cannot be restored; the text has the reason."""


class SpaceInUse(RestoreFailed):
    """There is a space of this name."""


def restore(folder: Path, space: str, config: Path, offset: int) -> int:
    """Restore the backup of a space as `space`; return how many messages there are. Ends the command if the suite
    refuses it. Raises RestoreFailed, OSError."""
    made = json.loads((folder / FORM).read_bytes())
    mark = config / FOLDER / space / MARK
    present = entry_of(config, space)
    if present is not None and not mark.exists():
        text = f"there is an address space {space!r}; nothing was restored. Give another name, or remove it."
        raise SpaceInUse(text)
    if present is None and any(stored_at(get_status(offset), space, "queue", "topic")):
        text = f"the queues of the removed address space {space!r} hold messages. Consume them, or discard them: "
        raise RestoreFailed(f"{text}`enmasse space remove {space} --force`; then repeat the command.")
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(mark, {"of": made["space"]}, durable=True)
    last = [name for name in LOGINS if (folder / FILES / name).exists()][-1:]
    if present is not None and last and (config / space_file(space, last[0])).exists():  # killed after all was there
        mark.unlink()
        return sum(each["messages"] for each in made["queues"])
    console = LocalConsole(offset)
    if present is None:
        _done(console, "PUT", path("spaces", space), made["entry"])
    for own in sorted((folder / FILES).iterdir()):
        if own.name not in LOGINS:
            _put(own, config / space_file(space, own.name))
    kept = list(read_kept(folder / KEPT))
    entries = json.loads((folder / FILES / "addresses.json").read_bytes()) if made["queues"] or kept else {}
    ours = [each for each in made["queues"] if "kept" not in each]
    names = {_carrier(full_name(space, LocalName(each["address"])), space, entries) for each in ours}
    brokers = _ready(space, names, entries, offset, everything=bool(kept))

    def let_in() -> None:
        for name_of_file in LOGINS:
            if (folder / FILES / name_of_file).exists():
                _put(folder / FILES / name_of_file, config / space_file(space, name_of_file))
        mark.unlink()

    try:
        count = asyncio.run(_all(brokers, made, ours, kept, folder, space, offset, let_in))
    except (AmqpError, TimeoutError, EOFError, ValueError) as error:
        why = "; ".join([str(error), *_details(get_status(offset))])
        raise RestoreFailed(f"{why}. The space lets no client in: repeat the command.") from None
    _wait_for_users(console, space, folder / FILES / "users.json")
    return count


def _wait_for_users(console: LocalConsole, space: str, file: Path) -> None:
    """Wait until the restored users can log in, KNOWN_SECONDS at most: of a file that is refused, the status of the
    suite has the reason."""
    wanted = len(json.loads(file.read_bytes())) if file.exists() else 0
    until = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < until:
        status, page = console.request("GET", f"{API}{path('spaces', space)}/users?limit=1")
        if status < 400 and page["total"] >= wanted:
            return
        time.sleep(POLL_SECONDS)


async def _all(
    brokers: dict[AddressName, str],
    made: dict[str, Any],
    ours: list[dict[str, Any]],
    kept: list[Kept],
    folder: Path,
    space: str,
    offset: int,
    let_in: Callable[[], None],
) -> int:
    """Restore messages and what services keep, then let clients in; return the number of messages. `ours`: the queues
    that no service keeps."""
    names = made["space"], space
    credential = await asyncio.to_thread(operator_credential, offset)
    count = await _send(brokers, ours, folder, names, credential)
    if not kept:
        let_in()
        return count
    async with KeptRestore(names, offset, credential) as services:
        await services.clear()
        # Retained messages last: a new subscription gets those that there are.
        queues: Queues = {}
        for each in sorted(kept, key=lambda each: each.retained is not None):
            queues |= await _put_kept(services, each)
        endpoints = _endpoints(offset)
        for row in made["queues"]:
            if "kept" in row and row["messages"]:
                queue = _successor(queues.get(row["kept"], []), row["broker"])
                if queue is None:
                    raise RestoreFailed(f"nothing takes the {row['messages']} messages of {row['kept']}")
                count += await _fill(endpoints, queue, folder / MESSAGES / row["file"], names, credential)
        for each in kept:
            if each.will is not None:
                await services.hold(each.will)
        let_in()
        await services.let_go()
    return count


async def _put_kept(services: KeptRestore, kept: Kept) -> Queues:
    """Restore one; again until the subscription service knows the addresses. Raises as KeptRestore.put."""
    until = time.monotonic() + KNOWN_SECONDS
    while True:
        try:
            return await services.put(kept)
        except (ValueError, AmqpError):
            if time.monotonic() > until:
                raise
        await asyncio.sleep(POLL_SECONDS)


def _successor(queues: list[str], broker: str) -> str | None:
    """Return the queue that takes the messages of one at a broker: at the same broker, else any."""
    same = [queue for queue in queues if queue.split("/")[1] == broker]
    return next(iter(same or sorted(queues)), None)


async def _fill(
    endpoints: dict[str, str], queue: str, file: Path, names: tuple[str, str], credential: Credential | None
) -> int:
    host, _, port = endpoints[queue.split("/")[1]].rpartition(":")
    async with connect(host=host, port=int(port), credential=credential) as client:
        return await space_messages.send(client, AddressName(queue), file, names)


def _endpoints(offset: int) -> dict[str, str]:
    """Return broker → where it listens for AMQP."""
    components = get_status(offset)["components"]
    return {each["name"]: each["endpoints"]["amqp"] for each in components if each["endpoints"].get("amqp")}


def _put(file: Path, to: Path) -> None:
    write_text(to, file.read_text(), mode=file.stat().st_mode & 0o777, durable=True)


def _done(console: LocalConsole, method: str, where: str, body: Any) -> None:
    status, answer = console.request(method, API + where, body)
    if status >= 400:
        text = answer.get("detail") or answer.get("title") if isinstance(answer, dict) else str(status)
        end("backup.restore.failed", f"the suite refuses {where}: {text}")
    while isinstance(answer, dict) and answer.get("state") in ("waiting", "running"):  # a job
        time.sleep(POLL_SECONDS)
        _, answer = console.request("GET", f"{API}jobs/{answer['id']}")


def _carrier(name: AddressName, space: str, known: Container[str]) -> AddressName:
    """Return the address of a space that a name is of: itself, or the topic that it is below."""
    local = str(split_name(name).local)
    while local not in known and "/" in local:
        local = local.rpartition("/")[0]
    return full_name(space, LocalName(local))


def _ready(
    space: str, wanted: set[AddressName], names: Iterable[str], offset: int, *, everything: bool
) -> dict[AddressName, str]:
    """Wait until the addresses are there, and say what is missing; return the endpoint of the broker of each.
    `everything`: wait for all of these names. Raises RestoreFailed."""
    until = time.monotonic() + READY_SECONDS
    says, shown = time.monotonic() + SAY_SECONDS, ""
    every = {full_name(space, LocalName(name)) for name in names} if everything else frozenset()
    while True:
        status = get_status(offset)
        rows = {row["name"]: row for row in status["addresses"]}
        for local in names:
            row = rows.get(full_name(space, LocalName(local)))
            if row is not None and row["phase"] == "Failed":
                raise RestoreFailed(f"{local}: {row['message']}. The space lets no client in: repeat the command.")
        endpoints = {each["name"]: each["endpoints"].get("amqp") for each in status["components"]}
        places = stored_at(status, space, "queue", "topic")
        found = {name: endpoints.get(broker) for name, broker in places.items() if rows[name]["ready"]}
        late = {name for name in wanted if not found.get(name)}
        late |= {name for name in every if name not in rows or not rows[name]["ready"]}
        if not late:
            return {name: str(found[name]) for name in wanted}
        line = "; ".join([_missing(late, rows), *_details(status)])
        if time.monotonic() > until:
            raise RestoreFailed(f"not ready within {READY_SECONDS:g} s: {line}. Repeat the command.")
        if line != shown and time.monotonic() >= says:
            report(f"waiting for {line}")
            says, shown = time.monotonic() + SAY_SECONDS, line
        time.sleep(POLL_SECONDS)


def _missing(late: Iterable[AddressName], rows: Mapping[AddressName, dict[str, Any]]) -> str:
    """Return the first addresses that are not ready, with the reasons, and the number of the others."""
    names = sorted(late)
    found = []
    for name in names[:SHOWN]:
        row = rows.get(name, {})
        why = row.get("message") or row.get("phase") or "not known yet"
        found.append(f"{split_name(name).local} ({why})")
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join(found + more)


def _details(status: dict[str, Any]) -> list[str]:
    """Return what the processes of a suite that are not ready report, such as a full disk."""
    return [f"{each['name']}: {each['detail']}" for each in status["components"] if not each["ready"]]


async def _send(
    brokers: dict[AddressName, str],
    queues: list[dict[str, Any]],
    folder: Path,
    names: tuple[str, str],
    credential: Credential | None,
) -> int:
    count = 0
    for made in queues:
        name = full_name(names[1], LocalName(made["address"]))
        known = {split_name(each).local for each in brokers}
        host, _, port = brokers[_carrier(name, names[1], known)].rpartition(":")
        async with connect(host=host, port=int(port), credential=credential) as client:
            if (row := made.get("subscription")) is not None:
                queue = await space_subscriptions.make(client, row, names)
                name = AddressName(f"{name}::{queue}")
            else:
                await space_subscriptions.ask(client, "removeAllMessages", resource=f"queue.{name}")
            count += await space_messages.send(client, name, folder / MESSAGES / made["file"], names)
    return count
